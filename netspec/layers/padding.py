"""Zeros around data, and sides cut off: ZeroPadding1D to 3D, Cropping1D to 3D."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.shape import PadAxis, Slice
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample, need
from netspec.layers.sizes import need_spatial
from netspec.layers.window import Explicit, Sides1D, Sides2D, Sides3D
from netspec.schema.kinds import LAYERS


class ZeroPadding(LayerSpec):
    """Base of ZeroPadding1D to 3D."""

    rank: ClassVar[int]

    padding: Explicit

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        need_spatial(x, self.rank)
        for axis, (before, after) in enumerate(self.padding, 2):
            if before or after:
                x = PadAxis(axis, before, after)(x)
        return x


class Cropping(LayerSpec):
    """Base of Cropping1D to 3D."""

    rank: ClassVar[int]

    cropping: Explicit

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        need_spatial(x, self.rank)
        fits = all(sum(sides) < size for sides, size in zip(self.cropping, x.shape[2:], strict=True))
        need(
            fits,
            "nothing is left after cropping",
            expected="less cut off than the input is large",
            got=f"{[list(sides) for sides in self.cropping]} of {x.type}",
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
    """how many before and after; one number for both, or [before, after]"""

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
    """how many rows and columns at each side: a number for all sides, [height, width] for both sides of each axis, or
    [[top, bottom], [left, right]]"""

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
    """how many at each side: a number for all sides, one for both sides of each axis, or three pairs"""

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
    """how many before and after; one number for both, or [before, after]"""

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
    """how many rows and columns at each side: a number for all sides, [height, width] for both sides of each axis, or
    [[top, bottom], [left, right]]"""

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
    """how many at each side: a number for all sides, one for both sides of each axis, or three pairs"""

    samples: ClassVar = (
        Sample.of((1, 2, 3, 4, 3)),
        Sample.of((1, 2, 2, 2, 4), cropping=[[0, 1], [0, 0], [2, 1]]),
    )
