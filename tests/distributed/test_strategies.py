"""Strategies: sums of compressed gradients are right, nothing is lost, nets learn, and resuming is exact."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from netspec.compile import LEARNING_RATE
from netspec.data.batches import Batch
from netspec.distributed import Communicator
from netspec.distributed.communicators.encodings import TopKEncoding, encoding
from netspec.distributed.session import WorkerSession
from netspec.distributed.strategies.all_reduce import AllReduce
from netspec.distributed.strategies.base import Strategy
from netspec.graph.ops.gradient_compression import OneBitQuantize, TopKSparsify
from netspec.schema.load import load_train
from netspec.schema.specs.kinds import STRATEGIES
from netspec.training.compiler import open_training_loader, training_compiler
from netspec.training.progress import Progress
from netspec.training.resume import StartingPoint
from netspec.training.stepper import PartialStep, Stepper
from tests.training.conftest import points, spec

__all__ = ["points", "spec"]

SHAPES = (1, 1), (7, 3), (3, 7), (4, 3, 2, 2)
WAYS: tuple[dict[str, Any], ...] = (
    {"strategy": "all_reduce", "reduce_in": "bfloat16"},
    {"strategy": "one_bit", "smallest": 1, "warm_up_steps": 30},
    {"strategy": "elastic_averaging"},
    {"strategy": "local_sgd", "every": 20},
    {"strategy": "all_reduce"},
    {"strategy": "all_reduce", "deterministic": True, "shards": 3},
    {"strategy": "sufficient_factors", "layers": "all"},
    {"strategy": "top_k", "density": 0.2, "smallest": 1, "warm_up_steps": 15},
)


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_sums_in_every_encoding(jobs, workers: int) -> None:
    job = jobs(workers, "sums.py")
    assert job.end() == 0, job.err
    assert job.out == "all agree\n"


@pytest.mark.slow
def test_hierarchical_sums_equal_flat_sums(jobs) -> None:
    """One host has more workers than the other."""
    job = jobs(5, "by_host.py")
    assert job.end() == 0, job.err
    assert job.out == "all agree\n"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_encodings_are_exact_on_representable_arrays(shape: tuple[int, ...], dtype: str) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype(dtype)
    for codec, split in (
        (encoding("one_bit"), OneBitQuantize()),
        (TopKEncoding(0.3), TopKSparsify(TopKEncoding(0.3).count(shape))),
    ):
        q, residual = split.forward(np, x)
        data = codec.encode(q)
        assert data.size == codec.nbytes(shape, x.itemsize)
        np.testing.assert_array_equal(codec.decode(data, shape, dtype), q, strict=True)
        np.testing.assert_array_equal(q + (x - q), q + residual)
    q, _ = OneBitQuantize().forward(np, x)
    flat = (x, q) if len(shape) == 2 else (x.reshape(shape[0], -1).T, q.reshape(shape[0], -1).T)
    for column, result in zip(flat[0].T, flat[1].T, strict=True):
        for part in (column >= 0, column < 0):
            np.testing.assert_allclose(result[part], column[part].mean() if part.any() else 0, rtol=1e-6)


def test_top_k_keeps_the_first_of_ties() -> None:
    x = np.array([[1.0, -3.0, 2.0], [3.0, -2.0, 0.0]])
    q, residual = TopKSparsify(3).forward(np, x)
    np.testing.assert_array_equal(q, [[0, -3, 2], [3, 0, 0]])
    np.testing.assert_array_equal(residual, [[1, 0, 0], [0, -2, 0]])
    q, _ = TopKSparsify(1).forward(np, np.array([[1.0, np.nan], [7.0, 3.0]]))
    np.testing.assert_array_equal(q, [[0, np.nan], [0, 0]])


@pytest.mark.parametrize("split", [OneBitQuantize(), TopKSparsify(5)], ids=str)
def test_nothing_is_lost(split: OneBitQuantize | TopKSparsify) -> None:
    """The sent values of all steps and the last residual add up to the sum of all gradients."""
    random = np.random.default_rng(1)
    residual, sent, full = np.zeros((9, 11)), np.zeros((9, 11)), np.zeros((9, 11))
    for _ in range(50):
        gradient = random.standard_normal((9, 11))
        q, residual = split.forward(np, gradient + residual)
        sent, full = sent + q, full + gradient
    np.testing.assert_allclose(
        sent + residual,
        full,
        atol=50 * 100 * 2.0**-53,
        # One addition per step, of values below 100.
    )


@pytest.mark.parametrize(("name", "epsilon", "special"), [("bfloat16", 2.0**-8, 3e38), ("float16", 2.0**-11, 60000.0)])
def test_16_bits_are_rounded_to_nearest(name: str, epsilon: float, special: float) -> None:
    x = np.array([0.0, -0.0, 1.0, 1 + epsilon, 1 + 3 * epsilon, -1 / 3, special, np.inf, np.nan], np.float32)
    form = encoding(name)
    actual = form.decode(form.encode(x), x.shape, "float32")
    np.testing.assert_array_equal(actual[2:5], np.array([1, 1, 1 + 4 * epsilon], np.float32))  # ties to even
    np.testing.assert_allclose(actual, x, rtol=epsilon)
    np.testing.assert_array_equal(np.signbit(actual[:2]), [False, True])


@pytest.mark.parametrize("cls", list(STRATEGIES), ids=lambda cls: cls.__name__)
def test_samples_are_read_and_written(cls: type[Strategy]) -> None:
    name = cls.model_fields["strategy"].default
    assert cls.__doc__
    assert any(word in cls.__doc__ for word in ("arXiv", "Interspeech")), "from which paper?"
    assert cls.samples
    for sample in cls.samples:
        loaded = STRATEGIES.parse({"strategy": name, **sample})
        assert isinstance(loaded, cls)
        assert STRATEGIES.parse(yaml.safe_load(yaml.safe_dump(loaded.model_dump(mode="json")))) == loaded
    pages = (Path(__file__).parents[2] / "docs" / "reference" / "strategies.md").read_text()
    assert f"\n## {name}\n" in pages


def test_a_density_is_a_share() -> None:
    for density in (0, 1.5):
        with pytest.raises(ValueError, match="density"):
            STRATEGIES.parse({"strategy": "top_k", "density": density})
    assert TopKEncoding(1e-300).count((50, 20)) == 1


@pytest.mark.parametrize(
    ("hosts", "auto", "forced"),
    [
        ([1, 1, 1], False, False),
        ([6], False, False),
        ([2, 2], False, True),  # the number of workers is a power of two
        ([3, 3], True, True),
        ([2, 2, 2], True, True),
        ([3, 2], False, True),
        ([3, 1], False, False),  # a host with one worker has nothing to reduce
    ],
)
def test_sums_are_hierarchical_if_hosts_have_several_workers(hosts: list[int], auto: bool, forced: bool) -> None:
    result = [
        STRATEGIES.parse({"strategy": "all_reduce", "hierarchical": setting}) for setting in ("auto", True, False)
    ]
    assert [strategy.is_hierarchical(hosts) for strategy in result if isinstance(strategy, AllReduce)] == [
        auto,
        forced,
        False,
    ]


BATCH_OF_8 = SimpleNamespace(data=SimpleNamespace(train=SimpleNamespace(batch_size=8)))


def test_hierarchical_sums_exclude_deterministic() -> None:
    result = STRATEGIES.parse({"strategy": "all_reduce", "hierarchical": True, "deterministic": True})
    (problem,) = result.conflicts(BATCH_OF_8)
    assert problem.path == "hierarchical"
    assert not list(STRATEGIES.parse({"strategy": "all_reduce", "deterministic": True}).conflicts(BATCH_OF_8))


def test_16_bits_are_not_deterministic() -> None:
    result = STRATEGIES.parse({"strategy": "all_reduce", "reduce_in": "float16", "deterministic": True})
    (problem,) = result.conflicts(BATCH_OF_8)
    assert problem.path == "reduce_in"
    assert not list(STRATEGIES.parse({"strategy": "all_reduce", "reduce_in": "float16"}).conflicts(BATCH_OF_8))


@pytest.mark.parametrize(
    ("workers", "strategies"),
    [
        pytest.param(2, WAYS[:1], id="2"),
        pytest.param(2, WAYS[1:], id="2 in other ways", marks=pytest.mark.exhaustive),
        pytest.param(3, WAYS[-1:], id="3", marks=pytest.mark.exhaustive),
    ],
)
def test_all_strategies_train_and_resume_exactly(
    jobs: Any,
    spec: Callable[..., dict[str, Any]],
    tmp_path: Path,
    workers: int,
    strategies: Sequence[dict[str, Any]],
) -> None:
    train_spec = spec()
    train_spec["solver"] = {"type": "Adam", "learning_rate": 0.01}
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(train_spec, sort_keys=False))
    job = jobs(workers, "train.py", str(path), *map(json.dumps, strategies))
    assert job.end() == 0, job.err
    for parallel, line in zip(strategies, job.out.splitlines(), strict=True):
        data = json.loads(line)
        uninterrupted, resumed = data["whole"], data["again"]
        assert uninterrupted["losses"][-1] < 0.5 * uninterrupted["losses"][0], parallel
        assert uninterrupted["test"] < uninterrupted["losses"][0], parallel
        assert resumed["states"] == uninterrupted["states"], parallel
        assert resumed["own"] == uninterrupted["own"], parallel
        expected = uninterrupted["start"]["expected"]  # exact, including stop votes and gaps between arrays
        assert uninterrupted["done"] == {"expected": expected, "measured": expected}, parallel
        residuals = [name for name in uninterrupted["names"] if name.startswith("residual/")]
        assert residuals == (["residual/fc1/kernel", "residual/logits/kernel"] if "smallest" in parallel else []), (
            parallel
        )
        centers = [name for name in uninterrupted["names"] if name.startswith("center/")]
        moving = (
            "fc1/bias fc1/kernel logits/bias logits/kernel norm/beta norm/gamma norm/moving_mean norm/moving_variance"
        )
        elastic = parallel["strategy"] == "elastic_averaging"
        assert centers == ([f"center/{name}" for name in moving.split()] if elastic else []), parallel
        assert len(set(uninterrupted["own"])) == (workers - 1 if residuals or elastic else 0), (
            parallel
            # Each worker has different states.
        )


@pytest.mark.parametrize("accumulate", [1, 2])
def test_worker_without_samples_idles_in_local_training(spec: Callable[..., dict[str, Any]], accumulate: int) -> None:
    train_spec = load_train(spec(accumulate=accumulate) | {"parallel": {"strategy": "local_sgd"}})
    assert isinstance(train_spec.parallel, Strategy)
    session = WorkerSession(Two(), train_spec.parallel)
    compiler = training_compiler(train_spec, "reference", session)
    before = {name: compiler.states[name] for name in compiler.names("parameter", "slot")}
    nothing = Batch(
        {"x": np.ones((1, 6), np.float32), "label": np.zeros(1, np.int32)}, np.zeros(0, np.int64), 0, 0, 0, 1
    )
    with open_training_loader(train_spec, compiler, session) as loader:
        part = PartialStep()
        actual = Stepper(train_spec, compiler, loader).run(
            nothing,
            0,
            {LEARNING_RATE: 1.0},
            part,
            # the last batch of an epoch may give a worker no samples
        )
    assert actual is not None
    assert (actual[0](), actual[1], part) == (0.0, 0, PartialStep())
    for name, array in before.items():
        np.testing.assert_array_equal(compiler.states[name], array)


class Two(Communicator):
    """Worker 0 of two simulated workers."""

    size = 2


def test_residuals_are_shared_by_another_worker_count(spec: Callable[..., dict[str, Any]]) -> None:
    """Each of two workers has half the sum of three workers' residuals, and the mean of other separate states."""
    train_spec = load_train(spec() | {"parallel": {"strategy": "one_bit", "smallest": 1}})
    strategy = train_spec.parallel
    assert isinstance(strategy, Strategy)
    session = WorkerSession(Two(), strategy)
    compiler = training_compiler(train_spec, "reference", session)
    values = {"residual/fc1/kernel": (1.0, 2.0, 6.0), "fc1/kernel": (1.0, 3.0, 5.0)}
    for name, (first, *_) in values.items():
        compiler.states.assign(name, np.full_like(compiler.states[name], first))
    worker_states = [
        {name: np.full_like(compiler.states[name], numbers[rank]) for name, numbers in values.items()}
        for rank in (1, 2)
    ]
    with open_training_loader(train_spec, compiler, session) as loader:
        session.align(compiler, loader, StartingPoint(Progress(), worker_states=worker_states))
    assert np.unique(compiler.states["residual/fc1/kernel"]) == [4.5]
    assert np.unique(compiler.states["fc1/kernel"]) == [3.0]
