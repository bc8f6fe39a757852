"""Trainings of a few steps, which write no run directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from netspec.compile import Compiler
from netspec.data.loader import Loader
from netspec.errors import InputError, Problem
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.tools.specs import load_train
from netspec.training.class_weights import with_class_weights
from netspec.training.compiler import open_training_loader, training_compiler
from netspec.training.progress import Progress
from netspec.training.resume import StartingPoint
from netspec.training.run import set_first_values
from netspec.training.samples import with_samples


def load_short_training(
    source: Source, overrides: Overrides, samples: Mapping[str, Any] | None
) -> tuple[TrainSpec, SolverSpec]:
    """Load a training with its samples and class weights, and its solver.

    Raises `InputError` if the solver reads all samples in a step.
    """
    spec, _ = with_class_weights(with_samples(load_train(source, overrides), samples))
    solver = spec.solver
    assert isinstance(solver, SolverSpec)
    if solver.full_batch:
        message = f"{solver.type} reads all samples in each step"
        raise InputError(Problem(message, solver.where(), "solver", expected="a solver that reads batches"))
    return spec, solver


@contextmanager
def open_training(spec: TrainSpec, device: str, weights: str | Path | None) -> Iterator[tuple[Compiler, Loader]]:
    """Compile a training, open its data, and give the states their first values, or those of `weights`."""
    compiler = training_compiler(spec, device)
    with open_training_loader(spec, compiler) as loader:
        set_first_values(spec, compiler, loader, StartingPoint(Progress()), weights)
        yield compiler, loader
