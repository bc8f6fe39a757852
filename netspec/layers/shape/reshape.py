"""Layers that change the shape or the order of axes: Flatten, Reshape, Permute, Squeeze, Transpose, Tile, …."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.graph.ops import shape
from netspec.graph.ops.reduce import Broadcast, reshape_to
from netspec.graph.types import batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, PositiveInt, require, sample_axis
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import describe, problem


@LAYERS.register
class Flatten(LayerSpec):
    """Reshape each sample to a vector.

    Input (N, C, H, W), output (N, C·H·W); an input (N) becomes (N, 1). Elements are in memory order: channels first.
    """

    type: Literal["Flatten"] = "Flatten"

    samples: ClassVar = (Sample.of((2, 3, 4, 5)), Sample.of((3,)), Sample.of((3, 4)))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, product of …)."""
        return reshape_to(x, (x.shape[0], prod(x.shape[1:])))


def _target(value: Any) -> Any:
    sizes = [value] if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(sizes, (list, tuple)):
        raise problem("has an invalid value", expected="a list of sizes, without the batch axis", got=describe(value))
    for index, size in enumerate(sizes):
        if isinstance(size, bool) or not isinstance(size, int) or (size < 1 and size != -1):
            where = str(index) if isinstance(value, (list, tuple)) else None
            raise problem(
                "has an invalid value", field=where, expected="1 or more, or -1 for what remains", got=describe(size)
            )
    if list(sizes).count(-1) > 1:
        raise problem("has -1 more than once", expected="-1 at most once", got=str(list(sizes)))
    return tuple(sizes)


TargetShape = Annotated[tuple[int, ...], BeforeValidator(_target, json_schema_input_type=int | list[int])]
"""Sizes without the batch axis, of which one may be -1."""


@LAYERS.register
class Reshape(LayerSpec):
    """Reshape each sample to another shape with the same number of elements.

    Input (N, …), output (N, *target_shape).
    """

    onnx_equivalents: ClassVar = ("Flatten",)

    type: Literal["Reshape"] = "Reshape"
    target_shape: TargetShape
    """The new sizes, without the batch axis; one may be -1 and is then computed."""

    samples: ClassVar = (
        Sample.of((2, 3, 4), target_shape=[4, 3]),
        Sample.of((2, 12), target_shape=[3, -1, 2]),
        Sample.of((2, 3, 1), target_shape=3),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, *target_shape)."""
        have, fixed_size = prod(x.shape[1:]), prod(size for size in self.target_shape if size != -1)
        free = -1 in self.target_shape
        require(
            have % fixed_size == 0 if free else have == fixed_size,
            f"{have} elements per sample cannot be reshaped to {list(self.target_shape)}",
            expected=f"a multiple of {fixed_size} elements" if free else f"{fixed_size} elements per sample",
            got=f"{batch_shape(x.shape)}, which is {have}",
        )
        sizes = tuple(have // fixed_size if size == -1 else size for size in self.target_shape)
        return reshape_to(x, (x.shape[0], *sizes))


def _order(value: Any) -> Any:
    listed = isinstance(value, (list, tuple)) and all(type(axis) is int for axis in value)
    if not listed or sorted(value) != list(range(1, len(value) + 1)):
        expected = "each axis from 1 once, without the batch, such as [2, 1]"
        raise problem("not a permutation of the axes", expected=expected, got=describe(value))
    return tuple(value)


Order = Annotated[tuple[int, ...], BeforeValidator(_order, json_schema_input_type=list[int])]
"""Axes from 1 in another order; 0, the batch, is left out."""


@LAYERS.register
class Permute(LayerSpec):
    """Reorder the axes of each sample.

    Input (N, …), output (N, …): axis i of the output is axis dims[i - 1] of the input. [2, 1] transposes matrices.
    """

    type: Literal["Permute"] = "Permute"
    dims: Order
    """The axes of the input in their new order, counted from 1: the batch is axis 0 and stays."""

    samples: ClassVar = (Sample.of((2, 3, 4), dims=[2, 1]), Sample.of((2, 3, 1, 2), dims=[3, 1, 2]))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        require(
            len(x.shape) == len(self.dims) + 1,
            f"`dims` does not have an entry for each axis: it has {len(self.dims)}",
            expected=f"{len(x.shape) - 1} entries, without the batch",
            got=x.type,
        )
        return shape.Transpose((0, *self.dims))(x)


@LAYERS.register
class RepeatVector(LayerSpec):
    """Repeat the vector of each sample: a sequence of equal vectors, for example as input of a decoder.

    Input (N, features), output (N, n, features).
    """

    type: Literal["RepeatVector"] = "RepeatVector"
    n: PositiveInt
    """Number of repetitions."""

    samples: ClassVar = (Sample.of((2, 3), n=4),)

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, features) → (N, n, features)."""
        require(len(x.shape) == 2, "the input is not a vector", expected="(batch, features)", got=x.type)
        batch, features = x.shape
        return Broadcast((batch, self.n, features))(reshape_to(x, (batch, 1, features)))


