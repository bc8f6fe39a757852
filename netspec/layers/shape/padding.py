"""Padding and cropping: ZeroPadding1D to 3D, Cropping1D to 3D, CenterCrop, and Pad, of any axes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from netspec.graph.ops.shape import PadAxis, Slice, Take
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require, require_countable
from netspec.layers.spatial import ExplicitPadding, Sides1D, Sides2D, Sides3D, require_spatial
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import describe, problem


class ZeroPadding(LayerSpec):
    """Base of ZeroPadding1D to 3D."""

    rank: ClassVar[int]

    padding: ExplicitPadding

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        require_spatial(x, self.rank)
        for axis, (before, after) in enumerate(self.padding, 2):
            if before or after:
                x = PadAxis(axis, before, after)(x)
        return x


class Cropping(LayerSpec):
    """Base of Cropping1D to 3D."""

    rank: ClassVar[int]

    cropping: ExplicitPadding

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        require_spatial(x, self.rank)
        fits = all(sum(sides) < size for sides, size in zip(self.cropping, x.shape[2:], strict=True))
        require(
            fits,
            "nothing is left after cropping",
            expected="less cropping than the size of the input",
            got=f"{[list(sides) for sides in self.cropping]} of {x.type.describe()}",
        )
        for axis, (before, after) in enumerate(self.cropping, 2):
            if before or after:
                x = Slice(axis, before, x.shape[axis] - after)(x)
        return x


@LAYERS.register
class ZeroPadding1D(ZeroPadding):
    """Put zeros around a sequence.

    Input (N, C, L), output (N, C, L + before + after).
    """

    rank: ClassVar[int] = 1

    type: Literal["ZeroPadding1D"] = "ZeroPadding1D"
    padding: Sides1D = ((1, 1),)
    """Elements before and after; one number for both, or [before, after]."""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 2, 3), padding=[2, 0]),
    )


@LAYERS.register
class ZeroPadding2D(ZeroPadding):
    """Put zeros around an image.

    Input (N, C, H, W), output (N, C, H + top + bottom, W + left + right).
    """

    rank: ClassVar[int] = 2

    type: Literal["ZeroPadding2D"] = "ZeroPadding2D"
    padding: Sides2D = ((1, 1), (1, 1))
    """Rows and columns at each side: a number for all sides, [height, width] for both sides of each axis, or [[top,
    bottom], [left, right]]."""

    samples: ClassVar = (
        Sample.of((2, 3, 2, 3)),
        Sample.of((2, 2, 3, 2), padding=[[0, 2], [1, 0]]),
        Sample.of((1, 2, 2, 2), padding=[0, 2]),
    )


@LAYERS.register
class ZeroPadding3D(ZeroPadding):
    """Put zeros around a volume.

    Input (N, C, D, H, W), output (N, C, D + before + after, H + top + bottom, W + left + right).
    """

    rank: ClassVar[int] = 3

    type: Literal["ZeroPadding3D"] = "ZeroPadding3D"
    padding: Sides3D = ((1, 1), (1, 1), (1, 1))
    """Elements at each side: a number for all sides, one for both sides of each axis, or three pairs."""

    samples: ClassVar = (
        Sample.of((1, 2, 2, 1, 2)),
        Sample.of((1, 2, 2, 2, 1), padding=[[0, 1], [0, 0], [2, 1]]),
    )


@LAYERS.register
class Cropping1D(Cropping):
    """Cut off the sides of a sequence.

    Input (N, C, L), output (N, C, L - before - after).
    """

    rank: ClassVar[int] = 1

    type: Literal["Cropping1D"] = "Cropping1D"
    cropping: Sides1D = ((1, 1),)
    """Elements before and after; one number for both, or [before, after]."""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 2, 5), cropping=[3, 0]),
    )


@LAYERS.register
class Cropping2D(Cropping):
    """Cut off the sides of an image.

    Input (N, C, H, W), output (N, C, H - top - bottom, W - left - right).
    """

    rank: ClassVar[int] = 2

    type: Literal["Cropping2D"] = "Cropping2D"
    cropping: Sides2D = ((0, 0), (0, 0))
    """Rows and columns at each side: a number for all sides, [height, width] for both sides of each axis, or [[top,
    bottom], [left, right]]."""

    samples: ClassVar = (
        Sample.of((2, 3, 4, 3), cropping=1),
        Sample.of((2, 2, 3, 4), cropping=[[0, 2], [1, 0]]),
        Sample.of((1, 2, 2, 5), cropping=[0, 2]),
    )


@LAYERS.register
class Cropping3D(Cropping):
    """Cut off the sides of a volume.

    Input (N, C, D, H, W), output (N, C, D - before - after, H - top - bottom, W - left - right).
    """

    rank: ClassVar[int] = 3

    type: Literal["Cropping3D"] = "Cropping3D"
    cropping: Sides3D = ((1, 1), (1, 1), (1, 1))
    """Elements at each side: a number for all sides, one for both sides of each axis, or three pairs."""

    samples: ClassVar = (
        Sample.of((1, 2, 3, 4, 3)),
        Sample.of((1, 2, 2, 2, 4), cropping=[[0, 1], [0, 0], [2, 1]]),
    )


def _sides(value: Any) -> Any:
    listed = value if isinstance(value, (list, tuple)) else ()
    for index, sides in enumerate(listed):
        fits = isinstance(sides, (list, tuple)) and len(sides) == 2 and all(type(side) is int for side in sides)
        if not fits:
            raise problem("not a pair", field=str(index), expected="[before, after], integers", got=describe(sides))
    if not listed:
        raise problem(
            "not a list of pairs", expected="[before, after] for each axis after the batch", got=describe(value)
        )
    return tuple(tuple(sides) for sides in listed)


AllSides = Annotated[tuple[tuple[int, int], ...], BeforeValidator(_sides, json_schema_input_type=list[list[int]])]
"""Elements before and after along each axis; negative ones are cut off."""


@LAYERS.register
class Pad(LayerSpec):
    """Pad data along any axes, with a constant or with its own elements.

    Input (N, …), output with each axis longer by `before + after`. Negative sides are cut off. (For zeros around images
    use ZeroPadding2D.)
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "pads": "`pads` is ONNX's name: use `padding`, [before, after] for each axis",
        "constant_value": "use `value`",
    }
    onnx_equivalents: ClassVar[tuple[str, ...]] = (
        "Gather", *(f"{kind}{rank}D" for kind in ("ZeroPadding", "Cropping") for rank in (1, 2, 3)),
    )  # fmt: skip

    type: Literal["Pad"] = "Pad"
    padding: AllSides
    """Pairs [before, after], one for each axis after the batch."""
    mode: Literal["constant", "reflect", "edge", "wrap"] = "constant"
    """The padding: `value`; the data mirrored at its first and last element; these elements repeated; or the data from
    its other end."""
    value: float = Field(default=0.0, allow_inf_nan=True)
    """The value of the mode constant; `-.inf` hides the padding from a softmax or a maximum."""

    samples: ClassVar = (
        Sample.of((2, 2, 3), padding=[[1, 0], [0, 2]], value=0.5),
        Sample.of((2, 3, 4), padding=[[0, 0], [1, 2]], mode="reflect"),
        Sample.of((2, 3, 2), padding=[[2, 1], [0, 1]], mode="edge"),
        Sample.of((2, 3), padding=[[4, 2]], mode="wrap"),
        Sample.of((2, 3), padding=[[0, 1]], value=2**40, dtypes=("int64",)),
        Sample.of((2, 4, 3), padding=[[-1, 1], [0, -1]], no_onnx_roundtrip=True),
    )

    @model_validator(mode="after")
    def _value_of_constant(self) -> Self:
        if self.mode != "constant" and self.value:
            raise problem(f"`value` has no effect with `mode: {self.mode}`", field="value", expected="no `value`")
        return self

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        rank = len(x.shape) - 1
        require(
            len(self.padding) == rank,
            "`padding` must have one pair per axis",
            expected=f"{rank} pairs",
            got=len(self.padding),
        )
        for axis, (before, after) in enumerate(self.padding, 1):
            start, size = max(0, -before), x.shape[axis]
            stop = size + min(0, after)
            require(start < stop, f"all of axis {axis} is cut off", expected=f"fewer than {size} cut off", got=x.type)
            if (start, stop) != (0, size):
                x = Slice(axis, start, stop)(x)
            if before > 0 or after > 0:
                x = self._padded(x, axis, max(0, before), max(0, after))
        return x

    def _padded(self, x: Value, axis: int, before: int, after: int) -> Value:
        if self.mode == "constant":
            return PadAxis(axis, before, after, self.value)(x)
        size = x.shape[axis]
        positions = range(-before, size + after)
        require_countable(len(positions), axis)
        if self.mode == "edge":
            index = [min(max(position, 0), size - 1) for position in positions]
        elif self.mode == "wrap":
            index = [position % size for position in positions]
        else:  # back and forth: 0 1 2 3 2 1 0 1 …
            period = max(1, 2 * (size - 1))
            index = [min(position % period, period - position % period) if size > 1 else 0 for position in positions]
        return Take(axis, tuple(index))(x)


@LAYERS.register
class CenterCrop(LayerSpec):
    """Keep the middle of an image. An odd rest leaves one more row to cut off below, or column on the right.

    Input (N, C, H, W), output (N, C, height, width). If the input is smaller, Keras enlarges it: here that is the layer
    Resizing.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Cropping2D",)

    type: Literal["CenterCrop"] = "CenterCrop"
    height: PositiveInt
    """Number of rows to keep."""
    width: PositiveInt
    """Number of columns to keep."""

    samples: ClassVar = (
        Sample.of((2, 2, 5, 4), height=2, width=3),
        Sample.of((1, 3, 3, 4), height=3, width=2),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, H, W) → (N, C, height, width)."""
        require_spatial(x, 2)
        sizes = (self.height, self.width)
        require(
            all(length <= size for length, size in zip(sizes, x.shape[2:], strict=True)),
            "the input is smaller than the output",
            expected=f"{self.height} rows and {self.width} columns, or more", got=x.type,
        )  # fmt: skip
        for axis, length in enumerate(sizes, 2):
            start = (x.shape[axis] - length) // 2
            if length < x.shape[axis]:
                x = Slice(axis, start, start + length)(x)
        return x
