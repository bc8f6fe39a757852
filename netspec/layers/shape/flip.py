"""Elements in reverse order: Flip, and ReverseSequence for sequences of different lengths."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops import shape
from netspec.graph.ops.elementwise import Greater, Where, cast
from netspec.graph.ops.indexing import GatherElements
from netspec.graph.ops.reduce import BroadcastLike, reshape_to
from netspec.graph.ops.source import constant
from netspec.graph.types import DType, batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, require, require_countable, sample_axis
from netspec.schema.specs.kinds import LAYERS


@LAYERS.register
class Flip(LayerSpec):
    """Reverse the order of elements along one axis or several.

    Input and output have the same shape.
    """

    foreign_fields: ClassVar[dict[str, str]] = {"dims": "`dims` is PyTorch's name: use `axis`"}

    type: Literal["Flip"] = "Flip"
    axis: Axes = (1,)
    """The axes, a number or a list."""

    samples: ClassVar = (Sample.of((2, 3, 2)), Sample.of((2, 3, 4), axis=[1, -1]))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        for axis in sorted({sample_axis(x, axis, "to flip") for axis in self.axis}):
            x = shape.Flip(axis)(x)
        return x


@LAYERS.register
class ReverseSequence(LayerSpec):
    """Reverse the first elements of each sequence, whose number a second input gives; keep the rest.

    Inputs (N, T, …) and integers (N), output (N, T, …). With a `batch_axis` other than 0 the samples hold several
    sequences, along that axis, and the second input has an integer for each: (N, B).
    """

    onnx_roundtrip_blocker: ClassVar = "it is written as a gather with constant indices"

    type: Literal["ReverseSequence"] = "ReverseSequence"
    time_axis: int = 1
    """The axis of time."""
    batch_axis: int = 0
    """The axis along which sequences differ in length; 0 is the batch."""

    samples: ClassVar = (
        Sample.of((2, 4, 3), (2,), dtypes=("float32", "int32")),
        Sample.of((2, 4, 3), (2, 3), dtypes=("float32", "int64"), batch_axis=2, high=3),
    )

    def build(self, builder: Builder, x: Value, lengths: Value) -> Value:
        """x: (N, T, …), lengths: (N) or (N, B) → (N, T, …)."""
        import numpy as np

        rank, time = len(x.shape), sample_axis(x, self.time_axis, "for time")
        require(-rank <= self.batch_axis < rank, f"there is no axis {self.batch_axis} for sequences", got=x.type)
        batch = self.batch_axis % rank
        require(batch != time, "`time_axis` and `batch_axis` must be different axes", got=f"{time} and {batch}")
        lengths_shape = tuple(x.shape[axis] for axis in sorted({0, batch}))
        require(
            lengths.shape == lengths_shape and not lengths.dtype.is_float,
            "the second input must hold one length per sequence",
            expected=f"integers {batch_shape(lengths_shape)}",
            got=lengths.type,
        )
        builder.require_range(lengths, 0, x.shape[time] + 1, f"axis {time} has {x.shape[time]} elements")
        require_countable(x.shape[time], time)
        long = reshape_to(
            cast(lengths, DType.INT64), tuple(size if axis in (0, batch) else 1 for axis, size in enumerate(x.shape))
        )
        steps = constant(np.arange(x.shape[time]).reshape(-1, *(1,) * (rank - time - 1)))
        indices = Where()(Greater()(long, steps), long - 1.0 - steps, steps)
        return GatherElements(time)(x, BroadcastLike()(indices, x))
