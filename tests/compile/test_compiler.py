"""Compiled programs give the results of an interpreter in each step; which programs are kept, planned and folded."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from netspec.backends.program import NonFiniteLoss
from netspec.compile import KEPT_VARIANTS, LOSS, PASSES, Compiler, ProgramKind
from netspec.errors import InputError
from netspec.graph.types import DType
from netspec.graph.verify import verify
from netspec.passes.base import run_passes
from netspec.passes.memory import plan_memory
from netspec.schema.load import load_net
from tests.compile.nets import CLASSIFIER, batch, net, solver
from tests.interpret import run
from tests.passes.graphs import same_bits
from tests.passes.test_memory import check

LENET = Path(__file__).parents[2] / "model_zoo/lenet_mnist/net.yaml"
SOLVERS = {
    "sgd": solver(momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": solver("Adam", global_clipnorm=0.5),
    "adamw": solver("AdamW", weight_decay=0.1, clipvalue=0.01),
}


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64])
@pytest.mark.parametrize("name", SOLVERS)
def test_training_matches_the_interpreter_bit_for_bit(name: str, dtype: DType, tmp_path: Path) -> None:
    """Convolution, moving averages, pooling, dropout and penalties, with batches of two sizes in turn.

    Bitwise: both call the same reference code on arrays of the same layout; planning must not change a bit.
    """
    compiler = Compiler(net(CLASSIFIER, tmp_path), solver=SOLVERS[name], dtype=dtype, device="reference")
    states = dict(compiler.states)
    for step in range(4):
        size = 5 if step % 2 else 3
        data = batch(compiler, size, step)
        outputs, states = run(compiler.graph(ProgramKind.TRAIN, size), data, states)
        same_bits(compiler.program(ProgramKind.TRAIN, size)(data), outputs)
        same_bits(dict(compiler.states), states)
    for purpose in (ProgramKind.TEST, ProgramKind.PREDICT, ProgramKind.GRADIENTS):
        data = batch(compiler, 4, 9, purpose)
        outputs, after = run(compiler.graph(purpose, 4), data, states)
        actual = compiler.program(purpose, 4)(data)
        # Inference simplifies batch normalization to x · scale + shift, which rounds differently by a few ulps.
        tolerance = 2e-6 if dtype == DType.FLOAT32 else 1e-14
        for name, expected in outputs.items():
            np.testing.assert_allclose(actual[name], expected, rtol=tolerance, atol=tolerance)
        same_bits(dict(compiler.states), after)
        same_bits(after, states)


@pytest.mark.parametrize("purpose", ProgramKind)
def test_plans_are_valid(purpose: ProgramKind, tmp_path: Path) -> None:
    for spec in (net(CLASSIFIER, tmp_path), load_net(LENET)):
        compiler = Compiler(spec, solver=SOLVERS["adam"], device="null")
        verify(compiler.graph(purpose, 8))
        run_passes(compiler.graph(purpose, 8), PASSES, check=True)
        plan = compiler.plan(purpose, 8)
        check(plan)
        assert plan.memory.copies == (), "every update is written in place"


def test_constants_of_lenet_are_folded_and_stored_once() -> None:
    plan = Compiler(load_net(LENET), solver=SOLVERS["sgd"], device="null").plan(ProgramKind.TRAIN, 64)
    constants = {
        value for node in plan.order if node.op.traits.source and node.op.traits.pure for value in node.outputs
    }
    assert [node for node in plan.order if node.inputs and constants.issuperset(node.inputs)] == []
    assert len({value.op for value in constants}) == len(constants) <= 8


def test_peak_memory_of_lenet_is_a_few_activations() -> None:
    """Gradients are used soon after they are computed, unlike in the order of construction."""
    plan = Compiler(load_net(LENET), solver=SOLVERS["sgd"], device="null").plan(ProgramKind.TRAIN, 64)
    convolved, images = 64 * 20 * 24 * 24 * 4, 64 * 28 * 28 * 4
    assert convolved + images < plan.memory.lower_bound <= plan.memory.arena_bytes <= 1.15 * plan.memory.lower_bound
    constructed = plan_memory(plan.graph, plan.graph.nodes(), {})
    assert plan.memory.arena_bytes < 0.85 * constructed.arena_bytes


def test_non_finite_loss_names_the_layer_and_keeps_states(tmp_path: Path) -> None:
    compiler = Compiler(net(CLASSIFIER, tmp_path), solver=SOLVERS["adam"])
    compiler.program(ProgramKind.TRAIN, 3)(batch(compiler, 3))
    # tanh is 1, so dropout gives 0 or 2
    compiler.states.assign("hidden/bias", np.full(6, 1000.0))
    compiler.states.assign("logits/kernel", np.full((6, 3), 3e38))  # 2 · 3e38 is beyond float32
    before = dict(compiler.states)
    with pytest.raises(NonFiniteLoss) as caught:
        compiler.program(ProgramKind.TRAIN, 3)(batch(compiler, 3))
    node = caught.value.node
    assert node is not None
    assert (node.scope.layer, node.scope.kind) == ("logits", "Dense")
    assert node.scope.location is not None
    assert node.scope.location.line == 13
    same_bits(dict(compiler.states), before)


def test_programs_of_all_sizes_share_the_states(tmp_path: Path) -> None:
    compiler = Compiler(net(CLASSIFIER, tmp_path), solver=SOLVERS["sgd"])
    data = batch(compiler, 6, purpose=ProgramKind.PREDICT)
    before = compiler.program(ProgramKind.PREDICT, 6)(data)["logits"]
    compiler.program(ProgramKind.TRAIN, 3)(batch(compiler, 3))
    after = compiler.program(ProgramKind.PREDICT, 6)(data)["logits"]
    assert not np.array_equal(before, after)
    halves = [compiler.program(ProgramKind.PREDICT, 3)({"image": data["image"][i : i + 3]})["logits"] for i in (0, 3)]
    # BLAS may add up batches of other sizes in another order: a few ulps of values about 1.
    np.testing.assert_allclose(np.concatenate(halves), after, rtol=1e-5, atol=1e-6)


def test_evaluation_between_steps_uses_current_weights(tmp_path: Path) -> None:
    """Results of invariant nodes (packed weights, folded vectors) are updated after steps and assignments."""
    compiler = Compiler(net(CLASSIFIER, tmp_path), solver=SOLVERS["sgd"])
    data = batch(compiler, 4, purpose=ProgramKind.TEST)
    for step in range(3):
        for _ in range(2):
            compiler.program(ProgramKind.TRAIN, 3)(batch(compiler, 3, step))
        for _ in range(2):  # the second run reuses the results of invariant nodes
            actual = compiler.program(ProgramKind.TEST, 4)(data)
            expected, _ = run(compiler.graph(ProgramKind.TEST, 4), data, dict(compiler.states))
            for name, right in expected.items():
                np.testing.assert_allclose(actual[name], right, rtol=1e-5, atol=1e-5)
        for name in compiler.names("parameter"):
            compiler.states.assign(name, compiler.states[name] * np.float32(1.01))


def test_only_recent_programs_are_kept(tmp_path: Path) -> None:
    compiler = Compiler(net(CLASSIFIER, tmp_path))
    first = weakref.ref(compiler.program(ProgramKind.PREDICT, 1))
    for size in range(2, KEPT_VARIANTS + 1):
        compiler.program(ProgramKind.PREDICT, size)
    for size in range(1, KEPT_VARIANTS):  # programs in use stay, in the order of their use
        compiler.program(ProgramKind.PREDICT, size)
    program = compiler.program(ProgramKind.PREDICT, KEPT_VARIANTS)
    for size in range(50, 50 + KEPT_VARIANTS - 1):
        compiler.program(ProgramKind.PREDICT, size)
    gc.collect()
    assert first() is None
    assert compiler.program(ProgramKind.PREDICT, KEPT_VARIANTS) is program
    assert len(compiler._variants) == KEPT_VARIANTS


def test_initial_values_depend_only_on_the_seed(tmp_path: Path) -> None:
    spec = net(CLASSIFIER, tmp_path)
    first, repeated, other = (Compiler(spec, seed=seed, solver=solver()) for seed in (3, 3, 4))
    same_bits(dict(first.states), dict(repeated.states))
    assert not np.array_equal(first.states["conv/kernel"], other.states["conv/kernel"])
    first.program(ProgramKind.TRAIN, 3)(batch(first, 3))
    first.reset()
    same_bits(dict(first.states), dict(repeated.states))


def test_roles_of_states(tmp_path: Path) -> None:
    compiler = Compiler(net(CLASSIFIER, tmp_path), solver=solver("Adam"))
    assert compiler.names("statistic") == ["norm/moving_mean", "norm/moving_variance"]
    assert set(compiler.names("parameter")) == {
        f"{layer}/{name}" for layer in ("conv", "hidden", "logits") for name in ("kernel", "bias")
    } | {"norm/gamma", "norm/beta"}
    assert len(compiler.names("slot")) == 2 * len(compiler.names("parameter"))
    assert set(Compiler(net(CLASSIFIER, tmp_path)).info) == set(compiler.names("parameter", "statistic"))


def test_null_device_compiles_but_does_not_run(tmp_path: Path) -> None:
    compiler = Compiler(net(CLASSIFIER, tmp_path), solver=solver(), device="null")
    assert compiler.plan(ProgramKind.TRAIN, 1 << 20).memory.arena_bytes > 1 << 30
    with pytest.raises(InputError, match="only plans"):
        compiler.program(ProgramKind.TRAIN, 2)


STEPS = """
import hashlib
from pathlib import Path
from netspec.compile import Compiler, ProgramKind
from netspec.schema.load import load_net
from tests.compile.nets import batch, solver

