"""Normalization by known means and variances: of the data as it comes, written in the spec."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from netspec.graph.ops.source import constant
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample, need, sample_axis
from netspec.schema.kinds import LAYERS, LayerFields
from netspec.schema.spec import describe, problem

LEAST = 1e-7
"""The least deviation that is divided by: Keras's."""


def _numbers(value: Any) -> Any:
    items = value if isinstance(value, (list, tuple)) else [value]
    numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) and isfinite(one) for one in items)
    if not items or not numbers:
        raise problem("not a number", expected="a number, or a list of one for each channel", got=describe(value))
    return tuple(map(float, items))


Numbers = Annotated[tuple[float, ...], BeforeValidator(_numbers, json_schema_input_type=float | list[float])]
"""One number for all, or a list of one for each."""


@LAYERS.register
class Normalization(LayerSpec):
    """Shift and scale each channel by a mean and a variance that are known: y = (x - mean) / √variance.

    Input (N, C, …), output the same, in training and in inference alike; nothing is learned. So the net takes the data
    as it is, wherever it runs. (Keras's layer can also find mean and variance itself, by `adapt`.)
    """

    foreign_fields: ClassVar[dict[str, str]] = LayerFields.foreign_fields | {
        "std": "here it is `variance`, which is its square",
        "stddev": "here it is `variance`, which is its square",
    }
    one_way: ClassVar = "it is written as arithmetic with constants"

    type: Literal["Normalization"] = "Normalization"
    axis: int | None = 1
    """the axis of the channels; null: all numbers are alike. Keras's default, -1, is the same axis in channels-last
    data"""
    mean: Numbers
    """a number, or one for each channel"""
    variance: Numbers
    """a number, or one for each channel"""
    invert: bool = False
    """true: the way back, y = x · √variance + mean"""

    samples: ClassVar[Any] = (
        Sample.of((2, 3, 4), mean=[0.5, -1.0, 2.0], variance=[1.0, 4.0, 0.25]),
        Sample.of((2, 4), axis=None, mean=0.5, variance=2.0, invert=True),
        Sample.of((2, 2, 3), axis=-1, mean=[1.0, 0.0, -1.0], variance=[1.0, 2.0, 3.0]),
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if min(self.variance) < 0:
            raise problem(
                "a variance is negative", field="variance", expected="0 or more", got=f"{min(self.variance):g}"
            )
        return self

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        import numpy as np

        axis = None if self.axis is None else sample_axis(x, self.axis, "of channels")
        x = net.floating(x)
        size = 1 if axis is None else x.shape[axis]
        for name, numbers in (("mean", self.mean), ("variance", self.variance)):
            need(
                len(numbers) in (1, size), f"`{name}` does not have a number for each channel",
                expected=f"{size} numbers, or one" if axis is not None else "one number: `axis` is null",
                got=f"{len(numbers)} numbers",
            )  # fmt: skip

        def spread(numbers: Any) -> Value:
            wide = np.broadcast_to(np.asarray(numbers, str(x.dtype)), size)
            return constant(wide if axis is None else wide.reshape(-1, *(1 for _ in x.shape[axis + 1 :])))

        deviation = np.maximum(np.sqrt(self.variance), LEAST)
        if self.invert:
            return x * spread(deviation) + spread(self.mean)
        return (x - spread(self.mean)) * spread(1 / deviation)
