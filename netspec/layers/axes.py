"""The axes of a sample: Squeeze, ExpandDims, Transpose, Tile."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.graph.ops import shape
from netspec.graph.ops.reduce import Broadcast, reshape_to
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, PositiveInt, need, sample_axis
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import describe, problem


@LAYERS.register
class Squeeze(LayerSpec):
    """Leave out axes of size 1.

    Input (N, 1, C, 1), output (N, C). The batch stays.
    """

    foreign_fields: ClassVar[dict[str, str]] = {"dim": "`dim` is PyTorch's name: here it is `axis`"}
    alike: ClassVar[tuple[str, ...]] = ("Reshape", "Flatten")

    type: Literal["Squeeze"] = "Squeeze"
    axis: Axes | None = None
    """the axes to leave out, a number or a list; default: all of size 1 but the batch"""

    samples: ClassVar = (Sample.of((2, 1, 3, 1)), Sample.of((1, 3, 1, 2), axis=-2))

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …, 1, …) → (N, …)."""
        ones = [axis for axis, size in enumerate(x.shape) if axis and size == 1]
        axes = ones if self.axis is None else [sample_axis(x, axis, "to leave out") for axis in self.axis]
        for axis in axes:
            need(axis in ones, f"axis {axis} is not of size 1", expected="1 element along it", got=x.type)
        return reshape_to(x, tuple(size for axis, size in enumerate(x.shape) if axis not in axes))


@LAYERS.register
class ExpandDims(LayerSpec):
    """Put in an axis of size 1.

    Input (N, C), output (N, 1, C) for axis 1, (N, C, 1) for axis 2 or -1.
    """

    foreign_fields: ClassVar[dict[str, str]] = {"dim": "`dim` is PyTorch's name: here it is `axis`"}
    alike: ClassVar[tuple[str, ...]] = ("Reshape", "Flatten")

    type: Literal["ExpandDims"] = "ExpandDims"
    axis: int = 1
    """where the axis is to be in the output; a negative one is counted from the end"""

    samples: ClassVar = (Sample.of((2, 3)), Sample.of((2, 3, 2), axis=-1), Sample.of((3,), axis=1))

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …, 1, …)."""
        rank = len(x.shape) + 1
        need(
            -rank < self.axis < rank and self.axis != 0,
            f"there is no place {self.axis} for an axis",
            expected="1" if rank == 2 else f"1 to {rank - 1}, or -1 for the last",
            got=x.type,
            hint="axis 0 is the batch" if self.axis in (0, -rank) else None,
        )
        axis = self.axis % rank
        return reshape_to(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def _axes_in_order(value: Any) -> Any:
    listed = isinstance(value, (list, tuple)) and all(type(axis) is int for axis in value)
    if not listed or list(value[:1]) != [0] or sorted(value) != list(range(len(value))):
        expected = "0, the batch, and then each other axis once, such as [0, 2, 1]"
        raise problem("not an order of axes", expected=expected, got=str(list(value)) if listed else describe(value))
    return tuple(value)


AxesInOrder = Annotated[tuple[int, ...], BeforeValidator(_axes_in_order, json_schema_input_type=list[int])]
"""All axes in another order, the batch first."""


@LAYERS.register
class Transpose(LayerSpec):
    """Give the axes another order; the batch stays where it is.

    Input (N, …), output (N, …): axis i of the output is axis axes[i] of the input. (Permute is the same, with the axes
    as Keras's layer numbers them.)
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "perm": "`perm` is ONNX's name: here it is `axes`",
        "dims": "here it is `axes`, which begins with 0, the batch; Permute has `dims`",
    }
    alike: ClassVar[tuple[str, ...]] = ("Permute",)

    type: Literal["Transpose"] = "Transpose"
    axes: AxesInOrder | None = None
    """all axes in their new order, such as [0, 2, 1]; default: those behind the batch backwards"""

    samples: ClassVar = (Sample.of((2, 3, 4)), Sample.of((2, 3, 1, 2), axes=[0, 3, 1, 2]))

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        rank = len(x.shape)
        axes = (0, *range(rank - 1, 0, -1)) if self.axes is None else self.axes
        need(
            len(axes) == rank,
            f"`axes` orders {len(axes)} axes",
            expected=f"{len(axes)} axes, the batch among them",
            got=x.type,
        )
        return shape.Transpose(axes)(x)


FEW = 256
"""More copies than this are not joined one by one."""


@LAYERS.register
class Tile(LayerSpec):
    """Repeat the input along an axis, all of it again and again.

    Input (N, C, …), output (N, C · tiles, …).
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "repeats": "here it is `tiles`, along one `axis`",
        "multiples": "here it is `tiles`, along one `axis`",
    }
    alike: ClassVar[tuple[str, ...]] = ("Concatenate", "RepeatVector")

    type: Literal["Tile"] = "Tile"
    tiles: PositiveInt
    """how many times"""
    axis: int = 1
    """the axis to repeat along; 1 is the channels"""

    samples: ClassVar = (
        Sample.of((2, 3, 2), tiles=2),
        Sample.of((2, 2), tiles=3, axis=-1),
        Sample.of((2, 1, 2), tiles=3),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C · tiles, …)."""
        axis = sample_axis(x, self.axis, "to repeat along")
        if self.tiles == 1:
            return x
        before, size, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
        if size == 1:
            return Broadcast((*before, self.tiles, *behind))(x)
        if self.tiles <= FEW:
            return shape.Concat(axis)(*[x] * self.tiles)
        spread = Broadcast((*before, self.tiles, size, *behind))(reshape_to(x, (*before, 1, size, *behind)))
        return reshape_to(spread, (*before, self.tiles * size, *behind))
