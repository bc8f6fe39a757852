"""Going on from a checkpoint of workers who kept something else than those who go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.compile import Compiler
from netspec.exchange.hdf5 import read_checkpoint, write_checkpoint
from netspec.parallel import Communicator
from netspec.parallel.strategies.base import Strategy
from netspec.schema.load import load_train
from netspec.train.crew import Crew
from netspec.train.other_workers import as_of_these
from netspec.train.progress import Progress
from netspec.train.resume import take_over
from netspec.train.trainer import open_training_loader, trainer
from tests.parallel.group import together

Make = Callable[..., dict[str, Any]]


def begun(given: dict[str, Any], way: str, size: int, path: Path | None) -> list[tuple[Compiler, list[str]]]:
    """Each worker as it begins, from that checkpoint, and what it was warned of."""
    known = load_train(given | {"parallel": {"strategy": way}})
    assert isinstance(known.parallel, Strategy)
    strategy = known.parallel

    def begin(everyone: Communicator) -> tuple[Compiler, list[str]]:
        crew = Crew(everyone, strategy)
        compiler = trainer(known, "reference", crew)
        crew.wholes(compiler)
        with open_training_loader(known, compiler, crew) as loader:
            found = take_over(path, known, compiler, loader, crew) if path and crew.is_first else None
            crew.align(compiler, loader, Progress(), *((found.own, found.wholes) if found else ()))
        return compiler, found.warnings if found else []

    return together(size, begin)


@pytest.mark.parametrize(("strategy", "workers"), [("all_reduce", 2), ("local_sgd", 2), ("elastic_averaging", 1)])
def test_workers_without_centers_go_on_from_the_center(spec: Make, tmp_path: Path, strategy: str, workers: int) -> None:
    """What a checkpoint is evaluated by is what the run begins with; of what all have in common there is the mean."""
    given, path = spec() | {"solver": {"type": "Adam", "ema": {"decay": 0.9}}}, tmp_path / "center.h5"
    first = begun(given, "elastic_averaging", 2, None)[0][0]
    random = np.random.default_rng(1)
    states = {name: random.normal(size=first.states[name].shape).astype(np.float32) for name in first.info}
    own = {
        name: random.normal(size=one.shape).astype(np.float32) for name, one in states.items() if "center/" not in name
    }
    roles = {name: info.role for name, info in first.info.items()}
    told = "parallel: {strategy: elastic_averaging}"
    write_checkpoint(path, states, roles, {"step": 3}, told, first.evaluated, [own])
    found = begun(given, strategy, workers, path)
    centers = {name: states[label] for name, label in first.evaluated.items()}
    assert len(centers) == 8
    for compiler, _ in found:
        averages = {label: name for name, label in compiler.evaluated.items()}
        assert len(averages) == 6
        for name in compiler.info:
            mean = (states[name] + own[name]) / 2
            np.testing.assert_array_equal(compiler.states[name], centers.get(averages.get(name, name), mean), name)
    now = strategy if workers == 2 else "one worker"
    assert found[0][1] == [f"{now} has no centers, and goes on from those of elastic_averaging"]


def test_it_is_told_who_has_no_use_for_what_whom_had_kept(spec: Make, tmp_path: Path) -> None:
    whole = netspec.train(spec(max_steps=5), run_dir=tmp_path / "whole")
    found = read_checkpoint(max((whole.run_dir / "checkpoints").iterdir()))
    kept = {"residual/fc1/kernel": np.ones((6, 16), np.float32)}
    other = replace(
        found, states={**found.states, **kept}, roles={**found.roles, "residual/fc1/kernel": "residual"},
        spec="parallel: {strategy: top_k}", own=(kept,),
    )  # fmt: skip
    known = load_train(spec() | {"parallel": {"strategy": "all_reduce"}})
    strategy = known.parallel
    assert isinstance(strategy, Strategy)

    def taken(everyone: Communicator) -> tuple[set[str], set[str], list[str]]:
        crew = Crew(everyone, strategy)
        left, told = as_of_these(other, trainer(known, "reference", crew), crew)
        return set(left.states), set(left.own[0]), told

    for size, now in ((1, "one worker"), (2, "all_reduce")):
        told = [f"{now} has no use for what top_k had kept: residual/fc1/kernel"]
        assert together(size, taken) == [(set(found.states), set(), told)] * size
