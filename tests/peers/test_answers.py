"""netspec against Keras on PyTorch: outputs, gradients and updates of states, recorded by `record.py`.

`make test-peers` records them again from the installed peers and compares with these (NETSPEC_PEER_ANSWERS).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from netspec.graph.autodiff import gradients
from netspec.tools.verification.cases import SampleCase, built
from tests.interpret import evaluate
from tests.peers.record import described
from tests.peers.recordings import RECORD_AGAIN, load_answers
from tests.registry.parametrize import each_class, training_and_inference


def label(training: bool) -> str:
    return "training" if training else "inference"


def recorded(case: SampleCase, training: bool, *names: str) -> dict[str, np.ndarray]:
    """Return the recorded arrays of a case by name: those in `names`, or all."""
    prefix = f"{case.number}/{label(training)}/"
    answers = load_answers(f"{case.kind}_{case.type}")
    selected = {key.removeprefix(prefix): array for key, array in answers.items() if key.startswith(prefix)}
    return {name: array for name, array in selected.items() if not names or name in names}


def agrees_or_differs(case: SampleCase, training: bool) -> None:
    """Compare a case with Keras's results, or require the recorded reason why there are none."""
    reason = recorded(case, training, "of", "unlike")
    if "unlike" in reason:
        assert str(reason["of"]) == described(case), RECORD_AGAIN.format(names=case.type)
        assert str(reason["unlike"]), case.id
    else:
        agrees(case, training)


def inference(case: SampleCase) -> Sequence[tuple[bool]]:
    """Values of `training`: losses and metrics have only one form."""
    return ((False,),)


test_layers_agree_with_keras = each_class("layer", arguments=training_and_inference, costly=True)(agrees_or_differs)
test_losses_and_metrics_agree_with_keras = each_class("loss", "metric", arguments=inference, costly=True)(
    agrees_or_differs
)


def agrees(case: SampleCase, training: bool) -> None:
    answers = recorded(case, training)
    assert str(answers.pop("of", "")) == described(case), RECORD_AGAIN.format(names=case.type)
    net = built(case, training)
    feeds = {**net.feeds, **{name[5:]: array for name, array in answers.items() if name.startswith("feed/")}}

    def agree(actual: np.ndarray, expected: np.ndarray) -> None:
        # In float64, Keras on PyTorch rounds some steps (means, products) to float32 (2⁻²⁴ = 6e-8). Which bits are lost
        # depends on the CPU, and an element that is a sum of larger ones has their error.
        scale = max(1.0, float(np.abs(expected).max(initial=0.0, where=np.isfinite(expected))))
        np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-6 * scale)

    outputs = evaluate(net.outputs, feeds)
    if case.kind == "metric":
        outputs = [array_of(case.spec().result(*outputs))]
    for index, output in enumerate(outputs):
        agree(output, answers[f"output{index or ''}"])
    slopes = {name[9:]: array for name, array in answers.items() if name.startswith("gradient/")}
    if case.kind != "metric":
        assert slopes or all(name.startswith("weights/") for name in net.wrt)
        # If the layer changes a parameter, Keras's gradient is by the new value.
        predictions = gradients(net.scalar, [net.builder.updates.get(name, net.wrt[name]) for name in slopes])
        for expected, actual in zip(slopes.values(), evaluate(predictions, feeds), strict=True):
            agree(actual, expected)
    updates = {name[7:]: array for name, array in answers.items() if name.startswith("update/")}
    assert set(updates) == set(net.builder.updates)
    for name, array in updates.items():
        agree(evaluate([net.builder.updates[name]], feeds)[0], array)


def array_of(figure: Any) -> np.ndarray:
    """Return the values of a result as an array, in the order of their names."""
    return np.array([array_of(item) for item in figure.values()] if isinstance(figure, Mapping) else figure)
