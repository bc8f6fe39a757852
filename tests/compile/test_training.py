"""Steps of several batches, and scaled losses: how programs update states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.compile import FIRST, LEARNING_RATE, SCALE, SHARE, SKIPPED, STEP, WEIGHT, Compiler, ProgramKind
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.types import DType
from netspec.graph.verify import verify
from netspec.schema.specs.train import LoopSpec
from netspec.solvers.base import SolverSpec
from tests.compile.nets import net, solver

NET = """\
netspec: 1
inputs: {x: {shape: [5]}, y: {shape: [2]}}
layers:
  - {name: hidden, type: Dense, from: x, units: 4, activation: tanh, kernel_regularizer: {type: L2, l2: 0.01}}
  - {name: drop, type: Dropout, rate: 0.25}
  - {name: out, type: Dense, units: 2}
losses: [{type: MeanSquaredError, from: [out, y]}]
"""
SOLVERS = {
    "momentum, decay, clipping": solver(momentum=0.9, weight_decay=0.01, global_clipnorm=0.1),
    "Adam, average": solver("Adam", ema=0.9, clipvalue=0.05),
    "AdamW, groups": solver("AdamW", groups=[{"match": "*/bias", "learning_rate": 0.3}]),
}


def compiled(folder: Path, rule: SolverSpec, dtype: DType = DType.FLOAT64, **loop: Any) -> Compiler:
    """Compile a net with a solver: in float32 with the default kernels, in float64 with the reference kernels."""
    loop_spec = LoopSpec.model_validate({"max_steps": 1, **loop})
    device = "cpu" if dtype == DType.FLOAT32 else "reference"
    return Compiler(net(NET, folder), solver=rule, dtype=dtype, device=device, loop=loop_spec)


def samples(count: int, step: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng([count, step])
    return {"x": random.normal(size=(count, 5)), "y": random.normal(size=(count, 2))}


def common(step: int) -> dict[str, np.ndarray]:
    rates = {LEARNING_RATE: np.array(0.1), f"{LEARNING_RATE}/1": np.array(0.3)}
    return {**rates, STEP: np.array(step + 1.0)}


def training_step(compiler: Compiler, data: dict[str, np.ndarray], step: int) -> float:
    program = compiler.program(ProgramKind.TRAIN, len(data["x"]))
    program({**data, **common(step), RNG_INPUT: np.array([7, step, 0])})
    return program.guard


def in_parts(compiler: Compiler, data: dict[str, np.ndarray], step: int, size: int) -> float:
    total, count = 0.0, len(data["x"])
    for start in range(0, count, size):
        part = {name: array[start : start + size] for name, array in data.items()}
        samples = len(part["x"])
        program = compiler.program(ProgramKind.ACCUMULATE, samples)
        weight = {WEIGHT: np.array(samples / size), FIRST: np.array(start == 0)}
        program({**part, **weight, RNG_INPUT: np.array([7, step, start])})
        total += program.guard * samples
    compiler.program(ProgramKind.UPDATE, 1)({**common(step), SHARE: np.array(size / count)})
    return total / count


def alike(compiler: Compiler, other: Compiler, rtol: float) -> None:
    for name, info in compiler.info.items():
        if info.role != "gradient" and name in other.info:
            np.testing.assert_allclose(compiler.states[name], other.states[name], rtol=rtol, atol=rtol, err_msg=name)


@pytest.mark.parametrize("rule", SOLVERS)
@pytest.mark.parametrize(("dtype", "rtol"), [(DType.FLOAT64, 1e-12), (DType.FLOAT32, 2e-5)])
@pytest.mark.slow
def test_accumulated_batches_match_one_large_batch(rule, dtype, rtol, tmp_path):
    """Ten steps, each of 11 samples at once, or in batches of 4, 4 and 3; dropout drops the same elements.

    Adam divides by roots of squares, which amplifies rounding errors of 6e-8 if gradients nearly cancel.
    """
    single, parts = compiled(tmp_path, SOLVERS[rule], dtype), compiled(tmp_path, SOLVERS[rule], dtype, accumulate=3)
    for step in range(10):
        data = samples(11, step)
        assert in_parts(parts, data, step, 4) == pytest.approx(training_step(single, data, step), rel=rtol)
    alike(single, parts, rtol)


def test_accumulation_graphs_are_valid_and_planned(tmp_path):
    compiler = compiled(tmp_path, SOLVERS["Adam, average"], accumulate=2)
    for purpose, size in ((ProgramKind.ACCUMULATE, 3), (ProgramKind.UPDATE, 1)):
        verify(compiler.graph(purpose, size))
        assert compiler.plan(purpose, size).memory.nbytes > 0
    assert not set(compiler.graph(ProgramKind.UPDATE, 1).inputs()) & {"x", "y", RNG_INPUT}
    trained = compiler.names("parameter")
    assert compiler.names("gradient") == [f"gradient/{name}" for name in trained]
    assert set(compiler.graph(ProgramKind.ACCUMULATE, 3).updates) == set(compiler.names("gradient"))


@pytest.mark.parametrize("scaling", [{"loss_scale": "dynamic"}, {"loss_scale": 1024.0}])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_power_of_two_loss_scale_is_bit_identical(scaling, accumulate, tmp_path):
    rule = SOLVERS["momentum, decay, clipping"]
    single = compiled(tmp_path, rule, DType.FLOAT32, accumulate=accumulate)
    scaled = compiled(tmp_path, rule, DType.FLOAT32, accumulate=accumulate, **scaling)
    for step in range(5):
        for compiler in (single, scaled):
            if accumulate == 1:
                training_step(compiler, samples(6, step), step)
            else:
                in_parts(compiler, samples(6, step), step, 3)
    for name in single.info:
        if single.info[name].role != "gradient":
            np.testing.assert_array_equal(single.states[name], scaled.states[name], err_msg=name)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_step_with_overflowing_gradients_is_skipped(device, tmp_path):
    scaling = {"initial": 2.0**126, "growth_steps": 3}
    loop_spec = LoopSpec.model_validate({"max_steps": 1, "loss_scale": scaling})
    compiler = Compiler(net(NET, tmp_path), solver=SOLVERS["Adam, average"], device=device, loop=loop_spec)
    plain = Compiler(net(NET, tmp_path), solver=SOLVERS["Adam, average"], device=device)
    before = {name: compiler.states[name] for name in compiler.info if not name.startswith("loss_scale/")}
    data = {name: 100.0 * array for name, array in samples(6, 0).items()}
    skipped = 0
    while True:  # the loss is in the thousands, and scaled by nearly the largest float
        training_step(compiler, data, skipped)
        if compiler.states[SKIPPED] == skipped:
            break
        skipped += 1
        assert compiler.states[SCALE] == 2.0 ** (126 - skipped)
        for name, array in before.items():
            np.testing.assert_array_equal(compiler.states[name], array, err_msg=name)
    assert 0 < skipped < 40
    data = data | {RNG_INPUT: np.array([7, skipped, 0])}
    plain.program(ProgramKind.TRAIN, 6)(
        {**data, **common(0)}
    )  # skipped steps do not count, so this is the solver's first step
    alike(plain, compiler, 0.0)
    for step in range(2):
        assert compiler.states["loss_scale/good_steps"] == 1 + step
        training_step(compiler, samples(6, step), skipped + 1 + step)
    assert compiler.states[SCALE] == 2.0 ** (127 - skipped), "doubled after three good steps"
    assert compiler.states["loss_scale/good_steps"] == 0

    compiler.states.assign("loss_scale/good_steps", 2.25)  # an average over workers, some of which skipped a step
    training_step(compiler, samples(6, 3), skipped + 3)
    assert compiler.states["loss_scale/good_steps"] == 0


BLAME, DECEIT = "{type: Value, name: blame, from: blame}", "{type: Value, name: deceit, from: deceit, weight: 3}"
PLAYERS = """\
netspec: 1
inputs: {x: {shape: [5]}, y: {shape: [2]}}
layers:
  - {name: maker, type: Dense, from: x, units: 2, kernel_regularizer: {type: L2, l2: 0.1}}
  - {name: judge, type: Dense, from: y, units: 1}
  - {name: verdict, type: Dense, from: maker, units: 1, share: judge}
  - {name: blame, type: Expression, from: [judge, verdict], expr: softplus(-x) + softplus(y)}
  - {name: deceit, type: Expression, from: verdict, expr: softplus(-x)}
