"""`ema` and `swa` of a solver: an average of the weights, which replaces them outside of training.

Polyak and Juditsky 1992, "Acceleration of stochastic approximation by averaging"; Keras's `use_ema`. Izmailov et al.
2018, "Averaging weights leads to wider optima and better generalization"; PyTorch's `swa_utils`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, PositiveInt

from netspec.graph.ops.elementwise import Equal, Greater, Maximum, Minimum, Where, cast, scalar
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.schema.specs.spec import Spec

AVERAGE = "average"
"""Name of the slot."""


class EMASpec(Spec):
    """A moving average of the weights: average ← d · average + (1 - d) · w after each update, with d = `decay`.

    Up to the update `start_step`, and after the first one, the average equals the weights, as in Keras and in PyTorch's
    AveragedModel.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "momentum": "use `decay`",
        "ema_momentum": "use `decay`",
        "overwrite_frequency": "use `overwrite_every`",
        "ema_overwrite_frequency": "use `overwrite_every`",
        "num_updates": "use `warmup: true`",
        "update_after_step": "use `start_step`",
    }

    decay: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the average: Keras's `ema_momentum`, whose default is 0.99."""
    start_step: int = Field(default=0, ge=0)
    """Number of updates during which the average equals the weights."""
    warmup: bool = False
    """Whether to start with a smaller decay: min(decay, (1 + n) / (10 + n)) at the n-th update after `start_step`, as
    in TensorFlow's ExponentialMovingAverage with `num_updates`."""
    overwrite_every: PositiveInt | None = None
    """Number of updates after which the average is copied to the weights, again and again: Keras's
    `ema_overwrite_frequency`. By default never."""


class SWASpec(Spec):
    """Stochastic weight averaging: the mean of weights after the update `start_step` and every `every` updates later.

    Up to the update `start_step`, the average equals the weights. Moving statistics of BatchNormalization are those of
    the weights in training.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "swa_start": "use `start_step`, in updates",
        "swa_freq": "use `every`",
        "anneal_epochs": "use a schedule as `learning_rate`",
        "swa_lr": "use a schedule as `learning_rate`",
    }

    start_step: int = Field(ge=0)
    """Number of the update whose weights are the first in the mean; with 0, the first one."""
    every: PositiveInt = 1
    """Number of updates from one set of weights in the mean to the next, such as those of an epoch."""


def _decay(value: Any) -> Any:
    """Convert a number to a mapping with that decay."""
    return {"decay": value} if isinstance(value, (int, float)) and not isinstance(value, bool) else value


EMA = Annotated[EMASpec, BeforeValidator(_decay, json_schema_input_type=EMASpec | float)]
"""An average of weights, or a number for its decay."""


def follow(spec: EMASpec | SWASpec, average: Value, weight: Value, count: Value) -> tuple[Value, Value]:
    """Return the next average, and the next weight, of a parameter that update number `count` set to `weight`."""
    decay = cast(_mean_decay_at(spec, count) if isinstance(spec, SWASpec) else _decay_at(spec, count), weight.dtype)
    average = decay * average + (1.0 - decay) * weight
    if isinstance(spec, SWASpec) or spec.overwrite_every is None:
        return average, weight
    _, due = _periods(count, spec.overwrite_every)
    return average, Where()(due, average, weight)


def _periods(count: Value, length: int) -> tuple[Value, Value]:
    """Return the number of complete periods of `length` in a count, and whether one ends with it."""
    periods = cast(cast(count / float(length), DType.INT64), count.dtype)
    return periods, Equal()(periods * float(length), count)


def _mean_decay_at(swa: SWASpec, count: Value) -> Value:
    """Return the decay that makes the average a mean: n / (n + 1) with n weights in it, 1 between two of these."""
    zero, one = scalar(0.0, count.dtype), scalar(1.0, count.dtype)
    after = Maximum()(count - float(max(swa.start_step, 1)), zero)
    weights, due = _periods(after, swa.every)
    return Where()(due, weights / (weights + 1.0), one) * cast(Greater()(after, zero), count.dtype)


def _decay_at(ema: EMASpec, count: Value) -> Value:
    """Return the decay of an update, a scalar of the count's type; 0 while the average equals the weights."""
    after = count - float(ema.start_step)
    decay = scalar(ema.decay, count.dtype)
    if ema.warmup:
        decay = Minimum()(decay, (after + 1.0) / (after + 10.0))
    return decay * cast(Greater()(count, scalar(float(max(ema.start_step, 1)), count.dtype)), count.dtype)
