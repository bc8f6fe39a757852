"""Learning rate range test: a short training whose learning rate grows exponentially, and the rate that it suggests.

The test is that of Smith 2015, "Cyclical learning rates for training neural networks", arXiv:1506.01186, section 3.3.
The suggestion is the lower one of two that fastai's `lr_find` makes (Howard and Gugger 2020, "fastai: a layered API for
deep learning", arXiv:2002.04688): a tenth of the rate with the lowest loss (`minimum`), and the rate of the steepest
descent over the logarithm of the rate (`steep`). Unlike there, the descent is searched only where the loss has left its
initial level: before, low rates change nothing, and a slope is the noise of single batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite, log10, nan, sqrt
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias

from netspec.backends.program import NonFiniteLoss
from netspec.compile import LEARNING_RATE, Compiler, is_rate, scheduled_inputs
from netspec.data.loader import Loader
from netspec.errors import InputError
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.spec import parts_of
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.solvers.schedules.constant import Constant
from netspec.tools.plain_data import PlainData
from netspec.tools.short_training import load_short_training, open_training
from netspec.training.plotting.chart_drawing import write_charts
from netspec.training.plotting.charts import AxisScale, Chart, Curve
from netspec.training.session import LOCAL
from netspec.training.stepper import run_steps

STEPS = 150
"""Default number of learning rates."""
LOWEST_FACTOR, HIGHEST_FACTOR = 0.1, 100.0
"""Factors of the default range, on the lowest and highest usual learning rates of the solver."""
SMOOTHING = 0.85
"""Weight of the previous mean in a moving average of losses."""
LEAST_FALL = 0.03
"""Smallest relative decrease of the smoothed loss for which a rate is suggested; it must exceed the noise too."""
FLAT_PART, FLAT_FALL = 0.25, 0.1
"""Part of the steps before the lowest loss whose median is the initial level, and the fraction of the total decrease
after which the loss has left this level."""
SAFETY = 10.0
"""Factor between the rate with the lowest loss and the suggested one."""
SCHEDULE_STEPS = 1000
"""Number of steps at which a schedule is evaluated to find its highest rate, if the training has no `max_steps`."""
_End: TypeAlias = Literal["last rate", "diverged", "not finite"]


@dataclass(frozen=True)
class LearningRateTest(PlainData):
    """The losses of a learning rate range test, and the rates that they suggest."""

    learning_rates: tuple[float, ...]
    losses: tuple[float, ...]
    """Training loss after the step with each rate."""
    smoothed: tuple[float, ...]
    """Losses without the noise of single batches."""
    first_loss: float
    """Training loss before the first step."""
    diverged_at: float | None
    """Rate at which the loss exceeded its first value by far, or was not finite."""
    not_finite: bool
    """Whether the loss or a gradient was not finite at a rate up to `current`: the rate is not the cause."""
    lowest: float | None
    """Rate with the lowest smoothed loss; None if the loss did not fall."""
    steepest: float | None
    """Rate at which the smoothed loss falls fastest."""
    suggested: float | None
    """A safe rate: a tenth of `lowest`, or `steepest` if that is lower."""
    current: float
    """The highest rate of the schedule in the training file."""
    field: str | None
    """Field of the training file that sets the rate, such as `solver.learning_rate.initial`."""
    batch_size: int

    def charts(self) -> list[Chart]:
        """Return a chart of the losses over the learning rate, with a line at the suggested rate."""
        rates = self.learning_rates
        highest = _limit(self.first_loss, min(self.losses, default=self.first_loss))
        losses = [min(loss, highest) for loss in self.losses]  # the curve leaves the chart where it diverges
        marks = [self.suggested] if self.suggested is not None else []
        curves = [Curve("loss of each step", rates, losses), Curve("smoothed", rates, self.smoothed)]
        return [Chart("loss after a step", "learning rate", curves, across=AxisScale(logarithmic=True), marks=marks)]


def find_learning_rate(
    source: Source,
    *,
    overrides: Overrides = (),
    lowest: float | None = None,
    highest: float | None = None,
    steps: int = STEPS,
    weights: str | Path | None = None,
    samples: Mapping[str, Any] | None = None,
    device: str = "auto",
    output: str | Path | None = None,
) -> LearningRateTest:
    """Train for a few steps with a growing learning rate, and suggest one. Writes nothing but `output`.

    The rate grows exponentially from `lowest` to `highest` in `steps` steps, and the test ends earlier if the loss
    diverges. The default range is wider than the solver's usual rates: from a tenth of the lowest to 100 times the
    highest. Rates of parameter groups grow in proportion; momenta keep their first values. `weights` and `samples` are
    those of `netspec.train`. `output` names an SVG or PNG file for the chart.

    Raises `InputError` if the spec, the data or the range is wrong, or the solver has no learning rate to test.

        >>> netspec.find_learning_rate("train.yaml").suggested
    """
    spec, solver = load_short_training(source, overrides, samples)
    usual_low, usual_high = solver.usual_learning_rates
    low = usual_low * LOWEST_FACTOR if lowest is None else lowest
    high = usual_high * HIGHEST_FACTOR if highest is None else highest
    if not (0 < low < high and isfinite(high)):
        raise InputError(
            "`lowest` and `highest` are not a range of learning rates",
            expected="0 < lowest < highest",
            got=f"{low:g}, {high:g}",
        )
    if steps < 10:
        raise InputError("`steps` must be 10 or more", got=str(steps))
    rates = [low * (high / low) ** (index / (steps - 1)) for index in range(steps)]
    with open_training(spec, device, weights) as (compiler, loader):
        first, losses, end = _losses(spec, solver, compiler, loader, rates)
    result = _evaluate(spec, solver, rates, first, losses, end)
    if output is not None:
        write_charts(result.charts(), Path(output))
    return result


def _losses(
    spec: TrainSpec, solver: SolverSpec, compiler: Compiler, loader: Loader, rates: Sequence[float]
) -> tuple[float, list[float], _End]:
    """Train a step with each rate; return the first loss, the loss after each step, and why the test ended."""
    schedules = scheduled_inputs(solver)
    peaks = {name: highest_rate(spec, schedule) for name, schedule in schedules.items()}
    stepper = LOCAL.stepper(spec, compiler, loader)
    losses: list[float] = []
    mean, best = nan, nan

    def inputs(step: int) -> dict[str, float]:
        rate = rates[min(step, len(rates) - 1)]  # after the last rate, a loss is computed once more
        return {
            name: rate * peaks[name] / peaks[LEARNING_RATE] if is_rate(name) else schedule.value(0, SCHEDULE_STEPS)
            for name, schedule in schedules.items()
        }

    try:
        for _, outcome in islice(run_steps(stepper, loader, inputs), len(rates) + 1):
            loss = outcome()
            losses.append(loss)
            mean = SMOOTHING * mean + (1 - SMOOTHING) * loss if len(losses) > 1 else loss
            best = min(best, mean) if len(losses) > 1 else mean
            if mean > _limit(losses[0], best):
                return losses[0], losses[1:], "diverged"
    except NonFiniteLoss:
        return (losses or [nan])[0], losses[1:], "not finite"
    return losses[0], losses[1:], "last rate"


def highest_rate(spec: TrainSpec, schedule: ScheduleSpec) -> float:
    """Return the highest value of a schedule in a training."""
    total = spec.train.max_steps or SCHEDULE_STEPS
    stride = -(-total // SCHEDULE_STEPS)
    return max(schedule.value(step, total) for step in range(0, total, stride))


def _limit(first: float, best: float) -> float:
    """Return the loss above which a training counts as diverged."""
    return first + max(first - best, abs(first) / 4)


def _evaluate(
    spec: TrainSpec, solver: SolverSpec, rates: Sequence[float], first: float, losses: Sequence[float], end: _End
) -> LearningRateTest:
    """Return the result of a test with these losses."""
    tested = list(rates[: len(losses)])
    smoothed = smooth([min(loss, _limit(first, min(losses))) for loss in losses])
    lowest = steepest = suggested = None
    least = min(range(len(smoothed)), key=lambda index: smoothed[index], default=0)
    noise = max(_deviation(losses[: least + 1], smoothed), LEAST_FALL * abs(smoothed[0])) if smoothed else 0.0
    if least > 1 and smoothed[0] - smoothed[least] > noise:
        slopes = {index: smoothed[index + 1] - smoothed[index - 1] for index in range(_descent(smoothed, least), least)}
        lowest, steepest = tested[least], tested[min(slopes, key=lambda index: slopes[index])]
        suggested = rounded(min(lowest / SAFETY, steepest))
    current = highest_rate(spec, solver.learning_rate)
    diverged_at = tested[-1] if end != "last rate" and tested else None
    not_finite = end == "not finite" and (diverged_at is None or diverged_at <= current)
    return LearningRateTest(
        tuple(tested), tuple(losses), tuple(smoothed), first, diverged_at, not_finite, lowest, steepest, suggested,
        current, _field_of(solver.learning_rate, current), spec.data.train.batch_size,
    )  # fmt: skip


def _descent(smoothed: Sequence[float], least: int) -> int:
    """Return the first index, from 1, after which smoothed losses stay below their initial level up to the lowest."""
    level = median(smoothed[: max(1, round(FLAT_PART * least))])
    left = smoothed[least] + (1 - FLAT_FALL) * (level - smoothed[least])
    return max((index for index in range(1, least) if smoothed[index] >= left), default=1)


def _deviation(losses: Sequence[float], smoothed: Sequence[float]) -> float:
    """Return the root mean square of the differences between losses and smoothed losses."""
    squares = [(loss - mean) ** 2 for loss, mean in zip(losses, smoothed, strict=False)]
    return sqrt(sum(squares) / max(1, len(squares)))


def smooth(values: Sequence[float]) -> list[float]:
    """Return the mean of a forward and a backward moving average, whose delays cancel."""
    forward, backward = _averages(values), _averages(values[::-1])[::-1]
    return [(left + right) / 2 for left, right in zip(forward, backward, strict=True)]


def _averages(values: Sequence[float]) -> list[float]:
    """Return exponential moving averages with bias correction."""
    total = weight = 0.0
    averages = []
    for value in values:
        total, weight = SMOOTHING * total + value, SMOOTHING * weight + 1.0
        averages.append(total / weight)
    return averages


def rounded(rate: float) -> float:
    """Round a rate to one significant digit."""
    return float(f"{rate:.0e}") if rate > 0 and isfinite(log10(rate)) else rate


def _field_of(schedule: ScheduleSpec, highest: float) -> str | None:
    """Return the field that holds the highest rate of a schedule; None if no field does."""
    for path, part in parts_of(schedule):
        for name in type(part).model_fields if isinstance(part, ScheduleSpec) else ():
            value = getattr(part, name)
            if isinstance(value, float) and abs(value - highest) <= 1e-6 * highest:
                field = "" if isinstance(part, Constant) else name  # a number stands for a constant schedule
                return ".".join(filter(None, ("solver.learning_rate", path, field)))
    return None
