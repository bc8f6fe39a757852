"""Every solver in a full net: a step depends only on its states, and all kernels agree on its update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.backends import onednn
from netspec.compile import Compiler, ProgramKind
from netspec.exchange.formats.native.hdf5 import read_checkpoint, write_checkpoint
from netspec.graph.ops.linear import MatMul
from netspec.graph.types import DType
from netspec.schema.specs.kinds import SOLVERS
from tests.compile.nets import CLASSIFIER, batch, net, solver
from tests.solvers.problem import samples

BY_STEPS = [name for name in SOLVERS.names() if not getattr(SOLVERS[name], "full_batch", False)]
"""Solvers whose step is one program and one batch; the others have tests of their own."""
SAMPLES = [(name, fields) for name, fields in samples(SOLVERS) if name in BY_STEPS]
FIRST = dict(reversed(SAMPLES))
FIRST_IS_FAST = [
    pytest.param(name, fields, marks=() if FIRST[name] is fields else pytest.mark.slow) for name, fields in SAMPLES
]
"""The same as parameters: all but the first sample of each solver are slow."""
AVERAGED = [("SGD", {"ema": {"decay": 0.5, "warmup": True, "start_step": 1, "overwrite_every": 2}})]


PLAIN = """\
netspec: 1
inputs: {x: {shape: [2, 6, 6]}, y: {shape: [3]}}
layers:
  - {name: conv, type: Conv2D, filters: 4, kernel_size: 3, activation: tanh}
  - {name: flat, type: Flatten}
  - {name: hidden, type: Dense, units: 6, activation: tanh}
  - {name: logits, type: Dense, units: 3}
losses: [{type: MeanSquaredError, from: [logits, y]}]
"""
"""A net without gradients that are 0 except for rounding, such as that of a bias before a normalization."""


def compiler(
    folder: Path, type_: str, fields: dict[str, Any], device: str, dtype: DType = DType.FLOAT64, text: str = CLASSIFIER
) -> Compiler:
    """Compile a net with a solver; patterns in its fields match a layer of the net."""
    settings = {name: "logits/*" if name == "exclude" else value for name, value in fields.items()}
    return Compiler(net(text, folder), solver=solver(type_, **settings), dtype=dtype, device=device)


def train(solver_compiler: Compiler, steps: range) -> dict[str, bytes]:
    """Run these steps, and return all states."""
    for step in steps:
        solver_compiler.program(ProgramKind.TRAIN, 5)(batch(solver_compiler, 5, step))
    return {name: solver_compiler.states[name].tobytes() for name in solver_compiler.info}


@pytest.mark.parametrize(("type_", "fields"), [*FIRST_IS_FAST, *AVERAGED], ids=str)
def test_checkpoint_contains_all_states_of_a_step(type_, fields, tmp_path):
    trained = compiler(tmp_path, type_, fields, "reference")
    initial = dict(trained.states)
    train(trained, range(2))
    roles = {name: info.role for name, info in trained.info.items()}
    states = {name: trained.states[name] for name in roles}
    write_checkpoint(tmp_path / "made.h5", states, roles, {"step": 2}, "", evaluated=trained.evaluated)
    expected = train(trained, range(2, 4))
    for name, array in {**initial, **read_checkpoint(tmp_path / "made.h5").states}.items():
        trained.states.assign(name, array)
    assert train(trained, range(2, 4)) == expected


@pytest.mark.parametrize(("type_", "fields"), [*FIRST_IS_FAST, *AVERAGED], ids=str)
def test_fast_kernels_run_the_full_update(type_, fields, tmp_path):
    choices = compiler(tmp_path, type_, fields, "cpu", DType.FLOAT32).plan(ProgramKind.TRAIN, 5).choices
    update = {node: choice.kernel for node, choice in choices.items() if node.scope.phase == "update"}
    assert update
    # Only oneDNN has kernels for matrix products: without it, NumPy's BLAS computes them.
    without = (MatMul,) if onednn.unavailable_reason() else ()
    assert not [
        node for node, kernel in update.items() if kernel.uses_array_library and not isinstance(node.op, without)
    ]


OF_EVERY_KIND = ("Adafactor", "Muon", "RAdam", "ScheduleFreeAdamW")
"""Solvers with sums over rows and columns, matrix products, conditions and shared states; all others compute
elementwise only."""


@pytest.mark.parametrize(("type_", "fields"), [*((solver, {}) for solver in OF_EVERY_KIND), *AVERAGED], ids=str)
def test_fast_kernels_agree_with_the_reference(type_, fields, tmp_path):
    fast, plain = (compiler(tmp_path, type_, fields, device, DType.FLOAT32, PLAIN) for device in ("cpu", "reference"))
    for step in range(3):
        for compiled in (fast, plain):
            compiled.program(ProgramKind.TRAIN, 5)(batch(compiled, 5, step))
    for name in fast.info:
        # float32 rounding (6e-8) over three training steps, relative to the largest element.
        assert np.abs(fast.states[name] - plain.states[name]).max() <= 2e-5 * np.abs(plain.states[name]).max(), name


@pytest.mark.parametrize("type_", BY_STEPS)
def test_evaluation_uses_the_solvers_weights(type_, tmp_path):
    averaged = compiler(tmp_path, type_, {}, "reference")
    train(averaged, range(3))
    weights = averaged.weights()
    plain = Compiler(net(CLASSIFIER, tmp_path), dtype=DType.FLOAT64, device="reference")
    for name, array in weights.items():
        np.testing.assert_array_equal(array, averaged.states[averaged.evaluated.get(name, name)])
        plain.states.assign(name, array)
    feeds = batch(averaged, 4, purpose=ProgramKind.TEST)
    actual, expected = (compiler.program(ProgramKind.TEST, 4)(feeds) for compiler in (averaged, plain))
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value)