@LAYERS.register
class Squeeze(LayerSpec):
    """Remove axes of size 1.

    Input (N, 1, C, 1), output (N, C). The batch stays.
    """

    foreign_fields: ClassVar[dict[str, str]] = {"dim": "`dim` is PyTorch's name: use `axis`"}
    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Reshape", "Flatten")

    type: Literal["Squeeze"] = "Squeeze"
    axis: Axes | None = None
    """The axes to remove, a number or a list; default: all of size 1 but the batch."""

    samples: ClassVar = (Sample.of((2, 1, 3, 1)), Sample.of((1, 3, 1, 2), axis=-2))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …, 1, …) → (N, …)."""
        ones = [axis for axis, size in enumerate(x.shape) if axis and size == 1]
        axes = ones if self.axis is None else [sample_axis(x, axis, "to remove") for axis in self.axis]
        for axis in axes:
            require(axis in ones, f"axis {axis} is not of size 1", expected="1 element along it", got=x.type)
        return reshape_to(x, tuple(size for axis, size in enumerate(x.shape) if axis not in axes))


@LAYERS.register
class ExpandDims(LayerSpec):
    """Insert an axis of size 1.

    Input (N, C), output (N, 1, C) for axis 1, (N, C, 1) for axis 2 or -1.
    """

    foreign_fields: ClassVar[dict[str, str]] = {"dim": "`dim` is PyTorch's name: use `axis`"}
    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Reshape", "Flatten")

    type: Literal["ExpandDims"] = "ExpandDims"
    axis: int = 1
    """Position of the axis in the output; a negative one is counted from the end."""

    samples: ClassVar = (Sample.of((2, 3)), Sample.of((2, 3, 2), axis=-1), Sample.of((3,), axis=1))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …, 1, …)."""
        rank = len(x.shape) + 1
        require(
            -rank < self.axis < rank and self.axis != 0,
            f"an axis cannot be inserted at {self.axis}",
            expected="axis 1" if rank == 2 else f"an axis from 1 to {rank - 1}, or -1 for the last",
            got=x.type,
            hint="axis 0 is the batch" if self.axis in (0, -rank) else None,
        )
        axis = self.axis % rank
        return reshape_to(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def _axes_in_order(value: Any) -> Any:
    listed = isinstance(value, (list, tuple)) and all(type(axis) is int for axis in value)
    if not listed or list(value[:1]) != [0] or sorted(value) != list(range(len(value))):
        expected = "0 (the batch), and then each other axis once, such as [0, 2, 1]"
        raise problem("not a permutation of the axes", expected=expected, got=describe(value))
    return tuple(value)


AxesInOrder = Annotated[tuple[int, ...], BeforeValidator(_axes_in_order, json_schema_input_type=list[int])]
"""All axes in another order, the batch first."""


@LAYERS.register
class Transpose(LayerSpec):
    """Reorder the axes; the batch stays first.

    Input (N, …), output (N, …): axis i of the output is axis axes[i] of the input. (Permute is the same, with the axes
    numbered as in Keras's layer.)
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "perm": "`perm` is ONNX's name: use `axes`",
        "dims": "use `axes`, which begins with 0, the batch; Permute has `dims`",
    }
    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Permute",)

    type: Literal["Transpose"] = "Transpose"
    axes: AxesInOrder | None = None
    """All axes in their new order, such as [0, 2, 1]; default: those after the batch in reverse order."""

    samples: ClassVar = (Sample.of((2, 3, 4)), Sample.of((2, 3, 1, 2), axes=[0, 3, 1, 2]))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        rank = len(x.shape)
        axes = (0, *range(rank - 1, 0, -1)) if self.axes is None else self.axes
        require(
            len(axes) == rank,
            f"`axes` does not have an entry for each axis: it has {len(axes)}",
            expected=f"{rank} entries, including the batch",
            got=x.type,
        )
        return shape.Transpose(axes)(x)


FEW = 256
"""Largest number of copies that are concatenated one by one."""


@LAYERS.register
class Tile(LayerSpec):
    """Repeat the full input along an axis, as NumPy's `tile` does.

    Input (N, C, …), output (N, C · tiles, …).
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "repeats": "use `tiles`, along one `axis`",
        "multiples": "use `tiles`, along one `axis`",
    }
    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Concatenate", "RepeatVector")

    type: Literal["Tile"] = "Tile"
    tiles: PositiveInt
    """Number of repetitions."""
    axis: int = 1
    """The axis to repeat along; 1 is the channels."""

    samples: ClassVar = (
        Sample.of((2, 3, 2), tiles=2),
        Sample.of((2, 2), tiles=3, axis=-1),
        Sample.of((2, 1, 2), tiles=3),
    )

    def build(self, builder: Builder, x: Value) -> Value:
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
