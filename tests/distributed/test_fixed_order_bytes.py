"""Bytes of deterministic steps: expected are those of the first worker, which may send fewer sums than others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from netspec.distributed.communication_plan import EpochBatches
from netspec.distributed.fixed_order_step import partial_sums_of
from netspec.distributed.session import WorkerSession
from netspec.distributed.strategies.base import Strategy
from netspec.schema.load import load_train
from netspec.tools.planning.worker_plan import SimulatedCommunicator
from netspec.training.compiler import training_compiler
from netspec.training.stepper import moving_averages
from tests.training.conftest import points, spec

__all__ = ["points", "spec"]


@pytest.mark.parametrize(("workers", "branches", "level"), [(2, [1, 1], 2), (3, [1, 2, 2], 1)])
def test_fixed_order_step_predicts_its_bytes(
    spec: Callable[..., dict[str, Any]], workers: int, branches: list[int], level: int
) -> None:
    assert [len(partial_sums_of(rank, 8, workers, 8)) for rank in range(workers)] == branches
    train_spec = load_train(spec() | {"parallel": {"strategy": "all_reduce", "deterministic": True}})
    assert isinstance(train_spec.parallel, Strategy)
    session = WorkerSession(SimulatedCommunicator(workers, workers), train_spec.parallel)
    compiler = training_compiler(train_spec, "reference", session)
    session.expect(compiler, EpochBatches([(16, 32)], [(16, 32)], 1), range(10))
    sums = [*compiler.names("gradient"), *moving_averages(compiler)]
    branch = 2 * 8 + sum(compiler.states[name].nbytes for name in sums)  # loss and number of samples
    head = [[f"{level}/0/{name}", str(compiler.states[name].dtype), list(compiler.states[name].shape)] for name in sums]
    head += [[f"{level}/0/{name}", "float64", []] for name in ("$loss", "$weight")]
    message = 8 + 8 + len(json.dumps(head)) + branch  # its length, and its header
    expected = round((workers - 1) * (message + 2 * 8 / workers))  # and the stop vote
    assert session.sent_facts() == {"bytes_per_step": {"expected": expected}}
