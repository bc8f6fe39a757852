"""Strategies that send more in their first steps, and velocities that each worker accumulates by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.compile import LEARNING_RATE, STEP, WEIGHT, ProgramKind
from netspec.distributed import Communicator
from netspec.distributed.communication_plan import EpochBatches
from netspec.distributed.session import WorkerSession
from netspec.distributed.strategies.base import Strategy
from netspec.distributed.strategies.one_bit import OneBit
from netspec.distributed.strategies.top_k import TopK
from netspec.errors import InputError
from netspec.graph.ops.gradient_compression import TopKSparsify
from netspec.schema.load import load_train
from netspec.training.compiler import training_compiler

NET = {
    "netspec": 1,
    "inputs": {"x": {"shape": [6]}, "y": {"shape": [4]}},
    "layers": [{"name": "fc", "type": "Dense", "units": 4}],
    "losses": [{"type": "MeanSquaredError", "from": ["fc", "y"]}],
}
ROWS, RATE = 5, 0.1
EPOCH = EpochBatches([(ROWS, 2 * ROWS)], [(ROWS, 2 * ROWS)], 1)


class Two(Communicator):
    """Worker 0 of two simulated workers."""

    size = 2


def training(**parallel: Any) -> dict[str, Any]:
    return {
        "netspec": 1, "net": NET,
        "data": {"train": {"source": "npz", "path": "unread.npz", "batch_size": ROWS}},
        "solver": {"type": "SGD", "learning_rate": RATE},
        "train": {"max_steps": 10, "precision": "float64"}, "parallel": parallel,
    }  # fmt: skip


def test_stages() -> None:
    assert OneBit(strategy="one_bit").stages == (0,)
    warm = OneBit(strategy="one_bit", warm_up_steps=7)
    assert [warm.stage(step) for step in (0, 6, 7, 100)] == [0, 0, None, None]
    assert (warm.comm_encoding((99, 99), 0).split, warm.comm_encoding((99, 99)).encoding) == (None, "one_bit")
    sparse = TopK(strategy="top_k", warm_up_steps=10, density=0.01)
    assert sparse.stages == (0, 3, 6, 10)
    actual = [sparse.comm_encoding((100, 100), sparse.stage(step)).encoding for step in (0, 3, 9, 10)]
    assert actual == ["top_k:0.25", "top_k:0.0625", "top_k:0.015625", "top_k:0.01"]
    assert TopK(strategy="top_k", warm_up_steps=10, density=0.5).stages == (0,)
    assert warm.remark([2]) == "one_bit: more data is sent in the first 7 steps, to warm up"


def test_expected_bytes_are_the_mean_over_stages() -> None:
    def expected(steps: range, **settings: Any) -> int:
        spec = load_train(training(strategy="one_bit", smallest=1, **settings))
        assert isinstance(spec.parallel, Strategy)
        session = WorkerSession(Two(), spec.parallel)
        session.expect(training_compiler(spec, "reference", session), EPOCH, steps)
        actual: int = session.sent_facts()["bytes_per_step"]["expected"]
        return actual

    plain, full = expected(range(10)), expected(range(10), warm_up_steps=10)
    # A float64 matrix, aligned to a cache line, instead of a bit per element and two values per column.
    assert 0 <= full - plain - (24 * 8 - (3 + 4 * 8)) < 2 * 64
    assert expected(range(10), warm_up_steps=4) == round(0.4 * full + 0.6 * plain)
    assert expected(range(2, 4), warm_up_steps=4) == full
    assert expected(range(4, 10), warm_up_steps=4) == plain
    assert expected(range(10, 10), warm_up_steps=4) == 0


def test_velocities_of_the_workers_equal_deep_gradient_compression() -> None:
    """Compares with Lin et al. 2018, algorithm 4, in NumPy."""
    spec = load_train(training(strategy="top_k", density=0.25, smallest=1, momentum=0.9))
    assert isinstance(spec.parallel, Strategy)
    compiler = training_compiler(spec, "reference", WorkerSession(Two(), spec.parallel))
    random = np.random.default_rng(0)
    data = {"x": random.standard_normal((ROWS, 6)), "y": random.standard_normal((ROWS, 4))}
    weights = {name: compiler.states[name] for name in compiler.names("parameter")}
    velocity = {name: np.zeros_like(weight) for name, weight in weights.items()}
    residual = {name: np.zeros_like(weight) for name, weight in weights.items()}
    for step in range(5):
        actual = compiler.program(ProgramKind.GRADIENTS, ROWS)(data)
        for name, weight in weights.items():
            sent = velocity[name] = 0.9 * velocity[name] + actual[f"gradient/{name}"]
            if name == "fc/kernel":
                sent, residual[name] = TopKSparsify(6).forward(np, velocity[name] + residual[name])
                velocity[name] = np.where(sent == 0, velocity[name], 0)
            weight -= RATE * sent
        numbers = {LEARNING_RATE: RATE, STEP: step + 1.0, WEIGHT: 1.0}
        compiler.program(ProgramKind.TRAIN, ROWS)(
            {**data, **{name: np.array(number) for name, number in numbers.items()}}
        )
        for name, array in weights.items():
            np.testing.assert_allclose(compiler.states[name], array, rtol=1e-12)
            np.testing.assert_allclose(compiler.states[f"residual/{name}/velocity"], velocity[name], atol=1e-14)
    np.testing.assert_allclose(compiler.states["residual/fc/kernel"], residual["fc/kernel"], atol=1e-14)
    # The residual of elements that were sent is the rounding to float32.
    assert (abs(residual["fc/kernel"]) > 1e-6).sum() == 18


def test_momentum_in_solver_and_workers_is_rejected() -> None:
    for solver, actual in (({"type": "SGD", "momentum": 0.9}, "SGD with momentum 0.9"), ({"type": "Adam"}, "Adam")):
        with pytest.raises(InputError, match="`momentum` cannot be set both here and in the solver") as caught:
            load_train(training(strategy="top_k", momentum=0.9) | {"solver": solver})
        assert [(problem.path, problem.got) for problem in caught.value.problems] == [("parallel.momentum", actual)]
