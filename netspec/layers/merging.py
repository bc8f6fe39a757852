"""Layers that bring several inputs together: Add and Concatenate."""

from __future__ import annotations

from functools import reduce
from typing import ClassVar, Literal

from netspec.graph.ops.shape import Concat
from netspec.graph.types import broadcast_shapes
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample, need, sample_axis
from netspec.schema.kinds import LAYERS


@LAYERS.register
class Add(LayerSpec):
    """Add up two or more inputs element by element, as in a residual connection.

    Inputs of one shape (N, …), output the same. An axis of size 1, except the batch, is repeated to fit the others.
    """

    type: Literal["Add"] = "Add"

    samples: ClassVar = (
        Sample.of((2, 3, 4), (2, 3, 4)),
        Sample.of((2, 3, 4), (2, 3, 1), (2, 1, 4)),
        Sample.of((2, 3), (2, 3), dtypes=("float32", "int32")),
    )

    def build(self, net: Builder, first: Value, second: Value, *others: Value) -> Value:
        """Inputs: (N, …) → (N, …)."""
        inputs = (first, second, *others)
        shapes = [x.shape[1:] for x in inputs]
        need(
            len({len(shape) for shape in shapes}) == 1 and broadcast_shapes(*shapes) is not None,
            "inputs of different sizes cannot be added",
            expected="equal sizes, or 1",
            got=" and ".join(str(list(shape)) for shape in shapes) + " per sample",
        )
        return reduce(lambda total, x: total + net.floating(x), others, net.floating(first) + net.floating(second))


@LAYERS.register
class Concatenate(LayerSpec):
    """Put two or more inputs one after another along an axis: channels beside channels.

    Inputs (N, C₁, …), (N, C₂, …) …, output (N, C₁ + C₂ + …, …) for axis 1. The other axes must agree.
    """

    type: Literal["Concatenate"] = "Concatenate"
    axis: int = 1
    """the axis to join along: the channels. Keras's default, -1, is the same axis in channels-last data"""

    samples: ClassVar = (
        Sample.of((2, 3, 2, 2), (2, 1, 2, 2)),
        Sample.of((2, 3), (2, 2), (2, 3), axis=-1),
        Sample.of((2, 2), (2, 2), dtypes=("float32", "uint8")),
    )

    def build(self, net: Builder, first: Value, second: Value, *others: Value) -> Value:
        """Inputs: (N, …) → (N, …)."""
        inputs = (first, second, *others)
        rank = len(first.shape)
        sizes = " and ".join(str(list(x.shape[1:])) for x in inputs) + " per sample"
        need(
            all(len(x.shape) == rank for x in inputs),
            "inputs of different numbers of axes cannot be joined",
            expected=f"{rank - 1} axes besides the batch, as the first has",
            got=sizes,
        )
        axis = sample_axis(first, self.axis, "to join along")
        rests = {x.shape[:axis] + x.shape[axis + 1 :] for x in inputs}
        need(
            len(rests) == 1,
            f"the inputs differ in another axis than {axis}, the one they are joined along",
            expected="equal sizes everywhere else",
            got=sizes,
        )
        return Concat(axis)(*map(net.floating, inputs))
