"""Losses and metrics in a net: weights of samples, default inputs, and kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netspec.backends.device_registry import open_device
from netspec.backends.reference.kernels import ForwardKernel
from netspec.compile import LOSS, Compiler, ProgramKind
from tests.compile.nets import net, solver

WEIGHTED = """\
netspec: 1
inputs:
  x: {shape: [4]}
  label: {shape: [], dtype: int32}
  importance: {shape: []}
layers:
  - {name: logits, type: Dense, units: 3}
losses:
  - type: SparseCategoricalCrossentropy
    from_logits: true
    sample_weight: importance
    class_weight: {0: 2.0, 2: 0.5}
    reduction: mean_with_sample_weight
    weight: 3.0
metrics:
  - {type: SparseCategoricalAccuracy, sample_weight: importance}
"""


def test_sample_weight_input_of_losses_and_metrics(tmp_path: Path) -> None:
    compiler = Compiler(net(WEIGHTED, tmp_path))
    random = np.random.default_rng(0)
    feeds = {
        "x": random.normal(size=(5, 4)).astype("float32"),
        "label": np.array([0, 1, 2, 0, 2], "int32"),
        "importance": np.array([1.0, 0.0, 2.0, 0.5, 1.5], "float32"),
    }
    actual = compiler.program(ProgramKind.TEST, 5)(feeds)
    scores = feeds["x"] @ compiler.states["logits/kernel"] + compiler.states["logits/bias"]
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[range(5), feeds["label"]]
    weights = feeds["importance"] * np.array([2.0, 1.0, 0.5])[feeds["label"]]
    assert actual[LOSS] == pytest.approx(3 * (losses * weights).sum() / weights.sum(), rel=1e-5)
    hits, total = (float(actual[f"sparse_categorical_accuracy/{index}"]) for index in (0, 1))
    assert total == 5.0
    assert hits == pytest.approx(feeds["importance"][scores.argmax(axis=1) == feeds["label"]].sum())


COMMON = [
    "MeanSquaredError", "MeanAbsoluteError", "Huber", "LogCosh", "BinaryCrossentropy", "KLDivergence", "Poisson",
    "CosineSimilarity", "CategoricalCrossentropy", "CategoricalFocalCrossentropy", "BinaryFocalCrossentropy",
]  # fmt: skip


@pytest.mark.parametrize("loss", [*COMMON, "SparseCategoricalCrossentropy"])
def test_steps_of_common_losses_run_only_on_fast_kernels(tmp_path: Path, loss: str) -> None:
    label = "shape: [], dtype: int32" if "Sparse" in loss else "shape: [3]"
    text = f"""\
    netspec: 1
    inputs: {{x: {{shape: [4]}}, y: {{{label}}}, w: {{shape: []}}}}
    layers: [{{name: p, type: Dense, units: 3, activation: softmax}}]
    losses: [{{type: {loss}, from: [p, y], sample_weight: w, reduction: mean_with_sample_weight}}]
    """
    compiler = Compiler(net(text, tmp_path), solver=solver(), device=open_device("null"))
    choices = compiler.plan(ProgramKind.TRAIN, 8).choices
    slow = [node.op for node, choice in choices.items() if isinstance(choice.kernel, ForwardKernel)]
    # Matrix products belong to the layer, and have kernels only with oneDNN.
    assert [op.name for op in slow if not op.traits.is_contraction] == []
