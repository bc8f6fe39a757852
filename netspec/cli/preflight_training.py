"""What can be known of a training without its data: that the update can be made, and which inputs are fed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from netspec.backends.device import open_device
from netspec.cli.specs import precision_of
from netspec.compile import Compiler, Purpose
from netspec.data.base import Source
from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.schema.data import SplitFields
from netspec.schema.net import NetSpec
from netspec.schema.paths import resolve_path
from netspec.schema.train import TrainSpec
from netspec.solvers.base import SolverSpec


def check_training(spec: TrainSpec) -> None:
    """Build the update, and see that the data feeds the net. Raises `InputError` with all that is wrong."""
    assert isinstance(spec.solver, SolverSpec)
    problems: list[Problem] = []
    for path, split in _splits(spec):
        problems += _unknown_inputs(spec.net, path, split)
    compiler: Compiler | None = None
    try:
        opened = open_device("null", spec.compile.autotune, spec.compile.rounding)
        computed = precision_of(spec).computed  # which device has its types of memory is another question
        compiler = Compiler(spec.net, solver=spec.solver, dtype=computed, device=opened, loop=spec.train)
    except InputError as error:
        problems += error.problems
    if compiler is not None and spec.init_from is not None and resolve_path(spec.init_from, "file").is_file():
        from netspec.train.transfer import planned

        try:
            planned(spec, compiler)
        except InputError as error:
            problems += error.problems
    if problems or compiler is None:
        raise InputError(problems)
    for path, split in _splits(spec):
        try:
            _check_feeds(compiler, path, split)
        except InputError as error:
            problems += [replace(problem, path=f"{path}.{problem.path}") for problem in error.problems]
    if problems:
        raise InputError(problems)


def _splits(spec: TrainSpec) -> Iterator[tuple[str, SplitFields]]:
    yield "data.train", spec.data.train
    if spec.data.test is not None:
        yield "data.test", spec.data.test


def _check_feeds(compiler: Compiler, path: str, split: SplitFields) -> None:
    assert isinstance(split, Source)
    if split.known_fields() is not None:  # the rest needs NumPy
        from netspec.cli.feeding import check_feeds

        check_feeds(compiler, split, Purpose.TEST if path == "data.test" else compiler.of_batch)


def _unknown_inputs(net: NetSpec, path: str, split: SplitFields) -> Iterator[Problem]:
    """The inputs that a split says it feeds must be inputs of the net."""
    for name in split.inputs:
        if name not in net.inputs:
            yield Problem(
                f"the net has no input `{name}`",
                split.where("inputs", name, key=True),
                f"{path}.inputs.{name}",
                expected=f"one of {listing(list(net.inputs))}",
                hint=did_you_mean(name, net.inputs),
            )
