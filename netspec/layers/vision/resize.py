"""Resize, by ONNX's rules; UpSampling1D to 3D and Resizing, by Keras's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops import resize
from netspec.graph.ops.elementwise import cast
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.resize import AxisResize, Mode, Rounding, Sampling, Transformation
from netspec.graph.ops.shape import PadAxis, Slice
from netspec.graph.ops.source import constant
from netspec.graph.value import Value, require_precomputable
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, PositiveInt, require
from netspec.layers.spatial import Size1D, Size2D, Size3D, require_image, require_spatial
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import problem

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@LAYERS.register
class Resize(LayerSpec):
    """Resize any axes by ONNX's rules; for images, Resizing is simpler.

    Input (N, C, …), output with other sizes along `axes`: `sizes`, or ⌊size · scale⌋. `coordinate_transformation_mode`
    maps each element of the result to a position in the input, where the nearest element or a mean of the elements
    around is taken; beyond the border, the element at the border is used.
    https://onnx.ai/onnx/operators/onnx__Resize.html
    """

    type: Literal["Resize"] = "Resize"
    sizes: tuple[PositiveInt, ...] | None = Field(default=None, strict=False)
    """Sizes of the result, one for each of `axes`."""
    scales: tuple[Positive, ...] | None = Field(default=None, strict=False)
    """Scale factor for each of `axes`. Positions follow from it, not from the rounded sizes, unless the first and last
    elements are aligned."""
    axes: Axes | None = None
    """The axes, counted with the batch as axis 0; default: all from 2 on."""
    mode: Mode = "nearest"
    """`nearest`: take the nearest element; `linear`: weight the two around by their nearness, along each axis; `cubic`:
    weight four."""
    coordinate_transformation_mode: Transformation = "half_pixel"
    """`half_pixel`: element i is at i + ½ in both; `half_pixel_symmetric`: the same, but centered if the size was
    rounded; `pytorch_half_pixel`: the same, but a single element is at the start; `align_corners`: the first and the
    last elements are aligned; `asymmetric`: element i is at i; `tf_crop_and_resize`: as `align_corners`, within the
    part `roi`."""
    nearest_mode: Rounding = "round_prefer_floor"
    """Choice of the nearest element: round ties down or up, or always round down or up."""
    cubic_coeff_a: float = Field(default=-0.75, allow_inf_nan=False)
    """Steepness of the cubic kernel: -0.75 as in PyTorch, -0.5 as in TensorFlow."""
    antialias: bool = False
    """Average all elements that each element of a smaller result covers."""
    exclude_outside: bool = False
    """Elements beyond the border are left out, instead of repeating the border's element."""
    keep_aspect_ratio_policy: Literal["stretch", "not_larger", "not_smaller"] = "stretch"
    """`stretch`: `sizes` are exact; `not_larger`: all axes have one scale, the largest at which none exceeds its size
    in `sizes`; `not_smaller`: the smallest at which none falls below it."""
    roi: tuple[float, ...] | None = Field(default=None, strict=False)
    """Start of the part along each of `axes`, then its end; 0 is the first element and 1 the last."""
    extrapolation_value: float = Field(default=0.0, allow_inf_nan=False)
    """Value of elements outside of the input, with `roi`."""

    samples: ClassVar = (
        Sample.of((2, 3, 4, 5), sizes=[7, 3], mode="linear", coordinate_transformation_mode="align_corners"),
        Sample.of((2, 2, 4, 7), scales=[0.6, 1.7], mode="cubic", exclude_outside=True),
        Sample.of((2, 3, 5), scales=[2.5], mode="nearest", coordinate_transformation_mode="asymmetric",
                  nearest_mode="floor"),
        Sample.of((2, 2, 7, 4), sizes=[3, 6], mode="linear", antialias=True),
        Sample.of((2, 4, 6), axes=[1, 2], sizes=[3, 3], keep_aspect_ratio_policy="not_larger", mode="cubic",
                  cubic_coeff_a=-0.5, coordinate_transformation_mode="half_pixel_symmetric", no_onnx_roundtrip=True),
        Sample.of((2, 2, 4, 4), sizes=[3, 3], mode="linear", coordinate_transformation_mode="tf_crop_and_resize",
                  roi=[0.4, 0.6, 1.2, 0.9], extrapolation_value=2.0),
        Sample.of((1, 2, 5, 4), sizes=[1, 9], coordinate_transformation_mode="pytorch_half_pixel",
                  nearest_mode="round_prefer_ceil"),
    )  # fmt: skip

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.sizes is None) == (self.scales is None):
            raise problem(
                "the output size must be given by one field", field="scales",
                expected="one of `sizes` and `scales`", got="neither" if self.sizes is None else "both",
            )  # fmt: skip
        crops = self.coordinate_transformation_mode == "tf_crop_and_resize"
        if crops != (self.roi is not None):
            raise problem(
                "`roi` and `coordinate_transformation_mode: tf_crop_and_resize` need each other", field="roi",
                expected="both or neither", got="`roi` alone" if self.roi is not None else "no `roi`",
            )  # fmt: skip
        if self.keep_aspect_ratio_policy != "stretch" and self.sizes is None:
            raise problem(
                "`keep_aspect_ratio_policy` has no effect with `scales`", field="keep_aspect_ratio_policy",
                expected="`keep_aspect_ratio_policy: stretch`, or `sizes`", got=self.keep_aspect_ratio_policy,
            )  # fmt: skip
        if self.antialias and self.mode == "nearest":
            raise problem(
                "`antialias` has no effect with `mode: nearest`",
                field="antialias",
                expected="`antialias: false`, or a different `mode`",
                got="true",
            )
        return self

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → the same with other sizes along `axes`."""
        rank = len(x.shape)
        axes = tuple(range(2, rank)) if self.axes is None else tuple(axis % rank for axis in self.axes)
        within = all(-rank <= axis < rank for axis in self.axes or ())
        require(
            within and axes != () and 0 not in axes and len(set(axes)) == len(axes),
            "these axes cannot be resized",
            expected=f"different axes from 1 to {rank - 1}",
            got=f"axes {list(self.axes if self.axes is not None else axes)} of {x.type.describe()}",
        )
        values = self.sizes if self.sizes is not None else self.scales
        assert values is not None
        for name, count, expected in (
            ("scales" if self.sizes is None else "sizes", len(values), len(axes)),
            ("roi", len(self.roi or axes * 2), 2 * len(axes)),
        ):
            require(
                count == expected,
                f"`{name}` must have one entry for each resized axis",
                expected=f"{expected}, for the axes {list(axes)}",
                got=f"{count}",
            )
        along = self._along(axes, [x.shape[axis] for axis in axes])
        return resize.Resize(along, self._sampling())(builder.floating(x))

    def _sampling(self) -> Sampling:
        """The sampling rule; settings that do not apply to the mode have their defaults."""
        sampling = Sampling(self.mode, self.coordinate_transformation_mode)
        if self.roi is not None:
            sampling = replace(sampling, extrapolation_value=self.extrapolation_value)
        if self.mode == "nearest":
            return replace(sampling, rounding=self.nearest_mode)
        sampling = replace(sampling, antialias=self.antialias, exclude_outside=self.exclude_outside)
        return replace(sampling, cubic_coeff_a=self.cubic_coeff_a) if self.mode == "cubic" else sampling

    def _along(self, axes: tuple[int, ...], sizes: list[int]) -> tuple[AxisResize, ...]:
        roi = self.roi or (*(0.0 for _ in axes), *(1.0 for _ in axes))
        parts = list(zip(roi, roi[len(axes) :], strict=False))
        if self.scales is not None:
            resizes = [
                AxisResize(axis, int(scale * size), scale, part)
                for axis, size, scale, part in zip(axes, sizes, self.scales, parts, strict=True)
            ]
        else:
            assert self.sizes is not None
            resizes = [
                AxisResize(axis, size, None, part) for axis, size, part in zip(axes, self.sizes, parts, strict=True)
            ]
            if self.keep_aspect_ratio_policy != "stretch":
                ratios = [new / old for new, old in zip(self.sizes, sizes, strict=True)]
                scale = (min if self.keep_aspect_ratio_policy == "not_larger" else max)(ratios)
                resizes = [
                    AxisResize(resize_.axis, int(scale * size + 0.5), scale, resize_.part, rounded=True)
                    for resize_, size in zip(resizes, sizes, strict=True)
                ]
        for axis_resize in resizes:
            require(
                axis_resize.size > 0,
                f"axis {axis_resize.axis} would have size 0",
                expected="a larger scale",
                got=f"size {axis_resize.size}",
            )
        return tuple(resizes)


@dataclass(frozen=True)
class Filter:
    """Interpolation filter: weight of an element by its distance from a center, 0 from `reach` on."""

    name: str
    reach: int

    def at(self, distance: Any) -> Any:
        """The weights for an array of distances, before they are normalized to sum to 1."""
        import numpy as np

        x = np.abs(distance)
        if self.name == "bilinear":
            return np.maximum(1 - x, 0)
        if self.name == "bicubic":  # Keys 1981, with a = -1/2
            return np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, ((2.5 - 0.5 * x) * x - 4) * x + 2, 0))
        return np.where(x < self.reach, np.sinc(x) * np.sinc(x / self.reach), 0)  # Lanczos


_REACHES = {"bilinear": 1, "bicubic": 2, "lanczos3": 3, "lanczos5": 5}
FILTERS = {name: Filter(name, reach) for name, reach in _REACHES.items()}


def filter_weights(size: int, new_size: int, filter_: Filter, *, antialias: bool) -> Any:
    """Weights (new_size, size) of the input's elements in each element of the result. Rows sum to 1.

    Positions are the centers of elements. With `antialias` the filter is stretched if the result is smaller than the
    input, so that every element contributes.
    """
    import numpy as np

    require_precomputable(size * new_size, "weights of the elements to resize")
    step = size / new_size
    centers = (np.arange(new_size) + 0.5) * step - 0.5
    stretch = max(step, 1.0) if antialias else 1.0
    weights = filter_.at((np.arange(size) - centers[:, None]) / stretch)
    return weights / weights.sum(axis=1, keepdims=True)


def resample(x: Value, sizes: tuple[int, int], interpolation: str, *, antialias: bool) -> Value:
    """x: (N, C, H, W) → (N, C, *sizes)."""
    height, width = (
        cast(constant(filter_weights(size, new_size, FILTERS[interpolation], antialias=antialias)), x.dtype)
        for size, new_size in zip(x.shape[2:], sizes, strict=True)
    )
    return MatMul()(height, MatMul(transpose_b=True)(x, width))


Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"]
MODES = {"nearest": Sampling("nearest", rounding="round_prefer_ceil"), "bilinear": Sampling("linear")}
"""Interpolations that the op supports."""


def resize_images(x: Value, sizes: tuple[int, ...], interpolation: str, *, antialias: bool = False) -> Value:
    """x: (N, C, …) → (N, C, *sizes); only images if the op does not support the interpolation."""
    if interpolation in MODES and (interpolation == "nearest" or not antialias):
        return resize.Resize(tuple(AxisResize(axis, size) for axis, size in enumerate(sizes, 2)), MODES[interpolation])(
            x
        )
    height, width = sizes
    return resample(x, (height, width), interpolation, antialias=antialias)


class Upsampling(LayerSpec):
    """Base of UpSampling1D to 3D."""

    rank: ClassVar[int]

    size: tuple[int, ...]

    def between(self) -> str:
        """Interpolation between the elements: one of `Interpolation`."""
        return "nearest"

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, sizes · size)."""
        require_spatial(x, self.rank)
        sizes = tuple(have * factor for have, factor in zip(x.shape[2:], self.size, strict=True))
        return resize_images(builder.floating(x), sizes, self.between())


