"""Charts of the losses and metrics in the logs of runs: of one run, or of several in the same charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from netspec.errors import InputError, and_more, did_you_mean, listing
from netspec.schema.specs.monitor import LOSS
from netspec.tools.comparing.runs import differing_settings, read_resolved
from netspec.training.events import SPLITS, Event, parse_events, values_of
from netspec.training.plotting.charts import AxisScale, Chart, Curve
from netspec.training.run_directory import RunDir

Axis = Literal["step", "epoch", "time"]
AXES: tuple[Axis, ...] = ("step", "epoch", "time")
"""Horizontal axes of charts of runs."""
LOGGED = ("learning_rate", "momentum", "gradient_norm")
"""Values of each step, apart from losses and metrics, by their names in the log."""
TITLES = {"learning_rate": "learning rate", "gradient_norm": "gradient norm"}
"""Titles of charts whose value has a different name in the log."""
UNITS = ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.0, 1.0, "s"))
"""Least duration, seconds and name of the units of time."""
MAX_SETTINGS = 3
"""Number of settings that the name of a curve contains."""
TRAIN = "train"


@dataclass(frozen=True)
class RunLog:
    """The logged values of a run."""

    folder: Path
    events: Mapping[str, Mapping[int, Event]]
    """Events by split and step; the last event of a step counts, if a resumed run repeated it."""
    steps_per_epoch: int | None

    def value_names(self) -> list[str]:
        """Return the names of losses and metrics, the loss first."""
        names = (name for by_step in self.events.values() for event in by_step.values() for name in values_of(event))
        return list(dict.fromkeys([LOSS, *names]))

    def others(self) -> list[str]:
        """Return the names of the other values, such as the learning rate."""
        return [name for name in LOGGED if any(name in event for event in self.events[TRAIN].values())]

    def all_names(self) -> list[str]:
        """Return the names of all values, losses and metrics first."""
        return [*self.value_names(), *self.others()]

    def points(self, split: str, name: str, axis: Axis) -> tuple[list[float], list[float]]:
        """Return the values of a name, and their positions on an axis. Raises `InputError` without such positions."""
        steps, values = [], []
        for step, event in sorted(self.events[split].items()):
            value = values_of(event).get(name, event.get(name))
            if isinstance(value, (int, float)):
                steps.append(step)
                values.append(float(value))
        return [self._position(self.events[split][step], axis) for step in steps], values

    def _position(self, event: Event, axis: Axis) -> float:
        if axis == "epoch":
            if self.steps_per_epoch is None:
                raise InputError(f"the log of {self.folder} has no `start` event", hint="use `--x step`")
            return float(event["step"]) / self.steps_per_epoch
        if axis == "time":
            if not isinstance(event.get("elapsed"), (int, float)):
                hint = "use `--x step` or `--x epoch`: earlier versions did not log times"
                raise InputError(f"the log of {self.folder} has no times", hint=hint)
            return float(event["elapsed"])
        return float(event["step"])


def read_run_log(folder: Path) -> RunLog:
    """Read the log of a run. Raises `InputError` if there is no run, or if it has no values yet."""
    files = RunDir(folder)
    if not files.log.is_file():
        raise InputError(f"{folder} is not a run directory", expected=f"a folder with a file {files.log.name}")
    events: dict[str, dict[int, Event]] = {split: {} for split in SPLITS}
    steps_per_epoch = None
    with files.log.open(encoding="utf-8", errors="replace") as lines:
        for event in parse_events(lines):
            if event["event"] == "start" and isinstance(event.get("steps_per_epoch"), int):
                steps_per_epoch = event["steps_per_epoch"]
            split = {"log": TRAIN, "test": event.get("split", "test")}.get(event["event"])
            if isinstance(split, str) and isinstance(event.get("step"), int):
                events.setdefault(split, {})[event["step"]] = event
    if not any(events.values()):
        raise InputError(f"the log of {folder} has no values yet", expected="a run that logged at least one step")
    return RunLog(folder, events, steps_per_epoch or None)


def run_charts(
    logs: Sequence[RunLog], scale: AxisScale, axis: Axis = "step", names: Sequence[str] | None = None
) -> list[Chart]:
    """Return a chart for each loss, metric or other value in `names`: by default losses and metrics.

    Charts of several runs have a color for each run, whose name includes the settings that differ. Raises `InputError`
    if no run has a value of a name.
    """
    logged = list(dict.fromkeys(name for log in logs for name in log.all_names()))
    for name in names or ():
        if name not in logged:
            raise InputError(
                f"no run has logged `{name}`", expected=f"one of {listing(logged)}", hint=did_you_mean(name, logged)
            )
    chosen = list(names or dict.fromkeys(name for log in logs for name in log.value_names()))
    labels = _labels([log.folder for log in logs]) if len(logs) > 1 else [""]
    seconds, unit = _unit(logs) if axis == "time" else (1.0, "")
    title = f"time, {unit}" if unit else axis
    charts = []
    for name in chosen:
        curves = [curve for log, label in zip(logs, labels, strict=True)
                  for curve in _curves(log, label, name, axis, seconds)]  # fmt: skip
        charts.append(Chart(TITLES.get(name, name), title, curves, scale))
    return charts


def _curves(log: RunLog, label: str, value_name: str, axis: Axis, seconds: float) -> Iterator[Curve]:
    """Yield a curve for each split that has the value."""
    for split in log.events:
        xs, ys = log.points(split, value_name, axis)
        if xs:
            kind = SPLITS.get(split, split)
            name = f"{label} {kind}" if label else "run" if value_name in LOGGED else kind
            yield Curve(name, [x / seconds for x in xs], ys, group=label, kind=kind if label else "")


def _unit(logs: Sequence[RunLog]) -> tuple[float, str]:
    """Return the unit of time that suits the longest run: its length in seconds, and its name."""
    events = [event for log in logs for by_step in log.events.values() for event in by_step.values()]
    longest = max((elapsed for event in events if isinstance(elapsed := event.get("elapsed"), (int, float))), default=0)
    return next((seconds, name) for least, seconds, name in UNITS if longest >= least)


def _labels(folders: Sequence[Path]) -> list[str]:
    """Return the names of runs, each with the settings that differ: `runs/a: learning_rate.initial 0.1`."""
    settings = differing_settings([read_resolved(folder) for folder in folders])
    names = short_names(list(settings))
    labels = []
    for index, folder in enumerate(folders):
        values = [f"{names[path]} {values[index]}" for path, values in settings.items() if values[index] is not None]
        described = ", ".join(values[:MAX_SETTINGS]) + and_more(len(values) - MAX_SETTINGS)
        labels.append(f"{folder}: {described}" if described else str(folder))
    return [label if labels.count(label) == 1 else f"{label} ({index + 1})" for index, label in enumerate(labels)]


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return the last two parts of dotted paths, or as many as distinguish them."""
    parts = {path: path.split(".") for path in paths}
    names = {}
    for path, path_parts in parts.items():
        count = 2
        while sum(other[-count:] == path_parts[-count:] for other in parts.values()) > 1 and count < len(path_parts):
            count += 1
        names[path] = ".".join(path_parts[-count:])
    return names
