"""A net with an LSTM, compiled: the content of the plan, and that all sets of kernels train it equally."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind
from netspec.schema.specs.net import NetSpec
from netspec.solvers.sgd import SGD
from netspec.tools.specs import load_spec
from tests.interpret import run

BATCH, STEPS, VOCABULARY = 3, 5, 7


def compiler(*layers: dict[str, Any], mask_zero: bool = False) -> Compiler:
    spec = load_spec(
        {
            "netspec": 1,
            "inputs": {name: {"shape": [STEPS], "dtype": "int32"} for name in ("text", "next")},
            "layers": [
                {
                    "name": "vectors",
                    "type": "Embedding",
                    "input_dim": VOCABULARY,
                    "output_dim": 4,
                    "mask_zero": mask_zero,
                },
                *layers,
                {"name": "logits", "type": "Dense", "units": VOCABULARY},
            ],
            "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "next"], "from_logits": True}],
        }
    )
    assert isinstance(spec, NetSpec)
    return Compiler(spec, solver=SGD(type="SGD", momentum=0.9))


LAYERS: dict[str, dict[str, Any]] = {
    "LSTM": {"type": "LSTM"},
    "GRU": {"type": "GRU"},
    "GRU before": {"type": "GRU", "reset_after": False},
    "SimpleRNN": {"type": "SimpleRNN"},
    "gelu": {"type": "LSTM", "activation": "gelu", "recurrent_activation": "hard_sigmoid"},
}


def one_is_fast(cases: Iterable[str], fast: str) -> list[Any]:
    """Parameters of a test that compiles with every set of kernels: all cases but one are exhaustive."""
    return [pytest.param(name, marks=() if name == fast else pytest.mark.exhaustive) for name in cases]


def losses(compiler: Compiler, steps: int = 5) -> list[float]:
    program, random = compiler.program(ProgramKind.TRAIN, BATCH), np.random.default_rng(3)
    text = random.integers(0, VOCABULARY, (2, BATCH, STEPS)).astype(np.int32)
    actual = []
    for step in range(steps):
        program.write({"text": text[0], "next": text[1], LEARNING_RATE: np.array(0.5), STEP: np.array(float(step))})
        program.run()
        actual.append(program.guard)
    return actual


@pytest.mark.parametrize("name", one_is_fast(LAYERS, "LSTM"))
def test_all_kernels_train_equally(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = {"name": "memory", "units": 6, "return_sequences": True, **LAYERS[name]}
    actual = {}
    for kernels in ("reference", "numba", "numba,onednn", "onednn"):
        monkeypatch.setenv("NETSPEC_KERNELS", kernels)
        actual[kernels] = losses(compiler(layer))
    assert actual["reference"][-1] < actual["reference"][0]
    for kernels, ours in actual.items():
        np.testing.assert_allclose(ours, actual["reference"], rtol=1e-5, err_msg=kernels)


MASKED: dict[str, list[dict[str, Any]]] = {
    "LSTM": [{"type": "LSTM", "return_sequences": True}],
    "backwards": [{"type": "GRU", "return_sequences": True, "go_backwards": True}],
    "handed on": [
        {"name": "first", "type": "LSTM", "return_sequences": True, "return_state": True},
        {"type": "LSTM", "return_sequences": True, "from": ["first", "first.state_h", "first.state_c"]},
    ],
    "only the end": [
        {"name": "first", "type": "LSTM", "return_state": True},
        {"type": "GRU", "return_sequences": True, "from": ["vectors", "first.state_c"]},
    ],
}


@pytest.mark.parametrize("name", one_is_fast(MASKED, "backwards"))
@pytest.mark.slow
def test_all_kernels_train_equally_with_masks_and_states(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [{"units": 6, **fields} for fields in MASKED[name]]
    actual = {}
    for kernels in ("reference", "numba", "numba,onednn"):
        monkeypatch.setenv("NETSPEC_KERNELS", kernels)
        compiled = compiler(*layers, mask_zero=True)
        actual[kernels] = losses(compiled)
        choices = compiled.plan(ProgramKind.TRAIN, BATCH).choices
        recurrent = [choice for node, choice in choices.items() if node.op.name.startswith("Recurrence")]
        assert len(recurrent) == 2 * len(layers)
        assert {choice.kernel.backend for choice in recurrent} == {kernels.rpartition(",")[2]}
    assert actual["reference"][-1] < actual["reference"][0]
    for kernels, ours in actual.items():
        np.testing.assert_allclose(ours, actual["reference"], rtol=1e-5, err_msg=kernels)


@pytest.mark.parametrize("name", one_is_fast(LAYERS, "GRU"))
def test_passes_keep_the_gradients(name: str) -> None:
    """Includes the gradient of the embedding, whose products the passes move before the lookup."""
    compiled = compiler({"name": "memory", "units": 6, "return_sequences": True, **LAYERS[name]})
    random = np.random.default_rng(3)
    feeds: dict[str, Any] = {name: random.integers(0, VOCABULARY, (BATCH, STEPS)) for name in ("text", "next")}
    feeds = {key: array.astype(np.int32) for key, array in feeds.items()}
    program = compiled.program(ProgramKind.GRADIENTS, BATCH)
    actual = program(feeds)
    states = {name: compiled.states[name] for name in compiled.names("parameter")}
    expected, _ = run(compiled.graph(ProgramKind.GRADIENTS, BATCH), feeds, states)
    assert actual.keys() == expected.keys()
    for key, array in expected.items():
        assert np.any(array)
        np.testing.assert_allclose(actual[key], array, rtol=1e-4, atol=1e-5 * float(np.abs(array).max()), err_msg=key)


def test_forward_is_computed_once_and_steps_are_not_unrolled() -> None:
    two = [{"name": f"memory{i}", "type": "LSTM", "units": 6, "return_sequences": True} for i in range(2)]
    names = [node.op.name for node in compiler(*two).plan(ProgramKind.TRAIN, BATCH).choices]
    assert names.count("Recurrence") == names.count("RecurrenceGrad") == 2
    assert "LSTM" not in names
    # forward; dW, dU and dx of each LSTM; gradients of the dense layer
    assert sum("MatMul" in name for name in names) == 3 + 2 * 3 + 2


def test_inference_keeps_nothing_for_gradients() -> None:
    plan = compiler({"name": "memory", "type": "LSTM", "units": 6, "return_sequences": True}).plan(
        ProgramKind.PREDICT, BATCH
    )
    (node,) = (node for node in plan.choices if node.op.name == "Recurrence")
    assert [value in plan.memory.storage for value in node.outputs] == [True] + [False] * (len(node.outputs) - 1)
