"""`ema` of a solver: a moving average of the weights, which replaces them outside of training.

Polyak and Juditsky 1992, "Acceleration of stochastic approximation by averaging"; Keras's `use_ema`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, PositiveInt

from netspec.graph.ops.elementwise import Equal, Greater, Minimum, Where, cast, scalar
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


def _decay(value: Any) -> Any:
    """Convert a number to a mapping with that decay."""
    return {"decay": value} if isinstance(value, (int, float)) and not isinstance(value, bool) else value


EMA = Annotated[EMASpec, BeforeValidator(_decay, json_schema_input_type=EMASpec | float)]
"""An average of weights, or a number for its decay."""


def follow(ema: EMASpec, average: Value, weight: Value, count: Value) -> tuple[Value, Value]:
    """Return the next average, and the next weight, of a parameter that update number `count` set to `weight`."""
    dtype = weight.dtype
    decay = cast(_decay_at(ema, count), dtype)
    average = decay * average + (1.0 - decay) * weight
    if ema.overwrite_every is None:
        return average, weight
    periods = cast(cast(count / float(ema.overwrite_every), DType.INT64), count.dtype)
    due = Equal()(periods * float(ema.overwrite_every), count)
    return average, Where()(due, average, weight)


def _decay_at(ema: EMASpec, count: Value) -> Value:
    """Return the decay of an update, a scalar of the count's type; 0 while the average equals the weights."""
    after = count - float(ema.start_step)
    decay = scalar(ema.decay, count.dtype)
    if ema.warmup:
        decay = Minimum()(decay, (after + 1.0) / (after + 10.0))
    return decay * cast(Greater()(count, scalar(float(max(ema.start_step, 1)), count.dtype)), count.dtype)
