"""Continuing from a checkpoint of workers that had other states than those that continue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.compile import Compiler
from netspec.distributed import Communicator
from netspec.distributed.session import WorkerSession
from netspec.distributed.strategies.base import Strategy
from netspec.exchange.formats.native.hdf5 import read_checkpoint, write_checkpoint
from netspec.schema.load import load_train
from netspec.training.checkpoint_resharding import reshard_checkpoint
from netspec.training.compiler import open_training_loader, training_compiler
from netspec.training.progress import Progress
from netspec.training.resume import StartingPoint, start_from_checkpoint
from tests.distributed.group import together
from tests.training.conftest import points, spec

__all__ = ["points", "spec"]

Make = Callable[..., dict[str, Any]]


def start_workers(
    train_spec: dict[str, Any], name: str, size: int, path: Path | None
) -> list[tuple[Compiler, list[str]]]:
    """Return the compiler of each worker after loading the checkpoint, and the warnings."""
    training = load_train(train_spec | {"parallel": {"strategy": name}})
    assert isinstance(training.parallel, Strategy)
    strategy = training.parallel

    def begin(everyone: Communicator) -> tuple[Compiler, list[str]]:
        session = WorkerSession(everyone, strategy)
        compiler = training_compiler(training, "reference", session)
        session.sharded_states(compiler)
        with open_training_loader(training, compiler, session) as loader:
            start, warnings = StartingPoint(Progress()), list[str]()
            if path and session.is_root:
                checkpoint_start = start_from_checkpoint(path, training, compiler, loader, session)
                start, warnings = replace(checkpoint_start, progress=Progress()), checkpoint_start.warnings
            session.align(compiler, loader, start)
        return compiler, warnings

    return together(size, begin)


@pytest.mark.parametrize(("strategy", "workers"), [("all_reduce", 2), ("local_sgd", 2), ("elastic_averaging", 1)])
def test_workers_without_centers_resume_from_the_center(
    spec: Make, tmp_path: Path, strategy: str, workers: int
) -> None:
    """The run starts with the evaluated states of the checkpoint; states that are shared from now on are averaged."""
    train_spec, path = spec() | {"solver": {"type": "Adam", "ema": {"decay": 0.9}}}, tmp_path / "center.h5"
    first = start_workers(train_spec, "elastic_averaging", 2, None)[0][0]
    random = np.random.default_rng(1)
    states = {name: random.normal(size=first.states[name].shape).astype(np.float32) for name in first.info}
    own_states = {
        name: random.normal(size=state.shape).astype(np.float32)
        for name, state in states.items()
        if "center/" not in name
    }
    roles = {name: info.role for name, info in first.info.items()}
    parallel = "parallel: {strategy: elastic_averaging}"
    write_checkpoint(path, states, roles, {"step": 3}, parallel, evaluated=first.evaluated, worker_states=[own_states])
    starts = start_workers(train_spec, strategy, workers, path)
    centers = {name: states[label] for name, label in first.evaluated.items()}
    assert len(centers) == 8
    for compiler, _ in starts:
        averages = {label: name for name, label in compiler.evaluated.items()}
        assert len(averages) == 6
        for name in compiler.info:
            mean = (states[name] + own_states[name]) / 2
            np.testing.assert_array_equal(compiler.states[name], centers.get(averages.get(name, name), mean), name)
    now = strategy if workers == 2 else "one worker"
    assert starts[0][1] == [f"{now} has no centers and continues from those of elastic_averaging"]


def test_states_that_the_new_strategy_does_not_use_are_noted(spec: Make, tmp_path: Path) -> None:
    uninterrupted = netspec.train(spec(max_steps=5), run_dir=tmp_path / "whole")
    checkpoint = read_checkpoint(max((uninterrupted.run_dir / "checkpoints").iterdir()))
    residuals = {"residual/fc1/kernel": np.ones((6, 16), np.float32)}
    other = replace(
        checkpoint,
        states={**checkpoint.states, **residuals},
        roles={**checkpoint.roles, "residual/fc1/kernel": "residual"},
        spec="parallel: {strategy: top_k}",
        own=(residuals,),
    )
    training = load_train(spec() | {"parallel": {"strategy": "all_reduce"}})
    strategy = training.parallel
    assert isinstance(strategy, Strategy)

    def reshard(everyone: Communicator) -> tuple[set[str], set[str], list[str]]:
        session = WorkerSession(everyone, strategy)
        left, notes = reshard_checkpoint(other, training_compiler(training, "reference", session), session)
        return set(left.states), set(left.own[0]), notes

    for size, now in ((1, "one worker"), (2, "all_reduce")):
        notes = [f"{now} does not use these states of top_k: residual/fc1/kernel"]
        assert together(size, reshard) == [(set(checkpoint.states), set(), notes)] * size