@LAYERS.register
class UpSampling1D(Upsampling):
    """Repeat each element of a sequence.

    Input (N, C, L), output (N, C, L · size).
    """

    rank: ClassVar[int] = 1

    type: Literal["UpSampling1D"] = "UpSampling1D"
    size: Size1D = (2,)
    """Factor along the axis."""

    samples: ClassVar = (Sample.of((2, 3, 4)), Sample.of((2, 2, 3), size=3))


@LAYERS.register
class UpSampling2D(Upsampling):
    """Make an image larger: repeat rows and columns, or interpolate between them.

    Input (N, C, H, W), output (N, C, H · size, W · size).
    """

    rank: ClassVar[int] = 2

    type: Literal["UpSampling2D"] = "UpSampling2D"
    size: Size2D = (2, 2)
    """Factors for height and width; a single number sets both."""
    interpolation: Interpolation = "nearest"
    """`nearest`: repeat; `bilinear`: weight the four pixels around by their nearness; the others: as in Resizing."""

    samples: ClassVar = (
        Sample.of((2, 3, 3, 4)),
        Sample.of((2, 2, 3, 4), size=(3, 1)),
        Sample.of((2, 2, 3, 4), size=(2, 3), interpolation="bilinear"),
        Sample.of((1, 2, 3, 4), size=2, interpolation="lanczos5", no_onnx_roundtrip=True),
    )

    def between(self) -> str:
        """Return the interpolation between elements."""
        return self.interpolation


