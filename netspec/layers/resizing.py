"""The layers UpSampling1D, UpSampling2D, UpSampling3D, Resizing.

Places are the centers of pixels: output i is at (i + ½) · size / sizes[axis] - ½ of the input, as in Keras, in PyTorch
with `align_corners=False`, and in ONNX's `half_pixel`. Nothing is smoothed where the output is the smaller one.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from netspec.graph.ops.shape import PadAxis, Slice
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt
from netspec.layers.interpolation import Along, Resize, Sampling
from netspec.layers.resampling import resampled
from netspec.layers.sizes import Pair, Single, Triple, need_image, need_spatial
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import problem

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"]
MODES = {"nearest": Sampling("nearest", rounding="round_prefer_ceil"), "bilinear": Sampling("linear")}
"""Interpolations that the op has."""


def resized(x: Value, sizes: tuple[int, ...], interpolation: str, *, antialias: bool = False) -> Value:
    """x: (N, C, …) → (N, C, *sizes); of images alone where the op does not have the interpolation."""
    if interpolation in MODES and (interpolation == "nearest" or not antialias):
        return Resize(tuple(Along(axis, size) for axis, size in enumerate(sizes, 2)), MODES[interpolation])(x)
    height, width = sizes
    return resampled(x, (height, width), interpolation, antialias=antialias)


class Upsampling(LayerSpec):
    """Base of UpSampling1D to 3D."""

    rank: ClassVar[int]

    size: tuple[int, ...]

    def between(self) -> str:
        """What stands between the elements: one of `Interpolation`."""
        return "nearest"

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, sizes · size)."""
        need_spatial(x, self.rank)
        sizes = tuple(have * factor for have, factor in zip(x.shape[2:], self.size, strict=True))
        return resized(net.floating(x), sizes, self.between())


@LAYERS.register
class UpSampling1D(Upsampling):
    """Repeat each element of a sequence.

    Input (N, C, L), output (N, C, L · size).
    """

    rank: ClassVar[int] = 1

    type: Literal["UpSampling1D"] = "UpSampling1D"
    size: Single = (2,)
    """how many times"""

    samples: ClassVar = (Sample.of((2, 3, 4)), Sample.of((2, 2, 3), size=3))


@LAYERS.register
class UpSampling2D(Upsampling):
    """Make an image larger: repeat rows and columns, or interpolate between them.

    Input (N, C, H, W), output (N, C, H · size, W · size).
    """

    rank: ClassVar[int] = 2

    type: Literal["UpSampling2D"] = "UpSampling2D"
    size: Pair = (2, 2)
    """how many times higher and wider; one number for both"""
    interpolation: Interpolation = "nearest"
    """`nearest`: repeat; `bilinear`: weight the four pixels around by their nearness; the others: as in Resizing"""

    samples: ClassVar = (
        Sample.of((2, 3, 3, 4)),
        Sample.of((2, 2, 3, 4), size=(3, 1)),
        Sample.of((2, 2, 3, 4), size=(2, 3), interpolation="bilinear"),
        Sample.of((1, 2, 3, 4), size=2, interpolation="lanczos5", one_way=True),
    )

    def between(self) -> str:
        """As `interpolation` says."""
        return self.interpolation


@LAYERS.register
class UpSampling3D(Upsampling):
    """Repeat each element of a volume along its three axes.

    Input (N, C, D, H, W), output (N, C, D · size, H · size, W · size).
    """

    rank: ClassVar[int] = 3

    type: Literal["UpSampling3D"] = "UpSampling3D"
    size: Triple = (2, 2, 2)
    """how many times deeper, higher and wider; one number for all"""

    samples: ClassVar = (Sample.of((1, 2, 2, 3, 2)), Sample.of((1, 2, 2, 2, 3), size=(1, 3, 2)))


@LAYERS.register
class Resizing(LayerSpec):
    """Give images another height and width.

    Input (N, C, H, W), output (N, C, height, width). `bicubic` is Keys's kernel with a = -1/2, as in Keras on
    TensorFlow and JAX, and in Pillow (on PyTorch a is -3/4, but not with `antialias`); `lanczos3` and `lanczos5` reach
    three and five pixels far. At the border the pixels that there are count for all.
    """

    type: Literal["Resizing"] = "Resizing"
    height: PositiveInt
    """of the output"""
    width: PositiveInt
    """of the output"""
    interpolation: Interpolation = "bilinear"
    """`bilinear`: weight the four pixels around by their nearness; `nearest`: take the nearest; the others: weight more
    pixels around, some below 0, which keeps edges sharper"""
    antialias: bool = False
    """where the output is smaller, weight all pixels that it is made of, so that none is passed over; says nothing to
    `nearest`"""
    crop_to_aspect_ratio: bool = False
    """cut off two sides first, as much of each, so that nothing is distorted"""
    pad_to_aspect_ratio: bool = False
    """put `fill_value` at two sides first, as much at each, so that nothing is distorted"""
    fill_value: float = 0.0
    """what is put there"""

    samples: ClassVar = (
        Sample.of((2, 3, 4, 5), height=7, width=3),
        Sample.of((2, 2, 5, 4), height=3, width=6, interpolation="nearest"),
        Sample.of((2, 2, 4, 7), height=3, width=3, crop_to_aspect_ratio=True),
        Sample.of((2, 2, 7, 4), height=3, width=6, antialias=True, one_way=True),
        Sample.of((1, 2, 9, 6), height=4, width=8, interpolation="bicubic", antialias=True, one_way=True),
        Sample.of((1, 2, 4, 9), height=6, width=3, interpolation="lanczos3", one_way=True),
        Sample.of((2, 2, 4, 7), height=3, width=3, pad_to_aspect_ratio=True, fill_value=0.5, one_way=True),
    )

    @model_validator(mode="after")
    def _one_way_to_the_ratio(self) -> Self:
        if self.crop_to_aspect_ratio and self.pad_to_aspect_ratio:
            raise problem(
                "sides are cut off, or put there: not both", field="pad_to_aspect_ratio",
                expected="one of crop_to_aspect_ratio and pad_to_aspect_ratio", got="both",
            )  # fmt: skip
        return self

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, H, W) → (N, C, height, width)."""
        need_image(x)
        x = net.floating(x)
        height, width = x.shape[2:]
        wanted = width * self.height // self.width, height * self.width // self.height
        for axis, (have, most) in enumerate(zip((height, width), wanted, strict=True), 2):
            if self.crop_to_aspect_ratio and have > most:
                start = (have - max(1, most)) // 2
                x = Slice(axis, start, start + max(1, most))(x)
            elif self.pad_to_aspect_ratio and have < most:
                beside = (most - have) // 2  # of an odd rest Keras leaves one out, too
                x = PadAxis(axis, beside, beside)(x - self.fill_value) + self.fill_value if beside else x
        return resized(x, (self.height, self.width), self.interpolation, antialias=self.antialias)
