"""Bytes of steps in parts: those of the first worker, who may have fewer sums to tell than the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from netspec.cli.sending import Imagined
from netspec.parallel.strategies.base import Strategy
from netspec.schema.load import load_train
from netspec.train.crew import Crew
from netspec.train.shards import branches_of
from netspec.train.stepper import moving
from netspec.train.trainer import trainer


@pytest.mark.parametrize(("workers", "branches"), [(2, [1, 1]), (3, [1, 2, 2])])
def test_a_step_in_parts_knows_its_bytes(
    spec: Callable[..., dict[str, Any]], workers: int, branches: list[int]
) -> None:
    assert [branches_of(rank, 8, workers) for rank in range(workers)] == branches
    given = load_train(spec() | {"parallel": {"strategy": "all_reduce", "deterministic": True}})
    assert isinstance(given.parallel, Strategy)
    crew = Crew(Imagined(workers, workers), given.parallel)
    compiler = trainer(given, "reference", crew)
    crew.expect(compiler, 4, 1, range(10))
    sums = [*compiler.names("gradient"), *moving(compiler)]
    branch = 2 * 8 + sum(compiler.states[name].nbytes for name in sums)  # the loss, and how many samples
    assert crew.sent_facts() == {"bytes_per_step": {"expected": (workers - 1) * branch}}
