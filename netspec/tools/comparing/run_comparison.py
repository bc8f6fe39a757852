"""Compare the results of two runs: losses and metrics at the end, at their best, and at the same steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from netspec.errors import InputError
from netspec.schema.specs.monitor import Mode, Monitor
from netspec.tools.comparing.run_curves import RunLog, read_run_log
from netspec.training.events import IN_UNIT

Both = tuple[float | None, float | None]
"""A value of each run; None if it has none."""


@dataclass(frozen=True)
class ValueComparison:
    """A loss or metric of two runs."""

    name: str
    """Split and name: `validation/accuracy`."""
    last: Both
    """The last value of each."""
    best: Both
    """The best value of each; None if it is unknown whether lower or higher is better."""
    best_steps: tuple[int | None, int | None]
    """Number of steps before these."""
    curve: tuple[tuple[int, float, float], ...]
    """Steps at which both have a value, with the values."""

    @property
    def at_equal_step(self) -> tuple[int, float, float] | None:
        """The last step at which both runs have a value, with the two values."""
        return self.curve[-1] if self.curve else None

    @property
    def same(self) -> bool:
        """Whether both runs have the same values."""
        return self.last[0] == self.last[1] and all(before == after for _, before, after in self.curve)


def compare_runs(before: Path, after: Path, modes: Mapping[str, Mode | None]) -> tuple[ValueComparison, ...]:
    """Compare losses and metrics of two run directories, by `modes` that say what is better.

    Returns nothing if one of the folders has no log, or no values in it.
    """
    try:
        logs = read_run_log(before), read_run_log(after)
    except InputError:
        return ()
    names = dict.fromkeys((split, name) for log in logs for split in log.events for name in log.value_names())
    compared = []
    for split, name in names:
        points = [_points(log, split, name) for log in logs]
        if any(points):
            compared.append(_compared(f"{split}/{name}", points, modes.get(name.removesuffix(IN_UNIT))))
    return tuple(compared)


def _points(log: RunLog, split: str, name: str) -> dict[int, float]:
    if split not in log.events:
        return {}
    steps, values = log.points(split, name, "step")
    return {int(step): value for step, value in zip(steps, values, strict=True)}


def _compared(name: str, points: Sequence[Mapping[int, float]], mode: Mode | None) -> ValueComparison:
    first, other = points
    monitor = None if mode is None else Monitor(monitor=name.removesuffix(IN_UNIT), mode=mode)
    best = [_best(each, monitor) for each in points]
    last = [list(each.values())[-1] if each else None for each in points]
    curve = tuple((step, first[step], other[step]) for step in sorted(first.keys() & other.keys()))
    (first_step, first_best), (other_step, other_best) = best
    return ValueComparison(name, (last[0], last[1]), (first_best, other_best), (first_step, other_step), curve)


def _best(points: Mapping[int, float], monitor: Monitor | None) -> tuple[int | None, float | None]:
    """Return the step and the value of the best point."""
    step, best = None, None
    for at, value in points.items() if monitor is not None else ():
        if monitor is not None and monitor.improves(value, best):
            step, best = at, value
    return step, best
