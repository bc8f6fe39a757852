"""Shards of parameters: their bounds, and that the updates of all shards equal the update of the full parameter."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from netspec.compile.build import build
from netspec.compile.training import Training
from netspec.distributed import Communicator
from netspec.distributed.partitioning.optimizer_sharding import (
    CUT_ALIGNMENT,
    ShardingConfig,
    assign_pieces,
    shard_parameters,
)
from netspec.distributed.partitioning.training_steps import ShardUpdateTraining, hypothetical_update
from netspec.graph.ops.all_reduce import AllReduce
from netspec.graph.types import DType, TensorType
from netspec.layers.states import ShardSpec
from netspec.schema.specs.kinds import SOLVERS
from netspec.schema.specs.train import LossScale
from tests.compile.nets import net, solver
from tests.distributed.group import together
from tests.interpret import Arrays, run
from tests.solvers.problem import samples

NET = """\
netspec: 1
inputs: {x: {shape: [8]}, y: {shape: [5]}}
layers:
  - {name: wide, type: Dense, units: 24, activation: tanh, learning_rate_multiplier: 2, weight_decay_multiplier: 0.5}
  - {name: normed, type: Dense, units: 16, activation: tanh, kernel_constraint: {type: MaxNorm, max_value: 0.5}}
  - {name: positive, type: Dense, units: 12, activation: tanh, kernel_constraint: {type: NonNeg}}
  - {name: logits, type: Dense, units: 5}
