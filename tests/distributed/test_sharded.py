"""`sharded_optimizer` on real workers gives the results of one worker; runs resume on any number of workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
import netspec.training.run  # registers the strategies that specs name
from netspec.compile import Compiler, ProgramKind
from netspec.distributed.partitioning.bucketing import BucketGradients
from netspec.distributed.partitioning.optimizer_sharding import ShardingConfig
from netspec.distributed.plans import ShardedOptimizerPlan
from netspec.exchange.formats.native.hdf5 import read_checkpoint
from netspec.graph.ops.all_reduce import CommunicationOp, StartAllReduce
from netspec.graph.ops.reduce_scatter import BucketAllGather, StartBucketReduceScatter
from netspec.schema.load import load_train
from netspec.solvers.base import SolverSpec
from tests.distributed.conftest import trainings
from tests.distributed.once import once
from tests.distributed.test_training import LATE, assert_close, folder, log, training, weights

pytestmark = pytest.mark.slow
THREE = pytest.param(3, marks=pytest.mark.exhaustive)
"""A job of three workers, which differs from the others only in the uneven shares."""

__all__ = ["folder"]
ROOT = Path(netspec.__file__).parents[1]

NET: dict[str, Any] = {
    "netspec": 1,
    "name": "wide",
    "inputs": {"x": {"shape": [6]}, "label": {"shape": [], "dtype": "int32"}},
    "layers": [
        {"name": "norm", "type": "BatchNormalization", "synchronized": True, "momentum": 0.9},
        {"name": "fc1", "type": "Dense", "units": 40, "activation": "tanh", "kernel_constraint": {"type": "MaxNorm"}},
        {"name": "drop", "type": "Dropout", "rate": 0.2},
        {"name": "fc2", "type": "Dense", "units": 30, "activation": "tanh", "learning_rate_multiplier": 0.5},
        {"name": "logits", "type": "Dense", "units": 3, "kernel_constraint": {"type": "NonNeg"}},
    ],
    "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
    "metrics": [{"type": "SparseCategoricalAccuracy", "name": "accuracy", "from": ["logits", "label"]}],
}
SMALL = {"strategy": "sharded_optimizer", "bucket": 2000, "first_bucket": 500}
GROUPS = [
    {"match": "*/bias", "weight_decay": 0},
    {"match": "logits/*", "solver": {"type": "SGD", "global_clipnorm": 1}},
]


def cases(folder: Path) -> dict[str, dict[str, Any]]:
    """Trainings by name."""
    decay = {"type": "CosineDecay", "initial": 0.01}
    adam = {"type": "Adam", "learning_rate": decay, "weight_decay": 1e-3}
    solvers: dict[str, dict[str, Any]] = {
        "adam": adam,
        "grouped": {**adam, "global_clipnorm": 0.5, "ema": {"decay": 0.8}, "groups": GROUPS},
        "lamb": {"type": "Lamb", "learning_rate": decay, "beta_1": {"type": "CyclicLR", "initial": 0.9, "peak": 0.8}},
        "free": {"type": "ScheduleFreeAdamW", "learning_rate": 0.01},
    }
    result = {name: training(folder, NET, solver=solver, parallel=SMALL) for name, solver in solvers.items()}
    result["plain"] = training(folder, NET, solver=adam, parallel={"strategy": "sharded_optimizer"})
    loop = {"accumulate": 3, "loss_scale": "dynamic", "precision": "float32"}
    result["several"] = training(folder, NET, solver={**adam, "global_clipnorm": 0.5}, parallel=SMALL, train=loop)
    return result


NAMES = ("adam", "grouped", "lamb", "free", "plain", "several")
RESUMED = ("grouped", "several")


@pytest.fixture(scope="module")
def alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the trainings on one worker."""

    def make(runs: Path) -> None:
        for name, spec in cases(folder).items():
            netspec.train(spec, run_dir=runs / name, device="reference")

    return once(tmp_path_factory, "unsharded", make)[0]