"""
"""Two parts of a net with opposite aims, without losses."""


def after_a_step(folder: Path, losses: str, rule: SolverSpec, parts: int) -> dict[str, Any]:
    """Return the parameters after a step of one batch, or of several parts of it."""
    loop = LoopSpec.model_validate({"max_steps": 1, "accumulate": parts})
    spec = net(f"{PLAYERS}losses: [{losses}]\n", folder)
    compiler = Compiler(spec, solver=rule, dtype=DType.FLOAT64, device="reference", loop=loop, seed=3)
    if parts == 1:
        training_step(compiler, samples(6, 0), 0)
    else:
        in_parts(compiler, samples(6, 0), 0, 6 // parts)
    return {name: compiler.states[name] for name in compiler.names("parameter")}


@pytest.mark.parametrize("parts", [1, 2])
def test_groups_minimize_their_own_losses(tmp_path: Path, parts: int) -> None:
    """Each group is updated as in a net with only the group's losses, and its penalties."""
    groups = [{"match": "judge/*", "losses": "blame"}, {"match": "maker/*", "losses": ["deceit"]}]
    both = f"{BLAME}, {DECEIT}"
    together = after_a_step(tmp_path, both, solver(groups=groups), parts)
    summed = after_a_step(tmp_path, both, solver(), parts)
    for part, losses in (("judge", BLAME), ("maker", DECEIT)):
        alone = after_a_step(tmp_path, losses, solver(), parts)
        np.testing.assert_array_equal(together[f"{part}/kernel"], alone[f"{part}/kernel"])
        assert np.abs(together[f"{part}/kernel"] - summed[f"{part}/kernel"]).max() > 1e-3