losses: [{type: MeanSquaredError, from: [logits, y]}]
"""
WORKERS = 3
HOW = [ShardingConfig(rank, [1.0] * WORKERS, 500, 2000) for rank in range(WORKERS)]
CHAINS = [(name, sample) for name, sample in samples(SOLVERS) if not SOLVERS[name].full_batch]  # type: ignore[attr-defined]  # a registry of specs
FURTHER: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9, "clipnorm": 0.1}),
    ("Adam", {"clipvalue": 0.1, "ema": {"decay": 0.5}}),
    ("Adam", {"global_clipnorm": 0.1}),
    ("SGD", {"momentum": 0.9, "groups": [{"match": "logits/*", "solver": {"type": "Adam", "global_clipnorm": 0.1}}]}),
]


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_pieces_assemble_to_the_full_tensor(axis: int | None) -> None:
    full = np.arange(4 * 6 * 5).reshape(4, 6, 5)
    cuts = (0, 3, 3, 120) if axis is None else (0, 1, 1, full.shape[axis])
    parts = [ShardSpec(full.shape, axis, cuts, rank) for rank in range(3)]
    assert [part.is_empty for part in parts] == [False, True, False]
    actual = [part.slice_of(full) for part in parts]
    assert [part.shape for part in actual] == [part.local_shape for part in parts]
    np.testing.assert_array_equal(parts[0].assemble(actual), full)
    all_of_it = ShardSpec(full.shape, axis, (0, cuts[-1]), 0)
    assert all_of_it.is_full
    assert all_of_it.slice_of(full).shape == all_of_it.local_shape == full.shape


@pytest.mark.parametrize("undivided", [(), ("b", "e"), ("a", "b", "c", "d", "e")], ids=str)
@pytest.mark.parametrize("shares", [(1, 1), (1, 1, 1, 1), (0, 2, 1)], ids=str)
def test_each_share_of_a_bucket_is_contiguous(shares, undivided) -> None:
    sizes = {"a": 1000, "b": 30, "c": 500, "d": 7, "e": 2000}
    kinds = {name: TensorType((size,), DType.FLOAT32) for name, size in sizes.items()}
    buckets, actual = assign_pieces(ShardingConfig(0, shares, 4 * 1500, 4 * 1500), kinds, undivided)
    assert buckets == (("e",), ("d", "c", "b", "a"))
    assert list(actual) == list(kinds)
    counts = np.zeros(len(shares))
    for name, piece in actual.items():
        assert (piece.bounds[0], piece.bounds[-1]) == (0, sizes[name])
        assert all(cut % CUT_ALIGNMENT == 0 or cut == sizes[name] for cut in piece.bounds)
        assert list(piece.bounds) == sorted(piece.bounds)
        own_counts = np.diff(piece.bounds)
        assert name not in undivided or np.count_nonzero(own_counts) == 1
        counts += own_counts
    for bucket in buckets:  # if a worker's part ends within a parameter, the next worker starts there
        owners = [rank for name in bucket for rank in np.flatnonzero(np.diff(actual[name].bounds))]
        assert owners == sorted(owners)
    assert not counts[np.array(shares) == 0].any()
    most = max([sizes[name] for name in undivided], default=0) / 2 + CUT_ALIGNMENT
    goals = sum(sizes.values()) * np.array(shares) / sum(shares)
    assert (
        np.abs(counts - goals).max() <= 2 * most + len(sizes) * CUT_ALIGNMENT
    )  # both ends of a part may be off by that much


@pytest.fixture
def spec(tmp_path):
    return net(NET, tmp_path)


@pytest.mark.parametrize(
    ("type_", "fields", "divided"),
    [
        ("Adam", {}, ["logits/kernel", "positive/kernel", "wide/bias", "wide/kernel"]),
        ("Adam", {"clipnorm": 1.0}, []),
        ("Adam", {"global_clipnorm": 1.0}, ["logits/kernel", "positive/kernel", "wide/bias", "wide/kernel"]),
        ("Muon", {"exclude": "logits/*"}, ["logits/kernel", "wide/bias"]),
        ("Lamb", {"exclude": "*/bias"}, ["wide/bias"]),
        ("Adafactor", {}, []),
    ],
    ids=str,
)
def test_parameters_needed_in_full_are_not_split(spec, type_, fields, divided) -> None:
    built = build(spec, 1, training=True, dtype=DType.FLOAT64)
    training = Training(spec, solver(type_, **fields), DType.FLOAT64)
    config = ShardingConfig(0, [1.0] * 300, 500, 2000)  # there is too little to split for that many workers
    actual = shard_parameters(config, *hypothetical_update(training, built)).pieces
    several = sorted(name for name, piece in actual.items() if sum(np.diff(piece.bounds) > 0) > 1)
    assert several == divided


def updated(result: Any, states: Mapping[str, Any], steps: int) -> Arrays:
    """Return the states after `steps` updates; their gradients are states, too."""
    now = dict(states)
    for step in range(steps):
        rates = {name: np.array(0.1) for name in result.graph.inputs()}
        _, now = run(result.graph, {**rates, "$step": np.array(step + 1.0)}, now)
    return now


def first(result: Any, label: str, wholes: Mapping[str, Any]) -> Any:
    """Return the initial value of a state: from the full array, from the state that initializes it, or its constant."""
    info = result.states[label]
    full = wholes.get(label if info.initialized_from is None else info.initialized_from)
    if full is None:
        return info.initial.sample(0, label, info.value.shape, "float64")
    return full if info.shard is None else info.shard.slice_of(full)


SCALED = [(*solver, LossScale(initial=4.0, growth_steps=2)) for solver in FURTHER]


@pytest.mark.parametrize(
    ("type_", "fields", "scaling"), [*((*solver, None) for solver in [*CHAINS, *FURTHER]), *SCALED], ids=str
)
@pytest.mark.slow
def test_updates_of_all_shards_equal_the_update_of_the_full_state(spec, monkeypatch, type_, fields, scaling) -> None:
    fields = {name: "logits/*" if name == "exclude" else value for name, value in fields.items()}
    training = Training(spec, solver(type_, **fields), DType.FLOAT64, scaling)
    built = build(spec, 1, training=True, dtype=DType.FLOAT64)
    random = np.random.default_rng(3)
    shapes = {name: info.value.shape for name, info in built.builder.states.items() if info.trainable}
    wholes = {label: random.normal(size=shapes[name]) for name in shapes for label in (name, f"gradient/{name}")}

    def states_after(workers: Communicator, config: ShardingConfig) -> tuple[Any, Arrays]:
        with one_at_a_time:
            sharding = shard_parameters(config, *hypothetical_update(training, built))
            result = ShardUpdateTraining.of(training, sharding=sharding).update(built)
        local_rank.workers = workers
        return result, updated(result, {label: first(result, label, wholes) for label in result.states}, 3)

    local_rank, one_at_a_time = threading.local(), threading.Lock()
    monkeypatch.setattr(AllReduce, "forward", lambda self, xp, x: sum(worker for worker in local_rank.workers._all(x)))
    ((alone, expected),) = together(1, lambda workers: states_after(workers, ShardingConfig(0, [1.0], 500, 2000)))
    actual = together(WORKERS, lambda workers: states_after(workers, HOW[workers.rank]))
    for label, array in expected.items():
        holders = [states[label] for _, states in actual if label in states]
        assert holders, label
        divided = alone.states[label].shard is not None
        wholes_found = (
            [np.concatenate([holder.reshape(-1) for holder in holders]).reshape(array.shape)] if divided else holders
        )
        for full_state in wholes_found:  # norms of all gradients are added up in another order
            rtol = 1e-13 if "global_clipnorm" in str(fields) else 0
            np.testing.assert_allclose(full_state, array, rtol=rtol, err_msg=label)
