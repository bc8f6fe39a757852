"""What can be known of a spec without its data: fields, names, shapes, gradients, the update, which inputs are fed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netspec.cli.expectations import check_net
from netspec.cli.options import TRAINING
from netspec.cli.specs import load_spec, net_of, precision_of
from netspec.compile import build
from netspec.errors import InputError, Problem, by_place
from netspec.graph.graph import Graph
from netspec.schema.net import NetSpec
from netspec.schema.train import TrainSpec


@dataclass(frozen=True)
class Cleared:
    """A spec in which nothing is wrong, and what it amounts to."""

    kind: str
    """`net` or `training`."""
    name: str
    layers: int
    parameters: int
    """Numbers that the layers have, trained or not; moving statistics do not count."""


@dataclass(frozen=True)
class Export:
    """A format that a net is to be written in, later."""

    format: str
    batch: int | None = None
    opset: int | None = None
    form: str | None = None


def preflight(
    file: str | Path,
    overrides: Sequence[str] = (),
    export: Export | None = None,
    note: Callable[[str], object] = lambda _: None,
) -> Cleared:
    """Check a net or train file. Raises `InputError` with all that is wrong, as far as it can be told at once.

    With `export` that includes all that the format has no words for; `note` is told what else an export would tell.
    """
    spec = load_spec(file, overrides)
    problems: dict[Problem, Problem] = {}  # once though several forms of the net have it, which notes may tell apart
    for check in _checks(spec, export, note):
        try:
            check()
        except InputError as error:
            for problem in error.problems:
                problems.setdefault(replace(problem, notes=()), problem)
    if problems:
        raise InputError(sorted(problems.values(), key=by_place))
    net = net_of(spec)
    states = build(net, 1, training=False, dtype=precision_of(spec), judged=False).builder.states.values()
    name = (spec.name if isinstance(spec, TrainSpec) else None) or net.name
    kind = "training" if isinstance(spec, TrainSpec) else "net"
    return Cleared(kind, name, len(net.layers), sum(one.value.type.size for one in states if one.role == "parameter"))


def _checks(
    spec: NetSpec | TrainSpec, export: Export | None, note: Callable[[str], object]
) -> Iterator[Callable[[], object]]:
    """What raises where the spec can't be right."""
    net, dtype = net_of(spec), precision_of(spec).computed
    yield lambda: build(net, 1, training=False, dtype=dtype)
    yield lambda: check_net(net, dtype)
    if isinstance(spec, TrainSpec):
        from netspec.cli.preflight_training import check_training  # a net needs neither passes nor solvers

        yield lambda: check_training(spec)
    elif net.losses:
        yield lambda: build(net, 1, training=True, dtype=dtype)
    if export is not None:
        wanted = export
        yield lambda: _check_export(spec, wanted, note)


def _check_export(spec: NetSpec | TrainSpec, export: Export, note: Callable[[str], object]) -> None:
    """Raise `InputError` with all that keeps the net from being written in the format; `note` is told the rest."""
    from netspec.exchange.formats import Exportable, ExportOptions, format_to_check

    net, dtype = net_of(spec), precision_of(spec).computed
    options = ExportOptions(export.batch, export.opset, export.form)

    def graph_for(size: int) -> Graph:
        if export.form == TRAINING:
            from netspec.compile import training_form

            return training_form(build(net, size, training=True, dtype=dtype))
        built = build(net, size, training=False, dtype=dtype, judged=False)
        return Graph(built.outputs, named=built.values)

    made = Exportable(net, {}, graph_for, spec if isinstance(spec, TrainSpec) else None)
    lost = format_to_check(export.format, options).checks(made, options)
    for told in lost.notes:
        note(told)
    if lost.problems:
        raise InputError(lost.problems)
