"""Normalization by constant means and variances: given in the spec, or computed from the training data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from netspec.graph.ops.elementwise import Maximum, call_elementwise
from netspec.graph.ops.reduce import ReduceMean, ReduceSum, reshape_to
from netspec.graph.ops.source import constant
from netspec.graph.ops.unary import Sqrt
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import as_items, is_number, require, sample_axis
from netspec.layers.states import ConstantInitial, Totals
from netspec.schema.specs.kinds import LAYERS, LayerFields
from netspec.schema.specs.spec import problem

MIN_STDDEV = 1e-7
"""Lower bound of the standard deviation that is divided by, as in Keras."""


def _numbers(value: Any) -> Any:
    return tuple(map(float, as_items(value, is_number, "a number", "a list of one for each channel")))


Numbers = Annotated[tuple[float, ...], BeforeValidator(_numbers, json_schema_input_type=float | list[float])]
"""A single value for all, or a list with one per channel."""


@dataclass(frozen=True)
class Moments(Totals):
    """Count, means and sums of squared deviations in float64, which can be merged without cancellation.

    Chan, Golub and LeVeque 1979, Updating formulae and a pairwise algorithm for computing sample variances.
    """

    count: int
    mean: Any
    squares: Any

    @classmethod
    def of(cls, count: int, mean: Any, squares: Any) -> Moments:
        """Moments of one batch, from arrays of any precision."""
        return cls(count, mean.astype("float64"), squares.astype("float64"))

    def merged(self, other: Moments) -> Moments:
        """The moments of both sets together."""
        count, distance = self.count + other.count, other.mean - self.mean
        mean = self.mean + distance * (other.count / count)
        return Moments(count, mean, self.squares + other.squares + distance**2 * (self.count * other.count / count))

    def values(self) -> tuple[Any, Any]:
        """Mean and variance."""
        return self.mean, self.squares / self.count


@LAYERS.register
class Normalization(LayerSpec):
    """Shift and scale each channel by a constant mean and variance: y = (x - mean) / √variance.

    Input (N, C, …), output the same, in training and in inference, so that the net takes raw data. If `mean` and
    `variance` are omitted, they are computed from the layer's input in one pass over the training data before the first
    step (Keras's `adapt`), and stored with the weights; before that they are 0 and 1.
    """

    foreign_fields: ClassVar[dict[str, str]] = LayerFields.foreign_fields | {
        "std": "use `variance`, which is its square",
        "stddev": "use `variance`, which is its square",
    }
    onnx_roundtrip_blocker: ClassVar = "it is written as arithmetic with constants"

    type: Literal["Normalization"] = "Normalization"
    axis: int | None = 1
    """The axis of the channels; null: one mean and variance for all elements. Keras's default, -1, is the same axis in
    channels-last data."""
    mean: Numbers | None = None
    """A number, or one per channel; default: computed from the training data."""
    variance: Numbers | None = None
    """A number, or one per channel; default: computed from the training data."""
    invert: bool = False
    """`true`: the inverse, y = x · √variance + mean."""

    samples: ClassVar[Any] = (
        Sample.of((2, 3, 4), mean=[0.5, -1.0, 2.0], variance=[1.0, 4.0, 0.25]),
        Sample.of((2, 4), axis=None, mean=0.5, variance=2.0, invert=True),
        Sample.of((2, 2, 3), axis=-1, mean=[1.0, 0.0, -1.0], variance=[1.0, 2.0, 3.0]),
        Sample.of((3, 2, 3)),
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if (self.mean is None) != (self.variance is None):
            missing = "mean" if self.mean is None else "variance"
            raise problem(
                "`mean` and `variance` must be given together, or both omitted",
                field="variance" if self.mean is None else "mean", expected=f"`{missing}: …`",
            )  # fmt: skip
        if self.variance is not None and min(self.variance) < 0:
            raise problem(
                "`variance` is negative", field="variance", expected="0 or more", got=f"{min(self.variance):g}"
            )
        return self

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        axis = None if self.axis is None else sample_axis(x, self.axis, "for channels")
        x = builder.floating(x)
        size = 1 if axis is None else x.shape[axis]

        def spread(numbers: Value) -> Value:
            return reshape_to(numbers, () if axis is None else (size, *(1 for _ in x.shape[axis + 1 :])))

        if self.mean is None or self.variance is None:
            mean, deviation = self._adapted_statistics(builder, x, axis, size)
        else:
            mean, deviation = self._fixed_statistics(x, axis, size, self.mean, self.variance)
        if self.invert:
            return x * spread(deviation) + spread(mean)
        return (x - spread(mean)) * spread(1.0 / deviation)

    def _adapted_statistics(self, builder: Builder, x: Value, axis: int | None, size: int) -> tuple[Value, Value]:
        """Mean and standard deviation (size,) from states, which statistics of the training batches determine."""
        mean = builder.statistic("mean", (size,), ConstantInitial(0.0))
        variance = builder.statistic("variance", (size,), ConstantInitial(1.0))
        over = tuple(other for other in range(len(x.shape)) if other != axis)
        center = ReduceMean(over, keepdims=True)(x)
        centered = x - center

        batch_mean, squares = (reshape_to(x, (size,)) for x in (center, ReduceSum(over)(centered * centered)))
        builder.adapt((mean, variance), (batch_mean, squares), partial(Moments.of, x.type.size // size))
        return mean, call_elementwise(Maximum(), Sqrt()(variance), MIN_STDDEV)

    def _fixed_statistics(
        self, x: Value, axis: int | None, size: int, mean: tuple[float, ...], variance: tuple[float, ...]
    ) -> tuple[Value, Value]:
        """Mean and standard deviation (size,) from the fields."""
        import numpy as np

        for name, numbers in (("mean", mean), ("variance", variance)):
            require(
                len(numbers) in (1, size), f"`{name}` must have one number for each channel",
                expected=f"{size} numbers, or one" if axis is not None else "one number: `axis` is null",
                got=f"{len(numbers)} numbers",
            )  # fmt: skip
        deviation = np.maximum(np.sqrt(variance), MIN_STDDEV)
        arrays = (np.broadcast_to(np.asarray(values, str(x.dtype)), size) for values in (mean, deviation))
        center, scale = map(constant, arrays)
        return center, scale
