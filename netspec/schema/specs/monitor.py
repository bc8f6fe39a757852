"""`Monitor`: the value by which evaluations are compared, for best weights, early stopping and schedules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isnan
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.schema.specs.field_types import Name
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.spec import Spec

LOSS = "loss"
Mode = Literal["min", "max"]


class Monitor(Spec):
    """Fields that name a value of an evaluation, and whether lower or higher is better."""

    monitor: Name = LOSS
    """Value that must improve: `loss`, or the name of a metric, on the validation data or else the test data; or a
    value of a set in `data.evaluate`, such as `night/accuracy`."""
    mode: Mode | None = None
    """Whether lower or higher is better. By default `min` for `loss` and the direction of the metric, such as `max` for
    accuracies; required for metrics without one, such as Sum."""

    @model_validator(mode="after")
    def _loss_is_minimized(self) -> Self:
        if self.mode is None and self.monitor == LOSS:
            self._set_mode("min")
        return self

    def _set_mode(self, mode: Mode) -> None:
        self.__dict__["mode"] = mode  # an immutable spec, whose default depends on the net

    def improves(self, value: float, best: float | None, margin: float = 0.0) -> bool:
        """Return whether a value is better than the best one by more than `margin`. NaN never is."""
        if best is None or isnan(value):
            return not isnan(value)
        return value > best + margin if self.mode == "max" else value < best - margin

    def value_in(self, values: Mapping[str, float]) -> float:
        """Return the monitored value of an evaluation. Raises `InputError` if it is not a single number."""
        if self.monitor not in values:
            raise InputError(f"`{self.monitor}` is not a single number", location=self.where("monitor"))
        return values[self.monitor]

    def unknown_values(self, training: Any) -> Iterator[Problem]:
        """Yield a problem if a training has no such value, or the metric does not say whether lower is better."""
        modes = monitor_modes(training.net, training.data.evaluate)
        if self.monitor not in modes:
            monitored = list(modes)
            yield Problem(
                f"there is no loss or metric `{self.monitor}`", self.where("monitor"), "monitor",
                expected=f"one of {listing(monitored)}", hint=did_you_mean(self.monitor, monitored),
            )  # fmt: skip
        elif self.mode is None and modes[self.monitor] is None:
            yield Problem(
                f"`mode` is required for `{self.monitor}`", self.where("monitor"), "monitor",
                expected="`mode: max` or `mode: min`", got="no `mode`",
            )  # fmt: skip


def monitored_value(monitor: str, training: Any) -> tuple[str, str]:
    """Return the split whose evaluation has the value that a monitor names in a training, and its name there."""
    name, _, value = monitor.partition("/")
    if name in training.data.evaluate and monitor not in monitor_modes(training.net):
        return name, value
    return training.data.monitored, monitor


def without_evaluations(training: Any, subject: str, spec: Spec) -> Iterator[Problem]:
    """Yield a problem if a training (a `TrainSpec`) has no evaluations before its end."""
    has_data = training.data.monitored in training.data.splits()
    if not has_data or training.train.test_every == 0:
        yield Problem(
            f"{subject} needs evaluations during training", spec.where(),
            expected="`data.validation` or `data.test`, and `train.test_every` above 0",
            got="neither" if not has_data else "`test_every: 0`",
        )  # fmt: skip


def monitor_modes(net: NetSpec, sets: Iterable[str] = ()) -> dict[str, Mode | None]:
    """Return the loss and the metrics of a net, each with whether lower or higher is better, if that is known.

    Values of further sets are prefixed with the set: `night/loss`.
    """
    modes: dict[str, Mode | None] = {LOSS: "min"}
    modes |= {metric.name: metric.fields.monitor_mode for metric in resolve_names(net).metrics}
    return {**{f"{name}/{value}": mode for name in sets for value, mode in modes.items()}, **modes}


def set_modes(parts: Iterable[Spec], net: NetSpec, sets: Iterable[str]) -> None:
    """Set missing modes to the directions of the net's metrics. `conflicts` reports unknown metrics."""
    unset = [part for part in parts if isinstance(part, Monitor) and part.mode is None]
    modes = monitor_modes(net, sets) if unset else {}
    for monitor in unset:
        if (mode := modes.get(monitor.monitor)) is not None:
            monitor._set_mode(mode)


class EarlyStoppingFields(Spec):
    """Conditions that end a run before its last step."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "restore_best_weights": "`restore_best` belongs under `train`",
        "threshold": "use `min_delta`",
        "start_from_epoch": "use `start_after`, in evaluations",
    }

    patience: PositiveInt = 3
    """Number of evaluations in a row without improvement after which the training ends."""
    min_delta: float = Field(default=0.0, ge=0)
    """Smallest change that counts as an improvement."""
    start_after: NonNegativeInt = 0
    """Number of evaluations at the start that do not count."""
