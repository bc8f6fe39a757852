"""Resize: any axes in other sizes, by each of ONNX's rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.value import Value
from netspec.layers import interpolation
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, PositiveInt, need
from netspec.layers.interpolation import Along, Mode, Rounding, Sampling, Transformation
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import problem

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@LAYERS.register
class Resize(LayerSpec):
    """Give some axes other sizes, by ONNX's rules; for images in the common way there is Resizing.

    Input (N, C, …), output with other sizes along `axes`: `sizes`, or ⌊size · scale⌋. Element i of the result looks at
    a place of the input that `coordinate_transformation_mode` says, and takes the nearest element or a mean of those
    around, which at the border is that of the elements there are. https://onnx.ai/onnx/operators/onnx__Resize.html
    """

    type: Literal["Resize"] = "Resize"
    sizes: tuple[PositiveInt, ...] | None = Field(default=None, strict=False)
    """of the result, one for each of `axes`"""
    scales: tuple[Positive, ...] | None = Field(default=None, strict=False)
    """how many times larger the result is along each of `axes`; places go by it, and not by the sizes rounded down,
    but where first and last elements lie on each other"""
    axes: Axes | None = None
    """the axes, counted with the batch as axis 0; default: all from 2 on"""
    mode: Mode = "nearest"
    """`nearest`: take the nearest element; `linear`: weight the two around by their nearness, along each axis; `cubic`:
    weight four"""
    coordinate_transformation_mode: Transformation = "half_pixel"
    """`half_pixel`: element i is at i + ½ of both; `half_pixel_symmetric`: so, but centered where the size was rounded;
    `pytorch_half_pixel`: so, but a single element is at the start; `align_corners`: the first and the last elements lie
    on each other; `asymmetric`: element i is at i; `tf_crop_and_resize`: as `align_corners`, over the part `roi`"""
    nearest_mode: Rounding = "round_prefer_floor"
    """which element is the nearest one: of two as near the lower or the upper, or always the one below or above"""
    cubic_coeff_a: float = Field(default=-0.75, allow_inf_nan=False)
    """steepness of the cubic kernel: -0.75 as in PyTorch, -0.5 as in TensorFlow"""
    antialias: bool = False
    """where the result is smaller, weight all elements that it is made of"""
    exclude_outside: bool = False
    """what would lie beyond the border counts as nothing, instead of as the element at the border"""
    keep_aspect_ratio_policy: Literal["stretch", "not_larger", "not_smaller"] = "stretch"
    """`sizes` are exact; or all axes have one scale, by which none is larger, or none smaller, than in `sizes`"""
    roi: tuple[float, ...] | None = Field(default=None, strict=False)
    """where the part begins along each of `axes`, then where it ends; 0 is the first element and 1 the last"""
    extrapolation_value: float = Field(default=0.0, allow_inf_nan=False)
    """what elements are that look beyond the input, with `roi`"""

    samples: ClassVar = (
        Sample.of((2, 3, 4, 5), sizes=[7, 3], mode="linear", coordinate_transformation_mode="align_corners"),
        Sample.of((2, 2, 4, 7), scales=[0.6, 1.7], mode="cubic", exclude_outside=True),
        Sample.of((2, 3, 5), scales=[2.5], mode="nearest", coordinate_transformation_mode="asymmetric",
                  nearest_mode="floor"),
        Sample.of((2, 2, 7, 4), sizes=[3, 6], mode="linear", antialias=True),
        Sample.of((2, 4, 6), axes=[1, 2], sizes=[3, 3], keep_aspect_ratio_policy="not_larger", mode="cubic",
                  cubic_coeff_a=-0.5, coordinate_transformation_mode="half_pixel_symmetric", one_way=True),
        Sample.of((2, 2, 4, 4), sizes=[3, 3], mode="linear", coordinate_transformation_mode="tf_crop_and_resize",
                  roi=[0.4, 0.6, 1.2, 0.9], extrapolation_value=2.0),
        Sample.of((1, 2, 5, 4), sizes=[1, 9], coordinate_transformation_mode="pytorch_half_pixel",
                  nearest_mode="round_prefer_ceil"),
    )  # fmt: skip

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.sizes is None) == (self.scales is None):
            raise problem(
                "the result has given sizes, or is so many times larger", field="scales",
                expected="one of `sizes` and `scales`", got="neither" if self.sizes is None else "both",
            )  # fmt: skip
        crops = self.coordinate_transformation_mode == "tf_crop_and_resize"
        if crops != (self.roi is not None):
            raise problem(
                "`roi` goes with `coordinate_transformation_mode: tf_crop_and_resize`", field="roi",
                expected="both, or none of them", got="one",
            )  # fmt: skip
        if self.keep_aspect_ratio_policy != "stretch" and self.sizes is None:
            raise problem(
                "`scales` say what the aspect ratio is", field="keep_aspect_ratio_policy",
                expected="stretch, or `sizes`", got=self.keep_aspect_ratio_policy,
            )  # fmt: skip
        if self.antialias and self.mode == "nearest":
            raise problem(
                "`antialias` says nothing to `nearest`",
                field="antialias",
                expected="false, or another mode",
                got="true",
            )
        return self

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → the same with other sizes along `axes`."""
        rank = len(x.shape)
        axes = tuple(range(2, rank)) if self.axes is None else tuple(axis % rank for axis in self.axes)
        within = all(-rank <= axis < rank for axis in self.axes or ())
        need(
            within and axes != () and 0 not in axes and len(set(axes)) == len(axes),
            "there are no such axes to be resized",
            expected=f"different axes from 1 to {rank - 1}",
            got=f"axes {list(self.axes if self.axes is not None else axes)} of {x.type}",
        )
        given = self.sizes if self.sizes is not None else self.scales
        assert given is not None
        for name, count, wanted in (
            ("scales" if self.sizes is None else "sizes", len(given), len(axes)),
            ("roi", len(self.roi or axes * 2), 2 * len(axes)),
        ):
            need(
                count == wanted,
                f"`{name}` has another number of entries than there are axes to be resized",
                expected=f"{wanted}, for the axes {list(axes)}",
                got=f"{count}",
            )
        along = self._along(axes, [x.shape[axis] for axis in axes])
        return interpolation.Resize(along, self._sampling())(net.floating(x))

    def _sampling(self) -> Sampling:
        """The rule, of which what says nothing to the mode has its default."""
        made = Sampling(self.mode, self.coordinate_transformation_mode)
        if self.roi is not None:
            made = replace(made, extrapolation_value=self.extrapolation_value)
        if self.mode == "nearest":
            return replace(made, rounding=self.nearest_mode)
        made = replace(made, antialias=self.antialias, exclude_outside=self.exclude_outside)
        return replace(made, cubic_coeff_a=self.cubic_coeff_a) if self.mode == "cubic" else made

    def _along(self, axes: tuple[int, ...], have: list[int]) -> tuple[Along, ...]:
        roi = self.roi or (*(0.0 for _ in axes), *(1.0 for _ in axes))
        parts = list(zip(roi, roi[len(axes) :], strict=False))
        if self.scales is not None:
            made = [
                Along(axis, int(scale * size), scale, part)
                for axis, size, scale, part in zip(axes, have, self.scales, parts, strict=True)
            ]
        else:
            assert self.sizes is not None
            made = [Along(axis, size, None, part) for axis, size, part in zip(axes, self.sizes, parts, strict=True)]
            if self.keep_aspect_ratio_policy != "stretch":
                ratios = [wanted / size for wanted, size in zip(self.sizes, have, strict=True)]
                scale = (min if self.keep_aspect_ratio_policy == "not_larger" else max)(ratios)
                made = [
                    Along(one.axis, int(scale * size + 0.5), scale, one.part, rounded=True)
                    for one, size in zip(made, have, strict=True)
                ]
        for one in made:
            need(one.size > 0, f"nothing is left of axis {one.axis}", expected="a larger scale", got=f"size {one.size}")
        return tuple(made)
