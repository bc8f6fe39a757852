"""Check a spec: fields, names, shapes, gradients, the update, paths and headers of its data, and an export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from netspec.compile import NetGraph, build
from netspec.errors import InputError, Problem, SpecError, by_location, did_you_mean, listing
from netspec.graph.graph import Graph, topological_order
from netspec.graph.types import DType
from netspec.schema.load import Overrides, Source, load_data
from netspec.schema.specs.expect import NetExpectation
from netspec.schema.specs.net import NetSpec
from netspec.tools.checking.net_warnings import net_warnings
from netspec.tools.specs import load_spec, net_of, precision_of

if TYPE_CHECKING:
    from netspec.schema.specs.train import TrainSpec
    from netspec.training.diagnostics.expectation_checks import ExpectationResult

TRAINING = "training"
"""The form of an exported net that other programs train further."""


@dataclass(frozen=True)
class CheckReport:
    """A spec without mistakes: its size, notes and warnings."""

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
class _OwnChecks:
    """The checks of one kind of file, in addition to those of its net."""

    checks: Sequence[Callable[[], object]]
    """Functions that raise `InputError` if the spec is wrong."""
    warnings: Callable[[], list[Problem]]
    """Returns the warnings, if nothing is wrong."""
    problems: Sequence[Problem] = ()
    """Problems of the data."""
    read: str = ""
    """As in `CheckReport.data`."""


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
    notes: list[str] = []

    def keep(text: str) -> None:
        notes.append(text)
        if note is not None:
            note(text)

    is_net = isinstance(spec, NetSpec)
    own = _net_checks(spec) if isinstance(spec, NetSpec) else _training_checks(spec, source, overrides, data, keep)
    if problems := _collected(own.problems, [*_checks(spec), *own.checks, *_export_checks(spec, settings, keep)]):
        raise InputError(sorted(problems, key=by_location))
    net = net_of(spec)
    states = build(net, 1, training=False, dtype=precision_of(spec), with_losses=False).builder.states.values()
    parameters = sum(state.value.type.size for state in states if state.role == "parameter")
    return CheckReport(
        "net" if is_net else "training", spec.name or net.name, len(net.layers), parameters, tuple(notes), own.read,
        tuple(own.warnings()),
    )  # fmt: skip


def _load(source: Source, overrides: Overrides, *, with_data: bool) -> NetSpec | TrainSpec:
    """Return the spec in a file. Raises `SpecError` with its problems and, with `with_data`, those of the data."""
    try:
        return load_spec(source, overrides)
    except SpecError as error:
        try:
            loaded = load_data(source, overrides) if with_data else (None, None)
        except InputError:  # a file that is not YAML
            raise error from None
        from netspec.tools.checking.check_data import survey_data

        in_data = survey_data(*loaded).problems
        raise SpecError(sorted((*error.problems, *in_data), key=by_location)) from None


def _collected(found: Iterable[Problem], checks: Iterable[Callable[[], object]]) -> list[Problem]:
    """Return the problems `found` so far, and those that `checks` raise, each once.

    Problems that differ only in their notes, such as one per form of the net, count as one. So do problems with the
    same location, such as one per split of a source.
    """
    problems: dict[Problem, Problem] = {}

    def add(raised: Iterable[Problem]) -> None:
        for problem in raised:
            path = "" if problem.location else problem.path
            problems.setdefault(replace(problem, notes=(), path=path), problem)

    add(found)
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
    if not isinstance(spec, NetSpec):
        from netspec.training.diagnostics.expectation_checks import (
            run_expectations,  # loads training code, which a check without it does not need
        )
        from netspec.training.diagnostics.step_checks import check_step

        yield from check_step(spec, device)
        yield from run_expectations(spec, device)


def _checks(spec: NetSpec | TrainSpec) -> Iterator[Callable[[], object]]:
    """Functions that raise `InputError` if the net of a spec is wrong."""
    net, dtype = net_of(spec), precision_of(spec).compute_dtype
    yield lambda: build(net, 1, training=False, dtype=dtype)
    yield lambda: check_net(net, dtype)


def _net_checks(net: NetSpec) -> _OwnChecks:
    """Return the checks of a net file."""
    dtype = precision_of(net).compute_dtype
    losses = [partial(build, net, 1, training=True, dtype=dtype)] if net.losses else []
    return _OwnChecks(losses, lambda: net_warnings(net, dtype))


def _training_checks(
    spec: TrainSpec, source: Source, overrides: Overrides, with_data: bool, note: Callable[[str], object]
) -> _OwnChecks:  # fmt: skip
    """Return the checks of a training file; call `note` with each variable of the net that it replaces."""
    # a net file is checked without the modules of data, passes and solvers, which take time to load
    from netspec.schema.replaced_variables import replaced_variables
    from netspec.schema.specs.stages import stage_specs
    from netspec.tools.checking.check_data import known_data, survey_data
    from netspec.tools.checking.check_training import check_training
    from netspec.tools.checking.training_warnings import training_warnings

    survey = survey_data(spec.data, spec.init_from) if with_data else known_data(spec)
    for sentence in replaced_variables(spec):
        note(sentence)
    checks = [partial(check_training, part, survey) for part in stage_specs(spec) or [spec]]
    if spec.search is not None:
        from netspec.tools.search import check_values  # it also trains

        checks.append(partial(check_values, source, spec, overrides))
    return _OwnChecks(checks, lambda: training_warnings(spec, survey), survey.problems, survey.read)


def _export_checks(
    spec: NetSpec | TrainSpec, export: _Export | None, note: Callable[[str], object]
) -> Iterator[Callable[[], object]]:  # fmt: skip
    """Functions that raise `InputError` if the format cannot express the net."""
    if export is not None:
        yield partial(_check_export, spec, export, note)


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

    exportable = Exportable(net, {}, graph_for, None if isinstance(spec, NetSpec) else spec)
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
    """Compare a net with its `expect` block. Raises `InputError` with all differences."""
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
    """Return the FLOPs of the forward pass that computes the outputs."""
    nodes = [node for node in topological_order(built.outputs.values()) if not node.op.traits.source]
    return sum(node.op.flops(*(value.type for value in node.inputs)) for node in nodes if not node.op.traits.view)
