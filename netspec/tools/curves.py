"""Charts of the learning rates of a training file, and of the losses and metrics in the log of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from netspec.data.base import Source as DataSource
from netspec.errors import InputError, Problem
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.tools.specs import load_spec
from netspec.training.charts import AxisScale, Chart, Curve, write_svg
from netspec.training.events import SPLITS

MOST_POINTS = 2000
"""Steps that a curve shows, evenly spread where there are more."""
LOG = "log.jsonl"


def plot(
    source: Source,
    *,
    overrides: Overrides = (),
    schedule: bool = False,
    logarithmic: bool = False,
    out: str | Path | None = None,
) -> list[Chart]:
    """Chart the losses and metrics of a run directory, or the learning rates of a training file.

    With `schedule`, charts the learning rate and momentum at each step: those of a run as logged, those of a training
    file as scheduled, without reading data (with `max_epochs` the samples are counted). A schedule that waits for a
    plateau depends on the run: the chart shows its values before any reduction. `logarithmic` scales the vertical
    axis; `out` names an SVG file to write the charts to.

    Raises `InputError` if there is nothing to chart.

        >>> loss = netspec.plot("runs/lenet_mnist", out="loss.svg")[0]
    """
    scale = AxisScale(logarithmic)
    folder = None if isinstance(source, Mapping) else Path(source)
    if folder is not None and folder.is_dir():
        if overrides:
            raise InputError(
                "unexpected argument: the settings of a run directory cannot be changed",
                got=" ".join(map(str, overrides)),
            )
        charts = scheduled_charts(folder, scale) if schedule else run_charts(folder, scale)
    else:
        spec = load_spec(source, overrides)
        if not isinstance(spec, TrainSpec):
            expected = "a training file"
            raise InputError("this is a net: it has no learning rate", location=spec.where(), expected=expected)
        if not schedule:
            hint = "`--schedule` draws its learning rate; to draw losses, name a run directory"
            raise InputError("a training file has no losses to draw", location=spec.where(), hint=hint)
        charts = schedule_charts(spec, scale)
    if out is not None:
        write_svg(charts, Path(out))
    return charts


def schedule_charts(spec: TrainSpec, scale: AxisScale) -> list[Chart]:
    """Charts of the learning rates and of scheduled momenta. Raises `InputError` if the number of steps is unknown."""
    assert isinstance(spec.solver, SolverSpec)
    total = steps_of(spec)
    stride = max(1, -(-total // MOST_POINTS))
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

    Raises `InputError` where that can't be read.
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


def run_charts(folder: Path, scale: AxisScale) -> list[Chart]:
    """Losses and metrics of a run, one chart for each figure, from its log. Raises `InputError` where it has none."""
    events = _logged(folder)
    losses = [_curve(SPLITS[split], logged, "loss") for split, logged in events.items()]
    charts = [Chart("loss", "step", [curve for curve in losses if curve.xs], scale)]
    metrics = {
        split: {step: event.get("metrics", {}) for step, event in logged.items()} for split, logged in events.items()
    }
    names = dict.fromkeys(name for by_step in metrics.values() for known in by_step.values() for name in known)
    for name in names:
        curves = [_curve(SPLITS[split], by_step, name) for split, by_step in metrics.items()]
        charts.append(Chart(name, "step", [curve for curve in curves if curve.xs], scale))
    return charts


def scheduled_charts(folder: Path, scale: AxisScale) -> list[Chart]:
    """The learning rate and the scheduled momentum of a run, from its log. Raises `InputError` if it has no figures."""
    log = _logged(folder)["train"]
    charts = [Chart("learning rate", "step", [_curve("run", log, "learning_rate")], scale)]
    momentum = _curve("run", log, "momentum")
    return [*charts, Chart("momentum", "step", [momentum], scale)] if momentum.xs else charts


def _curve(name: str, figures: dict[int, dict[str, Any]], key: str) -> Curve:
    known = {step: event[key] for step, event in sorted(figures.items()) if isinstance(event.get(key), (int, float))}
    return Curve(name, list(known), list(known.values()))


def _logged(folder: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """The events `log` (of the split `train`) and `test` of a run, by split and step.

    The last one of a step counts, if a resumed run repeated it.
    """
    path, events = folder / LOG, {split: dict[int, dict[str, Any]]() for split in SPLITS}
    if not path.is_file():
        raise InputError(f"{folder} is not a run directory", expected=f"a folder with a file {LOG}")
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):  # a line that a killed process left half written
            event = json.loads(line)
            if isinstance(event, dict) and isinstance(event.get("step"), int):
                split = {"log": "train", "test": event.get("split", "test")}.get(event.get("event", ""))
                if split in events:
                    events[split][event["step"]] = event
    if not any(events.values()):
        raise InputError(f"the log of {folder} has no values yet", expected="a run that logged at least one step")
    return events
