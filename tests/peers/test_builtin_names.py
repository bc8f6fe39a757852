"""Compare the names that importers treat as Keras's with those of Keras (`tests.peers.record builtin_names`)."""

from __future__ import annotations

import pytest

from netspec.exchange.formats.keras import names as keras_names
from netspec.exchange.formats.keras.names import RENAMED_CLASSES
from tests.peers.recordings import load_answers

ABSTRACT = ("Loss", "Metric", "Initializer", "Regularizer", "Constraint")
WITHOUT = (*ABSTRACT, "LossFunctionWrapper", "MeanMetricWrapper", "Mean", "Sum")
"""Abstract classes, wrappers, and metrics that compare nothing."""
EARLIER = {
    "losses": {"huber_loss", "kullback_leibler_divergence", "logcosh"},
    "metrics": {"KLD", "kld", "kullback_leibler_divergence", "log_cosh", "logcosh"},
    "activations": {"ReLU", "LeakyReLU", "ELU", "Softmax"},  # layers as activations
    "initializers": {"gaussian"},
    "regularizers": {"l1_l2"},
    "constraints": {"maxnorm", "nonneg", "unitnorm"},
}
"""Names of Keras 1 and 2, and of functions that Keras 3 does not accept as strings."""
MISSING_IN_STRINGS = {"CategoricalGeneralizedCrossEntropy", "categorical_generalized_cross_entropy"}
"""Keras exports these names, but does not accept them as strings."""


def recorded(module: str) -> dict[str, str]:
    return {str(name): str(class_name) for name, class_name in load_answers("builtin_names")[module]}


@pytest.mark.parametrize("module", ["activations", "initializers", "regularizers", "constraints"])
def test_the_names_equal_keras(module: str) -> None:
    kind, names = module.removesuffix("s"), recorded(module)
    for name, class_name in names.items():
        expected = None if class_name in ABSTRACT else name if kind == "activation" else class_name
        assert keras_names.builtin(kind, name) == expected, name
    assert keras_names.names(kind) - names.keys() == EARLIER[module]


@pytest.mark.parametrize(("module", "kind"), [("losses", "loss"), ("metrics", "metric")])
def test_losses_and_metrics_equal_keras(module: str, kind: str) -> None:
    names = recorded(module)
    for name, class_name in names.items():
        form: keras_names.Form = "function" if class_name == class_name.lower() else "class"
        expected = None if class_name in WITHOUT else keras_names.builtin_loss_or_metric(kind, class_name, form, 3)
        assert (expected is None) == (class_name in WITHOUT), class_name
        assert keras_names.builtin_loss_or_metric(kind, name, "text", 3) == expected, name
    assert keras_names.loss_or_metric_names(kind, "text", 3) - names.keys() - MISSING_IN_STRINGS == EARLIER[module]


def test_layers_equal_keras() -> None:
    in_keras = {str(name) for name in load_answers("builtin_names")["layers"]}
    gone = keras_names.names("layer") - in_keras
    assert gone <= RENAMED_CLASSES.keys()
    assert gone == {"BatchNormalizationV1", "BatchNormalizationV2", "CuDNNGRU", "CuDNNLSTM", "Deconvolution2D", "GRUV2",
                    "LSTMV2"}  # fmt: skip
