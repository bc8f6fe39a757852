"""States of which each worker has a shard: initial values, gathering and scattering."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from netspec.distributed import Communicator
from netspec.distributed.sharded_states import ShardedStates
from netspec.graph.ops.source import State
from netspec.graph.types import DType, TensorType
from netspec.layers.states import ConstantInitial, ShardSpec, StateInfo
from tests.distributed.group import together
from tests.training.conftest import points, spec

__all__ = ["points", "spec"]

WORKERS = 3
WHOLES: dict[str, Any] = {
    "fc/kernel": np.arange(35.0, dtype=np.float32).reshape(5, 7),
    "fc/bias": np.arange(7.0, dtype=np.float32) + 100,
    "solver/fc/kernel/velocity": np.arange(35.0, dtype=np.float32).reshape(5, 7) + 200,
    "solver/fc/bias/velocity": np.arange(7.0, dtype=np.float32) + 300,
    "solver/$group-1/count": np.array(7, np.int64),
    "norm/moving_mean": np.arange(3.0, dtype=np.float64),
}
"""The complete states, of which each worker has a part."""
PIECES = {
    "fc/kernel": (1, (0, 2, 2, 7)),
    "solver/fc/kernel/velocity": (None, (0, 16, 32, 35)),
    "solver/fc/bias/velocity": (0, (0, 0, 0, 7)),
}
"""Axis and cuts of the states that are split; other states are whole on each worker that has them."""
HOLDERS = {"solver/$group-1/count": (1, 2), "norm/moving_mean": (2,)}


class Parts:
    """The states and shards of a worker, with the interface of a compiler."""

    def __init__(self, rank: int) -> None:
        self.info: dict[str, StateInfo] = {}
        self.states = States()
        for name, full in WHOLES.items():
            piece = ShardSpec(full.shape, *PIECES[name], rank) if name in PIECES else None
            if (piece is not None and piece.is_empty) or rank not in HOLDERS.get(name, (rank,)):
                continue
            self.add(name, full if piece is None else piece.slice_of(full), "slot", shard=piece)
        self.add("gathered/fc/kernel", np.zeros((5, 7), np.float32), "gathered", gathers="fc/kernel")

    def add(self, name: str, array: Any, role: str, **more: Any) -> None:
        kind = TensorType(array.shape, DType(str(array.dtype)))
        self.info[name] = StateInfo(State(name, kind)(), ConstantInitial(), role, **more)
        self.states.assign(name, array)


class States(dict[str, Any]):
    """Arrays by name."""

    def assign(self, name: str, array: Any) -> None:
        self[name] = np.array(array)


def test_full_tensors_are_gathered_and_scattered() -> None:
    def work(workers: Communicator) -> dict[str, Any]:
        parts: Any = Parts(workers.rank)
        before = dict(parts.states)
        states = ShardedStates(workers, parts)
        assert states.replicated == ["fc/bias", "gathered/fc/kernel"]
        actual = states.assemble()
        assert bool(actual) == workers.is_first
        states.gather_full()
        np.testing.assert_array_equal(parts.states["gathered/fc/kernel"], WHOLES["fc/kernel"])
        for name in states.sharded.keys() & parts.states.keys():
            parts.states.assign(name, np.zeros_like(parts.states[name]))
        states.scatter(actual)
        for name, array in before.items():
            if name != "gathered/fc/kernel":
                np.testing.assert_array_equal(parts.states[name], array, strict=True)
        return actual

    actual, *_ = together(WORKERS, work)
    assert actual.keys() == WHOLES.keys() - {"fc/bias"}
    for name, array in actual.items():
        np.testing.assert_array_equal(array, WHOLES[name], strict=True)


def test_single_worker_has_everything() -> None:
    parts: Any = SimpleNamespace(info={})
    states = ShardedStates(Communicator(), parts)
    assert (states.sharded, states.replicated, states.assemble()) == ({}, [], {})
