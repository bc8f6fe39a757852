"""Check a spec: fields, names, shapes, gradients, the update, paths and headers of its data, and an export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from netspec.compile import NetGraph, build
from netspec.errors import InputError, Problem, SpecError, by_location, did_you_mean, listing
from netspec.graph.graph import Graph, topological_order
from netspec.graph.types import DType
from netspec.schema.load import Overrides, Source, load_data
from netspec.schema.replaced_variables import replaced_variables
from netspec.schema.specs.expect import NetExpectation
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.stages import stage_specs
from netspec.schema.specs.train import TrainSpec
from netspec.tools.checking.check_data import DataSurvey, known_data, survey_data
from netspec.tools.checking.spec_warnings import spec_warnings
from netspec.tools.specs import load_spec, net_of, precision_of

if TYPE_CHECKING:
    from netspec.training.diagnostics.expectation_checks import ExpectationResult

TRAINING = "training"
"""The form of an exported net that other programs train further."""


@dataclass(frozen=True)
class CheckReport:
    """A spec without mistakes, in figures."""

    kind: str
    """`net` or `training`."""
    name: str
    layers: int
    parameters: int
    """Number of elements of all parameters, trained or not; moving statistics do not count."""
    notes: tuple[str, ...] = ()
    """Parts that an export to the requested format would leave out."""
    data: str = ""
    """The part of the data that was read, if not all: `the first 4,096 rows of train.csv`."""
    warnings: tuple[Problem, ...] = ()
    """Valid settings that are probably mistakes: probabilities for a loss of logits, pixels without scaling, …"""


@dataclass(frozen=True)
class _Export:
    """A format that a net is to be exported to."""

    format: str
    batch: int | None
    opset: int | None
    form: str | None


def check(
    source: Source,
    *,
    overrides: Overrides = (),
    export: str | None = None,
    batch_size: int | None = None,
    opset: int | None = None,
    form: str = "inference",
    data: bool = True,
    note: Callable[[str], object] | None = None,
) -> CheckReport:
    """Check a net or training file as far as possible without running it.

    Paths must exist, and the headers and first samples of the data must fit the net; `data=False` leaves both out. With
    `export`, the name of a format such as `"onnx"`, the check includes everything that the format cannot express;
    `batch_size`, `opset` and `form` are those of the export. `note` is called with each note on the spec or the export,
    also if the check fails.

    Raises `InputError` with all mistakes.

        >>> netspec.check("train.yaml").parameters
    """
    check_form(form)
    if export is None and (batch_size is not None or opset is not None or form == TRAINING):
        raise InputError("--batch-size, --opset and --form need --export", hint="add a format: `--export onnx`")
    settings = (
        _Export(export, batch_size, opset, TRAINING if form == TRAINING else None) if export is not None else None
    )
    spec = _load(source, overrides, with_data=data)
    survey = DataSurvey()
    if isinstance(spec, TrainSpec):
        survey = survey_data(spec.data, spec.init_from) if data else known_data(spec)
    notes: list[str] = []

    def keep(text: str) -> None:
        notes.append(text)
        if note is not None:
            note(text)

    for sentence in replaced_variables(spec) if isinstance(spec, TrainSpec) else ():
        keep(sentence)
    if problems := _collected(
        survey, [*_checks(spec, survey, settings, keep), *_search_checks(spec, source, overrides)]
    ):
        raise InputError(sorted(problems, key=by_location))
    net = net_of(spec)
    states = build(net, 1, training=False, dtype=precision_of(spec), with_losses=False).builder.states.values()
    name = (spec.name if isinstance(spec, TrainSpec) else None) or net.name
    kind = "training" if isinstance(spec, TrainSpec) else "net"
    parameters = sum(state.value.type.size for state in states if state.role == "parameter")
    return CheckReport(
        kind, name, len(net.layers), parameters, tuple(notes), survey.read, tuple(spec_warnings(spec, survey))
    )


def _load(source: Source, overrides: Overrides, *, with_data: bool) -> NetSpec | TrainSpec:
    """Return the spec in a file. Raises `SpecError` with its problems and, with `with_data`, those of the data."""
    try:
        return load_spec(source, overrides)
    except SpecError as error:
        try:
            loaded = load_data(source, overrides) if with_data else (None, None)
        except InputError:  # a file that is not YAML
            raise error from None
        in_data = survey_data(*loaded).problems
        raise SpecError(sorted((*error.problems, *in_data), key=by_location)) from None


def _collected(survey: DataSurvey, checks: Iterable[Callable[[], object]]) -> list[Problem]:
    """Return the problems of the data, and those that checks raise.

    A problem of several forms of the net is listed once, whatever its notes. So is one of several splits of the same
    source, whose fields have the same location.
    """
    problems: dict[Problem, Problem] = {}

    def add(found: Iterable[Problem]) -> None:
        for problem in found:
            path = "" if problem.location else problem.path
            problems.setdefault(replace(problem, notes=(), path=path), problem)

    add(survey.problems)
    for run in checks:
        try:
            run()
        except InputError as error:
            add(error.problems)
    return list(problems.values())


def check_expectations(
    source: Source, *, overrides: Overrides = (), device: str = "auto"
) -> Iterator[ExpectationResult]:
    """Run some steps of a training, and yield the results of checks, then of each expectation in its `expect`.

    One step is compared with the reference kernels and with the loss of an untrained net; parameters without a
    gradient are reported, and the time and memory of a step. A net file yields nothing. Raises `InputError` if the spec
    is wrong.

        >>> all(result.problem is None for result in netspec.check_expectations("train.yaml"))
    """
    spec = load_spec(source, overrides)
    if isinstance(spec, TrainSpec):
        from netspec.training.diagnostics.expectation_checks import (
            run_expectations,  # a check without it starts no training
        )
        from netspec.training.diagnostics.step_checks import check_step

        yield from check_step(spec, device)
        yield from run_expectations(spec, device)


def _checks(
    spec: NetSpec | TrainSpec, survey: DataSurvey, export: _Export | None, note: Callable[[str], object]
) -> Iterator[Callable[[], object]]:
    """Functions that raise `InputError` if the spec is wrong."""
    net, dtype = net_of(spec), precision_of(spec).compute_dtype
    yield lambda: build(net, 1, training=False, dtype=dtype)
    yield lambda: check_net(net, dtype)
    if isinstance(spec, TrainSpec):
        from netspec.tools.checking.check_training import check_training  # a net needs neither passes nor solvers

        for part in stage_specs(spec) or [spec]:
            yield partial(check_training, part, survey)
    elif net.losses:
        yield lambda: build(net, 1, training=True, dtype=dtype)
    if export is not None:
        settings = export
        yield lambda: _check_export(spec, settings, note)


def _search_checks(
    spec: NetSpec | TrainSpec, source: Source, overrides: Overrides
) -> Iterator[Callable[[], object]]:  # fmt: skip
    """Functions that raise `InputError` if the file cannot take a value to search."""
    if isinstance(spec, TrainSpec) and spec.search is not None:
        from netspec.tools.search import check_values  # it also trains

        yield partial(check_values, source, spec, overrides)


def _check_export(spec: NetSpec | TrainSpec, export: _Export, note: Callable[[str], object]) -> None:
    """Raise `InputError` with everything that the format cannot express; call `note` with what it leaves out."""
    from netspec.exchange.formats.registry import Exportable, ExportOptions, format_to_check

    net, dtype = net_of(spec), precision_of(spec).compute_dtype
    options = ExportOptions(export.batch, export.opset, export.form)

    def graph_for(size: int) -> Graph:
        if export.form == TRAINING:
            from netspec.compile import training_form

            return training_form(build(net, size, training=True, dtype=dtype))
        built = build(net, size, training=False, dtype=dtype, with_losses=False)
        return Graph(built.outputs, named=built.values)

    exportable = Exportable(net, {}, graph_for, spec if isinstance(spec, TrainSpec) else None)
    lost = format_to_check(export.format, options).checks(exportable, options)
    for message in lost.notes:
        note(message)
    if lost.problems:
        raise InputError(lost.problems)


def check_form(form: str) -> None:
    """Raise `InputError` unless an export has such a form."""
    if form not in ("inference", TRAINING):
        raise InputError("--form is unknown", expected="inference or training", got=repr(form))


def check_net(net: NetSpec, dtype: DType) -> None:
    """Compare a net with what it says under `expect`. Raises `InputError` with all that is otherwise."""
    if net.expect is None:
        return
    built = build(net, 1, training=False, dtype=dtype, with_losses=False)
    problems = list(_problems(net.expect, built))
    if problems:
        raise InputError(problems)


def _problems(expect: NetExpectation, built: NetGraph) -> Iterator[Problem]:
    for name, shape in expect.outputs.items():
        path = f"expect.outputs.{name}"
        if name not in built.values:
            value_names = list(built.values)
            yield Problem(f"`{name}` is not an output of a layer", expect.where("outputs", name, key=True), path,
                          expected=f"one of {listing(value_names)}", hint=did_you_mean(name, value_names))  # fmt: skip
        elif built.values[name].shape[1:] != shape:
            got = str(list(built.values[name].shape[1:]))
            location = expect.where("outputs", name)
            yield Problem(
                f"the output of `{name}` has the wrong shape", location, path, expected=str(list(shape)), got=got
            )
    states = [info.value.type.size for info in built.builder.states.values() if info.role == "parameter"]
    if expect.parameters is not None and sum(states) != expect.parameters:
        yield Problem("the net has the wrong number of parameters", expect.where("parameters"), "expect.parameters",
                      expected=f"{expect.parameters:,}", got=f"{sum(states):,}")  # fmt: skip
    flops = _flops(built)
    if expect.max_flops is not None and flops > expect.max_flops:
        yield Problem("the net needs too many operations per sample", expect.where("max_flops"), "expect.max_flops",
                      expected=f"at most {expect.max_flops:,.0f}", got=f"{flops:,}")  # fmt: skip


def _flops(built: NetGraph) -> int:
    """Operations that the outputs take, in the forward direction."""
    nodes = [node for node in topological_order(built.outputs.values()) if not node.op.traits.source]
    return sum(node.op.flops(*(value.type for value in node.inputs)) for node in nodes if not node.op.traits.view)
