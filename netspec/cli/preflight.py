"""What can be known of a spec without its data: fields, names, shapes, gradients, the update, which inputs are fed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netspec.backends.device import open_device
from netspec.cli.expectations import check_net
from netspec.cli.specs import load_spec, net_of, precision_of
from netspec.compile import Compiler, Purpose, build
from netspec.data.base import Source
from netspec.errors import InputError, Problem, by_place, did_you_mean, listing
from netspec.schema.data import SplitFields
from netspec.schema.net import NetSpec
from netspec.schema.paths import resolve_path
from netspec.schema.train import TrainSpec
from netspec.solvers.base import SolverSpec


@dataclass(frozen=True)
class Cleared:
    """A spec in which nothing is wrong, and what it amounts to."""

    kind: str
    """`net` or `training`."""
    name: str
    layers: int
    parameters: int
    """Numbers that the layers have, trained or not; moving statistics do not count."""


def preflight(file: str | Path, overrides: Sequence[str] = ()) -> Cleared:
    """Check a net or train file. Raises `InputError` with all that is wrong, as far as it can be told at once."""
    spec = load_spec(file, overrides)
    problems: dict[Problem, None] = {}  # in order, and once though several forms of the net have it
    for check in _checks(spec):
        try:
            check()
        except InputError as error:
            problems.update(dict.fromkeys(error.problems))
    if problems:
        raise InputError(sorted(problems, key=by_place))
    net = net_of(spec)
    states = build(net, 1, training=False, dtype=precision_of(spec), judged=False).builder.states.values()
    name = (spec.name if isinstance(spec, TrainSpec) else None) or net.name
    kind = "training" if isinstance(spec, TrainSpec) else "net"
    return Cleared(kind, name, len(net.layers), sum(one.value.type.size for one in states if one.role == "parameter"))


def _checks(spec: NetSpec | TrainSpec) -> Iterator[Callable[[], object]]:
    """What raises where the spec can't be right."""
    net, dtype = net_of(spec), precision_of(spec)
    yield lambda: build(net, 1, training=False, dtype=dtype)
    yield lambda: check_net(net, dtype)
    if isinstance(spec, TrainSpec):
        yield lambda: _check_training(spec)
    elif net.losses:
        yield lambda: build(net, 1, training=True, dtype=dtype)


def _check_training(spec: TrainSpec) -> None:
    """The update can be built, and the data feeds the net."""
    assert isinstance(spec.solver, SolverSpec)
    problems: list[Problem] = []
    for path, split in _splits(spec):
        problems += _unknown_inputs(spec.net, path, split)
    compiler: Compiler | None = None
    try:
        opened = open_device("null", spec.compile.autotune, spec.compile.rounding)
        compiler = Compiler(spec.net, solver=spec.solver, dtype=precision_of(spec), device=opened)
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

        check_feeds(compiler, split, Purpose.TEST if path == "data.test" else Purpose.TRAIN)


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