@pytest.fixture(scope="module")
def trained(folder: Path, alone: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that runs all trainings on N workers in one job, once, and returns their folder.

    Some are resumed from runs of two workers; on two workers, also by another strategy, and from a run of one worker.
    """
    specs = cases(folder)

    def run(workers: int, jobs: Any) -> Path:
        return once(tmp_path_factory, f"sharded_on_{workers}", lambda runs: make(workers, jobs, runs))[0]

    def make(workers: int, jobs: Any, runs: Path) -> None:
        of = runs if workers == 2 else run(2, jobs)
        listed: list[dict[str, Any]] = [{"spec": spec, "run_dir": str(runs / name)} for name, spec in specs.items()]
        listed += (
            {"spec": specs[name], "run_dir": str(runs / "again" / name), "resume": True, "of": str(of / name)}
            for name in RESUMED
        )
        if workers == 2:
            late = f"adam/checkpoints/step-{LATE:08}.h5"
            strategies = {"reduced": ({"strategy": "all_reduce"}, runs / late), "sharded": (SMALL, alone / late)}
            listed += (
                {"spec": {**specs["adam"], "parallel": parallel}, "run_dir": str(runs / name), "resume": str(path)}
                for name, (parallel, path) in strategies.items()
            )
        assert trainings(jobs, workers, listed, runs) == {}

    return run


@pytest.mark.parametrize("workers", [2, THREE])
@pytest.mark.parametrize("name", NAMES)
def test_workers_reach_the_result_of_one(name: str, workers: int, trained, alone, jobs) -> None:
    runs, exact = trained(workers, jobs), name != "several"
    # 40 steps in float64 or float32; rounding errors grow by a small factor per epoch.
    tolerance = 1e-10 if exact else 1e-3
    assert_close(weights(runs / name), weights(alone / name), tolerance)
    (last,), (expected_last,) = log(runs / name, "done"), log(alone / name, "done")
    assert last["test"]["metrics"] == expected_last["test"]["metrics"]
    assert last["test"]["loss"] == pytest.approx(expected_last["test"]["loss"], rel=tolerance)
    actual, expected = (read_checkpoint(folder / name / "checkpoints" / "step-00000040.h5") for folder in (runs, alone))
    assert (actual.roles, actual.evaluated) == (expected.roles, expected.evaluated)
    assert_close(actual.states, expected.states, tolerance)
    assert last["bytes_per_step"]["expected"] == last["bytes_per_step"]["measured"]


@pytest.mark.parametrize("now", [2, THREE])
@pytest.mark.parametrize("name", RESUMED)
def test_resume_on_any_worker_count(name: str, now: int, trained, alone, jobs) -> None:
    resumed = trained(now, jobs) / "again" / name
    assert [line["step"] for line in log(resumed, "log")][-2:] == [30, 40]
    if now == 2:
        for state, array in weights(trained(2, jobs) / name).items():
            assert np.array_equal(weights(resumed)[state], array), state
    assert_close(weights(resumed), weights(alone / name), 1e-10 if name == "grouped" else 1e-3)


@pytest.mark.parametrize("name", RESUMED)
def test_resume_on_one_worker(name: str, folder: Path, tmp_path: Path, trained, alone, jobs) -> None:
    checkpoint = trained(2, jobs) / name / "checkpoints" / f"step-{LATE:08}.h5"
    netspec.train(cases(folder)[name], run_dir=tmp_path / name, resume=checkpoint, device="reference")
    assert_close(weights(tmp_path / name), weights(alone / name), 1e-10 if name == "grouped" else 1e-3)


@pytest.mark.parametrize("name", ["reduced", "sharded"])
def test_other_strategies_resume_its_checkpoints_and_vice_versa(name: str, trained, alone, jobs) -> None:
    assert_close(weights(trained(2, jobs) / name), weights(alone / "adam"), 1e-10)


def test_all_workers_send_in_one_order_whatever_pieces_they_have() -> None:
    """On three workers, LeNet's second bucket has parameters of which some workers have no elements."""
    spec = load_train(ROOT / "model_zoo" / "lenet_mnist" / "train.yaml")
    assert isinstance(spec.solver, SolverSpec)
    sent = set()
    for rank in range(3):
        compiler = Compiler(
            spec.net, solver=spec.solver, device="null", loop=spec.train,
            distribution=ShardedOptimizerPlan(
                3, buckets=BucketGradients(1 << 18), config=ShardingConfig(rank, [1.0] * 3, 1 << 18, 1 << 22)
            ),
        )  # fmt: skip
        order = compiler.plan(ProgramKind.TRAIN, 21 + rank // 2).order
        calls = [node.op for node in order if isinstance(node.op, CommunicationOp)]
        kinds = StartAllReduce, StartBucketReduceScatter, BucketAllGather
        sent.add(tuple((type(op).__name__, op.contents) for op in calls if isinstance(op, kinds)))
    assert len(sent) == 1
    assert sum(name == "BucketAllGather" for name, _ in sent.pop()) == 2