compiler = Compiler(load_net(Path("model_zoo/lenet_mnist/net.yaml")), solver=solver(momentum=0.9))
for step in range(3):
    data = batch(compiler, 64, step)
    compiler.program(ProgramKind.TRAIN, 64)(data)
print(hashlib.sha256(b"".join(array.tobytes() for array in compiler.states.values())).hexdigest())
"""


@pytest.mark.slow
def test_processes_with_equal_threads_are_bit_identical() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "PYTHONHASHSEED": "random"}
    runs = [
        subprocess.run(
            [sys.executable, "-c", STEPS],
            cwd=LENET.parents[2],
            env=environment,
            text=True,
            capture_output=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].strip()) == 64


def test_the_guard_is_the_loss(tmp_path: Path) -> None:
    compiler = Compiler(net(CLASSIFIER, tmp_path), solver=solver())
    program = compiler.program(ProgramKind.TRAIN, 3)
    results = program(batch(compiler, 3))
    assert program.guard == float(results[LOSS])


def test_building_graphs_registers_no_states(tmp_path: Path) -> None:
    compiler = Compiler(net(CLASSIFIER, tmp_path), solver=SOLVERS["adam"], device="null")
    state_names = list(compiler.info)
    assert state_names == list(compiler.states)
    for purpose in (ProgramKind.TRAIN, ProgramKind.ACCUMULATE):  # ACCUMULATE has sums of gradients, TRAIN has not
        compiler.graph(purpose, 2)
    assert list(compiler.info) == state_names