@LAYERS.register
class UpSampling3D(Upsampling):
    """Repeat each element of a volume along its three axes.

    Input (N, C, D, H, W), output (N, C, D · size, H · size, W · size).
    """

    rank: ClassVar[int] = 3

    type: Literal["UpSampling3D"] = "UpSampling3D"
    size: Size3D = (2, 2, 2)
    """Factors for depth, height and width; a single number sets all."""

    samples: ClassVar = (Sample.of((1, 2, 2, 3, 2)), Sample.of((1, 2, 2, 2, 3), size=(1, 3, 2)))


@LAYERS.register
class Resizing(LayerSpec):
    """Resize images to a given height and width.

    Input (N, C, H, W), output (N, C, height, width). `bicubic` is Keys's kernel with a = -1/2, as in Keras on
    TensorFlow and JAX, and in Pillow (on PyTorch a is -3/4, but not with `antialias`); `lanczos3` and `lanczos5` extend
    over three and five pixels. At the border the weights of the existing pixels are normalized.
    """

    type: Literal["Resizing"] = "Resizing"
    height: PositiveInt
    """Height of the output."""
    width: PositiveInt
    """Width of the output."""
    interpolation: Interpolation = "bilinear"
    """`bilinear`: weight the four pixels around by their nearness; `nearest`: take the nearest; the others: weight more
    pixels around, some below 0, which keeps edges sharper."""
    antialias: bool = False
    """Average all pixels that each pixel of a smaller output covers, so that none is skipped; no effect with
    `nearest`."""
    crop_to_aspect_ratio: bool = False
    """Crop two opposite sides equally first, to keep the aspect ratio."""
    pad_to_aspect_ratio: bool = False
    """Pad two opposite sides equally with `fill_value` first, to keep the aspect ratio."""
    fill_value: float = 0.0
    """Value of the padding."""

    samples: ClassVar = (
        Sample.of((2, 3, 4, 5), height=7, width=3),
        Sample.of((2, 2, 5, 4), height=3, width=6, interpolation="nearest"),
        Sample.of((2, 2, 4, 7), height=3, width=3, crop_to_aspect_ratio=True),
        Sample.of((2, 2, 7, 4), height=3, width=6, antialias=True, no_onnx_roundtrip=True),
        Sample.of((1, 2, 9, 6), height=4, width=8, interpolation="bicubic", antialias=True, no_onnx_roundtrip=True),
        Sample.of((1, 2, 4, 9), height=6, width=3, interpolation="lanczos3", no_onnx_roundtrip=True),
        Sample.of((2, 2, 4, 7), height=3, width=3, pad_to_aspect_ratio=True, fill_value=0.5, no_onnx_roundtrip=True),
    )

    @model_validator(mode="after")
    def _one_way_to_the_ratio(self) -> Self:
        if self.crop_to_aspect_ratio and self.pad_to_aspect_ratio:
            raise problem(
                "an image is either cropped or padded", field="pad_to_aspect_ratio",
                expected="one of crop_to_aspect_ratio and pad_to_aspect_ratio", got="both",
            )  # fmt: skip
        return self

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, H, W) → (N, C, height, width)."""
        require_image(x)
        x = builder.floating(x)
        height, width = x.shape[2:]
        limits = width * self.height // self.width, height * self.width // self.height
        for axis, (size, limit) in enumerate(zip((height, width), limits, strict=True), 2):
            if self.crop_to_aspect_ratio and size > limit:
                start = (size - max(1, limit)) // 2
                x = Slice(axis, start, start + max(1, limit))(x)
            elif self.pad_to_aspect_ratio and size < limit:
                pad = (limit - size) // 2  # as in Keras, an odd difference is rounded down
                x = PadAxis(axis, pad, pad)(x - self.fill_value) + self.fill_value if pad else x
        return resize_images(x, (self.height, self.width), self.interpolation, antialias=self.antialias)
