"""Attention by cuDNN: when it is planned, what a step then stores, and that nets train with it in a CUDA graph."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache, cached_property
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from netspec.backends.backend import load_kernels
from netspec.backends.cuda import launch
from netspec.backends.cuda.cudnn.kernels.attention import AttentionForwardKernel
from netspec.backends.device_registry import open_device
from netspec.compile import Compiler, ProgramKind
from netspec.graph.execution_plan import ExecutionPlan, layout_signature
from netspec.graph.types import Precision
from netspec.schema.load import load_net
from netspec.solvers.sgd import SGD
from netspec.tools.verification.trainings import losses_of
from tests.backends.cuda import library
from tests.backends.cuda.cudnn import fake
from tests.backends.cuda.cudnn.fake import forget
from tests.backends.cuda.emulator import compiler as cxx
from tests.backends.cuda.fake import Machine, StreamEngine
from tests.backends.cuda.library import LibraryDevice

ROOT = Path(__file__).parents[4]
SOLVER = SGD.model_validate({"type": "SGD", "momentum": 0.9, "learning_rate": 0.1})
NET = """
netspec: 1
inputs: {text: {shape: [6], dtype: int32}, label: {shape: [6], dtype: int32}}
layers:
  - {name: symbols, type: Embedding, input_dim: 5, output_dim: 16, mask_zero: MASKED}
  - {name: seen, type: ATTENTION}
  - {name: logits, type: Dense, units: 5}
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
"""
HEADS = "MultiHeadAttention, num_heads: 2, key_dim: 8"
SHARED = "GroupQueryAttention, head_dim: 8, num_query_heads: 4, num_key_value_heads: 2"


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "cudnn", fake)
    forget()
    yield
    forget()


def compiled(path: Path, text: str, device: Any, precision: Precision) -> Compiler:
    (path / "net.yaml").write_text(text)
    return Compiler(load_net(path / "net.yaml"), solver=SOLVER, device=device, dtype=precision, seed=5)


def net(attention: str, *, masked: bool = False) -> str:
    return NET.replace("ATTENTION", attention).replace("MASKED", str(masked).lower())


def attentions(plan: ExecutionPlan) -> set[str]:
    """Return the kernels that compute attention."""
    return {choice.label for node, choice in plan.choices.items() if node.op.name.startswith("Attention")}


TRANSFORMER = load_net(ROOT / "benchmarks" / "nets" / "transformer.yaml")


@cache
def planned(precision: Precision, batch: int = 64, *, deterministic: bool = True) -> ExecutionPlan:
    device = open_device("h200", deterministic=deterministic)
    return Compiler(TRANSFORMER, solver=SOLVER, device=device, dtype=precision).plan(ProgramKind.TRAIN, batch)


@pytest.mark.parametrize("precision", [Precision.BFLOAT16, Precision.FLOAT16])
def test_16_bit_attention_is_one_op_without_scores(precision: Precision) -> None:
    plan = planned(precision)
    assert attentions(plan) == {"cudnn:AttentionForwardKernel", "cudnn:AttentionGradientKernel"}
    loose = planned(precision, deterministic=False)
    assert attentions(loose) == {"cudnn:AttentionForwardKernel", "cudnn:NondeterministicAttentionGradientKernel"}
    scores = (64, 8, 128, 128)
    assert scores not in {value.shape for value in plan.memory.storage}
    # At least one array of scores in 32 bits is saved in each of 4 layers.
    wide = planned(Precision.FLOAT32).memory
    assert scores in {value.shape for value in wide.storage}
    assert plan.memory.arena_bytes < wide.arena_bytes - 4 * 4 * prod(scores)


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.TF32])
def test_in_32_bits_it_stays_written_out(precision: Precision) -> None:
    assert attentions(planned(precision)) == set()


@pytest.mark.parametrize(
    ("attention", "formed"),
    [
        (HEADS, True),
        (f"{HEADS}, dropout: 0.1", False),
        (HEADS.replace("8", "12"), False),
        ("Attention, from: [symbols, symbols]", True),
    ],
    ids=["heads", "dropout", "head size 12", "without projections"],
)
def test_unsupported_attention_stays_decomposed(attention: str, formed: bool, tmp_path: Path) -> None:
    compiler = compiled(tmp_path, net(attention), open_device("h200"), Precision.BFLOAT16)
    assert bool(attentions(compiler.plan(ProgramKind.TRAIN, 4))) == formed
    assert bool(attentions(compiler.plan(ProgramKind.PREDICT, 4))) == (formed or "dropout" in attention)


def test_workspace_is_planned() -> None:
    """Workspace of the library; also space for gradients that are not read, and for the sums of the forward pass."""
    plan = planned(Precision.BFLOAT16, 2)
    spaces = plan.memory.workspace
    sizes = {choice.label: spaces[node].size for node, choice in plan.choices.items() if "Attention" in choice.label}
    aligning, tiles, sums, values = 256 - 64, 2 * 2 * 8 * 128 * 128, 4 * 2 * 8 * 128, 2 * 2 * 128 * 256
    assert sizes == {
        "cudnn:AttentionForwardKernel": sums,
        "cudnn:AttentionGradientKernel": aligning + tiles + sums + values,
    }


class Gpu(LibraryDevice):
    """A GPU with cuDNN, or its stand-in."""

    backends: ClassVar[tuple[str, ...]] = ("reference", "cuda", "cudnn")

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """The kernels of both libraries."""
        load_kernels(*self.backends)
        return self.backends


@pytest.fixture(scope="module")
def engine() -> StreamEngine:
    """Share compiled kernels between all tests."""
    return StreamEngine(Machine())


@pytest.mark.slow
@pytest.mark.skipif(cxx() is None, reason="no C++ compiler to run CUDA C++ with")
@pytest.mark.parametrize(
    ("attention", "masked", "precision"),
    [
        (f"{HEADS}, use_causal_mask: true", True, Precision.BFLOAT16),  # some queries see no key
        (f"{SHARED}, sliding_window: 3", False, Precision.BFLOAT16),
        (SHARED, True, Precision.FLOAT16),
    ],
    ids=["causal and masked", "shared, in a window", "shared, masked"],
)
def test_nets_learn_the_same_in_a_graph(
    attention: str, masked: bool, precision: Precision, engine: StreamEngine, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    text = net(attention, masked=masked)
    expected = compiled(tmp_path, text, open_device("reference"), Precision.FLOAT32)
    right = losses_of(expected.program(ProgramKind.TRAIN, 3), 4, 0.1, classes=5)
    machine = engine.machine = library.machine = Machine()
    monkeypatch.setitem(sys.modules, "cupy", machine.cupy())
    monkeypatch.setattr(launch, "engine", engine)
    compiler = compiled(tmp_path, text, Gpu(), precision)
    program = compiler.program(ProgramKind.TRAIN, 3)
    assert attentions(program.plan) == {"cudnn:AttentionForwardKernel", "cudnn:AttentionGradientKernel"}
    assert compiler.device.notes(program.plan) == ["one CUDA graph"]
    # Rounding stored values to 8 bits (float16: 11) changes losses and weights by about a unit in the last place.
    np.testing.assert_allclose(losses_of(program, 4, 0.1, classes=5), right, rtol=2**-7)
    assert machine.recorded
    for name, weight in expected.weights().items():
        np.testing.assert_allclose(compiler.weights()[name], weight, atol=2**-7, err_msg=name)


def test_plans_race(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(Precision.BFLOAT16, 2)
    node = next(node for node, choice in plan.choices.items() if isinstance(choice.kernel, AttentionForwardKernel))
    machine = Machine()
    monkeypatch.setitem(sys.modules, "cupy", machine.cupy())
    monkeypatch.setattr(launch, "engine", StreamEngine(machine))
    actual = [
        tuning_variant.label
        for tuning_variant in plan.choices[node].kernel.tuning_variants(node, layout_signature(node, plan.layouts))
    ]
    assert actual == [f"cudnn:AttentionForwardKernel by {name}" for name in ("eng1", "eng2_k2=5", "eng3")]
