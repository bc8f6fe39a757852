"""`plot`: charts of the learning rates of a training file, or of the losses and metrics of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from netspec.data.base import Source as DataSource
from netspec.errors import InputError, Problem, did_you_mean
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.tools.comparing.run_curves import AXES, Axis, read_run_log, run_charts
from netspec.tools.specs import load_spec
from netspec.training.plotting.chart_drawing import write_charts
from netspec.training.plotting.charts import AxisScale, Chart, Curve

MAX_POINTS = 2000
"""Steps that a curve shows, evenly spread where there are more."""


def plot(
    *sources: Source,
    overrides: Overrides = (),
    schedule: bool = False,
    logarithmic: bool = False,
    x: Axis = "step",
    metrics: Sequence[str] | None = None,
    output: str | Path | None = None,
) -> list[Chart]:
    """Chart the losses and metrics of run directories, or the learning rates of a training file.

    Several runs are drawn in the same charts, over the `step`, `epoch` or `time` that `x` names; the names of their
    curves contain the settings that differ. `metrics` selects values of the log, such as `["loss", "learning_rate"]`.

    With `schedule`, charts the learning rate and momentum at each step: those of a run as logged, those of a training
    file as scheduled, without reading data (with `max_epochs` the samples are counted). A schedule that waits for a
    plateau depends on the run: the chart shows its values before any reduction. `logarithmic` scales the vertical
    axis; `output` names an SVG or PNG file to write the charts to.

    Raises `InputError` if there is nothing to chart.

        >>> loss = netspec.plot("runs/lenet_mnist", output="loss.svg")[0]
        >>> charts = netspec.plot("runs/lenet_mnist", "runs/lenet_mnist-2", x="time", metrics=["accuracy"])
    """
    if x not in AXES:
        raise InputError(f"there is no axis `{x}`", expected=f"one of {', '.join(AXES)}", hint=did_you_mean(x, AXES))
    scale = AxisScale(logarithmic)
    folders = [Path(source) for source in sources if not isinstance(source, Mapping) and _is_run(Path(source))]
    if len(folders) == len(sources) and folders:
        if overrides:
            raise InputError(
                "unexpected argument: the settings of a run directory cannot be changed",
                got=" ".join(map(str, overrides)),
            )
        logs = [read_run_log(folder) for folder in folders]
        if schedule:
            logged = {name for log in logs for name in log.others()}
            metrics = metrics or [name for name in ("learning_rate", "momentum") if name in logged]
        charts = run_charts(logs, scale, x, metrics)
    else:
        charts = _planned_charts(sources, overrides, scale, schedule=schedule)
    if output is not None:
        write_charts(charts, Path(output))
    return charts


def _is_run(path: Path) -> bool:
    """Whether a path is a run directory, rather than a training file or a folder with one."""
    return path.is_dir() and not (path / "train.yaml").is_file()


def _planned_charts(
    sources: Sequence[Source], overrides: Overrides, scale: AxisScale, *, schedule: bool
) -> list[Chart]:
    """Return the charts of a training file. Raises `InputError` for anything else."""
    if len(sources) != 1:
        missing = [str(source) for source in sources if isinstance(source, Mapping) or not _is_run(Path(source))]
        raise InputError(
            "several arguments must all be run directories", expected="folders of runs", got=", ".join(missing)
        )
    spec = load_spec(sources[0], overrides)
    if not isinstance(spec, TrainSpec):
        raise InputError("this is a net: it has no learning rate", location=spec.where(), expected="a training file")
    if not schedule:
        hint = "`--schedule` draws its learning rate; to draw losses, name a run directory"
        raise InputError("a training file has no losses to draw", location=spec.where(), hint=hint)
    return schedule_charts(spec, scale)


def schedule_charts(spec: TrainSpec, scale: AxisScale) -> list[Chart]:
    """Charts of the learning rates and of scheduled momenta. Raises `InputError` if the number of steps is unknown."""
    assert isinstance(spec.solver, SolverSpec)
    total = steps_of(spec)
    stride = max(1, -(-total // MAX_POINTS))
    steps = sorted({*range(0, total, stride), total - 1})
    charts = {"learning rate": _schedules(spec.solver), "momentum": _momenta(spec.solver)}
    curves = {title: [_planned(*planned, steps, total) for planned in several] for title, several in charts.items()}
    return [Chart(title, "step", several, scale) for title, several in curves.items() if several]


def _planned(name: str, schedule: ScheduleSpec, steps: Sequence[int], total: int) -> Curve:
    """The values of a schedule at some steps, with notes on what may differ in the run."""
    values = [schedule.value(step, total) for step in steps]
    notes = [f"before any reduction: it watches `{schedule.watches}`"] if schedule.watches else []
    notes += [f"never reached: {event}" for event in schedule.beyond(total)]
    return Curve(name, [step + 1 for step in steps], values, "; ".join(notes))


def _momenta(solver: SolverSpec) -> Iterator[tuple[str, ScheduleSpec]]:
    """Momenta that are scheduled, of the solver and of solvers of groups, each with its label."""
    yield from solver.scheduled_momenta().items()
    for group in solver.groups:
        if isinstance(group.solver, SolverSpec):
            for schedule in group.solver.scheduled_momenta().values():
                yield ", ".join(group.match), schedule


def _schedules(solver: SolverSpec) -> Iterator[tuple[str, ScheduleSpec]]:
    """The solver's schedule, and those of groups that have their own, each with what to call it."""
    yield "learning_rate", solver.learning_rate
    for group in solver.groups:
        overriding = group.solver if isinstance(group.solver, SolverSpec) else group
        if overriding.learning_rate is not None:
            yield ", ".join(group.match), overriding.learning_rate


def steps_of(spec: TrainSpec) -> int:
    """Number of steps of a training; with `max_epochs` its data is opened to count the samples.

    Raises `InputError` if the data can't be read.
    """
    loop, split = spec.train, spec.data.train
    if loop.max_steps is not None:
        return loop.max_steps
    assert isinstance(split, DataSource)
    try:
        samples = min(len(split.open(seed=loop.seed)), split.limit or 2**63)
    except InputError as error:
        location, path = loop.where("max_epochs"), "train.max_epochs"
        hint = "or set the length in steps: `train.max_steps=1000`"
        problem = Problem(
            "`max_epochs` can't be converted to steps", location, path, expected="the training data", hint=hint
        )
        raise InputError([*error.problems, problem]) from None
    return (loop.max_epochs or 0) * -(-samples // (split.batch_size * loop.accumulate))
