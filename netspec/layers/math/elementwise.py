"""Elementwise arithmetic with constants of the spec: Power, Exp, Log, Abs, Clip, Threshold. Most are Caffe's."""

from __future__ import annotations

from math import log
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from netspec.graph.ops import unary
from netspec.graph.ops.elementwise import Greater, Maximum, Minimum, Pow, call_elementwise, cast
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import describe, problem


def not_zero(value: Any) -> Any:
    """A validator of a number other than 0."""
    if value == 0 and not isinstance(value, bool):
        expected = "any other number: with 0 every result would be the same"
        raise problem("not allowed to be 0", expected=expected, got=describe(value))
    return value


NotZero = Annotated[float, BeforeValidator(not_zero, json_schema_input_type=float)]
Base = Annotated[float, Field(gt=0)]


def scale_and_shift(x: Value, scale: float, shift: float) -> Value:
    """shift + scale · x, without operations that change nothing."""
    y = x if scale == 1.0 else x * scale
    return y if shift == 0.0 else y + shift


class ScaledInput(LayerSpec):
    """Base of functions of shift + scale · x."""

    passes_mask: ClassVar = True

    scale: NotZero = 1.0
    """Factor on the input."""
    shift: float = 0.0
    """Offset added to the scaled input."""


@LAYERS.register
class Power(ScaledInput):
    """Raise each element, scaled and shifted, to a power: (shift + scale · x) ^ power, as Caffe's Power does.

    Input and output have the same shape. If the power is not an integer, shift + scale · x must be positive.
    """

    type: Literal["Power"] = "Power"
    power: NotZero = 1.0
    """The exponent."""

    samples: ClassVar = (
        Sample.of((2, 3, 2), power=3.0, scale=-0.5, shift=1.0),
        Sample.of((2, 3), power=0.5, scale=2.0, ranges=((0.5, 2.0),)),
        Sample.of((2, 3), power=-1.0, shift=3.0, ranges=((0.5, 2.0),)),
        Sample.of((2, 3), scale=0.5, dtypes=("uint8",)),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        y = scale_and_shift(builder.floating(x), self.scale, self.shift)
        return y if self.power == 1.0 else Pow(self.power)(y)


@LAYERS.register
class Exp(ScaledInput):
    """Raise a number to each element, scaled and shifted: base ^ (shift + scale · x), as Caffe's Exp does.

    Input and output have the same shape.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Activation",)

    type: Literal["Exp"] = "Exp"
    base: Base | None = None
    """The base; default: e."""

    samples: ClassVar = (Sample.of((2, 3)), Sample.of((2, 3), base=2.0, scale=-0.5, shift=1.0))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        factor = 1.0 if self.base is None else log(self.base)
        return unary.Exp()(scale_and_shift(builder.floating(x), factor * self.scale, factor * self.shift))


@LAYERS.register
class Log(ScaledInput):
    """The logarithm of each element, scaled and shifted: log_base (shift + scale · x), as Caffe's Log does.

    Input and output have the same shape. shift + scale · x must be positive.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Power",)

    type: Literal["Log"] = "Log"
    base: Base | None = None
    """Base of the logarithm; default: e."""

    samples: ClassVar = (
        Sample.of((2, 3), ranges=((0.5, 4.0),)),
        Sample.of((2, 3), base=10.0, scale=2.0, shift=1.0, ranges=((0.5, 4.0),)),
    )

    @model_validator(mode="after")
    def _base_is_one(self) -> Self:
        if self.base == 1.0:
            raise problem("`base` cannot be 1", field="base", expected="any other number above 0", got="1")
        return self

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        y = unary.Log()(scale_and_shift(builder.floating(x), self.scale, self.shift))
        return y if self.base is None else y * (1.0 / log(self.base))


@LAYERS.register
class Abs(LayerSpec):
    """The magnitude of each element; its gradient at 0 is 0.

    Input and output have the same shape.
    """

    passes_mask: ClassVar = True

    type: Literal["Abs"] = "Abs"

    samples: ClassVar = (Sample.of((2, 3, 4)),)

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        return unary.Abs()(builder.floating(x))


@LAYERS.register
class Clip(LayerSpec):
    """Limit elements to a range: smaller ones become the minimum, larger ones the maximum.

    Input and output have the same shape. Elements outside of the range get no gradient.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "min_value": "use `min`",
        "max_value": "use `max`",
        "x_min": "`x_min` is Keras's name: use `min`",
        "x_max": "`x_max` is Keras's name: use `max`",
    }

    passes_mask: ClassVar = True

    type: Literal["Clip"] = "Clip"
    min: float | None = None
    """The lower limit; default: none."""
    max: float | None = None
    """The upper limit; default: none."""

    samples: ClassVar = (
        Sample.of((2, 3, 4), min=-0.5, max=1.0),
        Sample.of((2, 3), max=0.5),
        Sample.of((2, 3), min=0.5),
    )

    @model_validator(mode="after")
    def _limits(self) -> Self:
        if self.min is None and self.max is None:
            raise problem("neither `min` nor `max` is set", expected="`min`, `max` or both")
        if self.min is not None and self.max is not None and self.min >= self.max:
            expected = f"more than {self.min}"
            raise problem("`max` must be greater than `min`", field="max", expected=expected, got=f"{self.max}")
        return self

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        y = builder.floating(x)
        y = y if self.min is None else call_elementwise(Maximum(), y, self.min)
        return y if self.max is None else call_elementwise(Minimum(), y, self.max)


@LAYERS.register
class Threshold(LayerSpec):
    """1 if an element is greater than the threshold, else 0, as in Caffe's Threshold. No gradient flows.

    Input and output have the same shape.
    """

    onnx_roundtrip_blocker: ClassVar[str | None] = "comparisons with constants are not read"

    passes_mask: ClassVar = True

    type: Literal["Threshold"] = "Threshold"
    threshold: float = 0.0
    """The threshold."""

    samples: ClassVar = (Sample.of((2, 3, 4), threshold=0.5),)

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        x = builder.floating(x)
        return cast(call_elementwise(Greater(), x, self.threshold), x.dtype)
