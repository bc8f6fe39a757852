"""Resize: resampling of axes by ONNX's rules. Each axis is resampled separately."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any, Literal

from netspec.graph.onnx_map import GRADIENT, Emitter, OnnxExpansion
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops.elementwise import Add, cast
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.source import constant
from netspec.graph.types import TensorType
from netspec.graph.value import Value, require_precomputable

Mode = Literal["nearest", "linear", "cubic"]
Transformation = Literal[
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"
]
Rounding = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
REACH = {"nearest": 1, "linear": 1, "cubic": 2}


@dataclass(frozen=True)
class Sampling:
    """How elements of the result are interpolated; names and defaults are those of ONNX."""

    mode: Mode = "nearest"
    transformation: Transformation = "half_pixel"
    rounding: Rounding = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False
    extrapolation_value: float = 0.0


@dataclass(frozen=True)
class AxisResize:
    """The new size of one axis, its scale (None: the quotient of the sizes), and the part of the input to resample."""

    axis: int
    size: int
    scale: float | None = None
    part: tuple[float, float] = (0.0, 1.0)
    rounded: bool = False
    """Whether `size` is the scaled size rounded to nearest instead of down, as ONNX computes it."""

    def scale_for(self, size: int) -> float:
        """The scale for an input of this size."""
        return self.size / size if self.scale is None else self.scale

    def centers(self, size: int, transformation: Transformation) -> list[float]:
        """The position in an input of this size that each element of the result is sampled at."""
        first, last = self.part
        length, results = self.size, range(self.size)
        if transformation == "asymmetric":
            return [i / self.scale if self.scale else i * size / self.size for i in results]
        if transformation in ("align_corners", "tf_crop_and_resize"):
            start, end = (first, last) if transformation == "tf_crop_and_resize" else (0.0, 1.0)
            if length == 1:
                middle = (end - start) / 2 if transformation == "tf_crop_and_resize" else 0.0
                return [(start + middle) * (size - 1)] * self.size
            return [i * (end - start) * (size - 1) / (length - 1) + start * (size - 1) for i in results]
        if transformation == "pytorch_half_pixel" and length == 1:
            return [0.0] * self.size
        exact = length if self.scale is None else self.scale * size
        shift = size / 2 * (1 - length / exact) if transformation == "half_pixel_symmetric" else 0.0
        if self.scale is None:  # the quotient of integers is rounded once
            return [shift + (i + 0.5) * size / self.size - 0.5 for i in results]
        return [shift + (i + 0.5) / self.scale - 0.5 for i in results]


@dataclass(frozen=True)
class AxisTaps:
    """For each element of the result, indices into the input and their weights: arrays (taps, size of the result)."""

    index: Any
    weights: Any
    outside: Any
    """(size of the result) bool: whether the position is outside the input; the element is `extrapolation_value`."""


@cache
def axis_taps(sampling: Sampling, along: AxisResize, size: int) -> AxisTaps:
    """The taps that resample an axis of this size."""
    import numpy as np

    require_precomputable(along.size, "elements to resize to")
    centers = np.array(along.centers(size, sampling.transformation))
    crops = sampling.transformation == "tf_crop_and_resize"
    outside = (centers < 0) | (centers > size - 1) if crops else np.zeros(len(centers), bool)
    if sampling.mode == "nearest":
        index, weights = _round(centers, sampling.rounding)[None], np.ones((1, len(centers)))
    else:
        stretch = max(1.0, 1 / along.scale_for(size)) if sampling.antialias else 1.0
        reach = REACH[sampling.mode] * stretch
        require_precomputable(int(2 * reach + 2) * along.size, "weights of the elements to resize")
        first = np.floor(centers - reach).astype(int) + 1
        index = first + np.arange(int(np.ceil(2 * reach)) + 1)[:, None]
        weights = _weights(sampling, (index - centers) / stretch)
        if sampling.exclude_outside:
            weights = np.where((index < 0) | (index >= size), 0.0, weights)
        if sampling.exclude_outside or sampling.antialias:
            total = weights.sum(axis=0)
            weights = weights / np.where(total == 0, 1.0, total)
        is_used = (weights != 0).any(axis=1)
        index, weights = index[is_used], weights[is_used]
    return AxisTaps(np.clip(index, 0, size - 1), np.where(outside, 0.0, weights), outside)


def _round(centers: Any, rounding: Rounding) -> Any:
    import numpy as np

    down = {"round_prefer_floor": np.ceil(centers - 0.5), "round_prefer_ceil": np.floor(centers + 0.5)}
    return (down | {"floor": np.floor(centers), "ceil": np.ceil(centers)})[rounding].astype(int)


def _weights(sampling: Sampling, distance: Any) -> Any:
    """The interpolation weight of an element by its distance from the sampled position."""
    import numpy as np

    x, a = np.abs(distance), sampling.cubic_coeff_a
    if sampling.mode == "linear":
        return np.maximum(1 - x, 0)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _to_onnx(g: Emitter, y: Value, x: str) -> str:
    op, shape = y.op, y.inputs[0].shape
    assert isinstance(op, Resize)
    by_axis, sampling, rank = {resize.axis: resize for resize in op.axes}, op.sampling, len(shape)
    scales = [_scale(by_axis[axis], size) if axis in by_axis else 1.0 for axis, size in enumerate(shape)]
    parts = [by_axis[axis].part if axis in by_axis else (0.0, 1.0) for axis in range(rank)]
    crops = sampling.transformation == "tf_crop_and_resize"
    roi = g.constant([first for first, _ in parts] + [last for _, last in parts], "float32") if crops else ""
    attributes: dict[str, Any] = {"mode": sampling.mode, "coordinate_transformation_mode": sampling.transformation}
    if sampling.mode == "nearest":
        attributes["nearest_mode"] = sampling.rounding
    if sampling.mode == "cubic":
        attributes["cubic_coeff_a"] = sampling.cubic_coeff_a
    for name in ("antialias", "exclude_outside"):
        if getattr(sampling, name):
            attributes[name] = 1
    if crops:
        attributes["extrapolation_value"] = sampling.extrapolation_value
    return g.node("Resize", x, roi, g.constant(scales, "float32"), **attributes)


def _scale(along: AxisResize, size: int) -> float:
    """A float32 scale for which ONNX's rule ⌊size · scale⌋ gives the size of the result."""
    import numpy as np

    scale = np.float32(along.scale_for(size))
    while int(scale * np.float32(size)) < along.size:
        scale = np.nextafter(scale, np.float32(np.inf))
    return float(scale)


@dataclass(frozen=True)
class Resize(Op):
    """Resample some axes: the nearest element (`nearest`), or interpolation of its neighbors (`linear`, `cubic`)."""

    axes: tuple[AxisResize, ...]
    sampling: Sampling
    onnx = OnnxExpansion(_to_onnx, lambda op: not any(resize.rounded for resize in op.axes))

    def infer(self, x: TensorType) -> TensorType:
        """x: any shape that has the axes → the same shape with their new sizes."""
        shape = list(x.shape)
        for resize in self.axes:
            self.check(resize.axis < x.rank, f"there is no axis {resize.axis}", expected=f"{x.rank} axes", got=x)
            shape[resize.axis] = resize.size
        return x.with_shape(*shape)

    def forward(self, xp: Xp, x: Array) -> Array:
        for resize in self.axes:
            axis, taps = resize.axis, axis_taps(self.sampling, resize, x.shape[resize.axis])
            column = (-1,) + (1,) * (x.ndim - 1 - axis)
            parts = [
                x.take(xp.asarray(index), axis=axis) * xp.asarray(weights, x.dtype).reshape(column)
                for index, weights in zip(taps.index, taps.weights, strict=True)
            ]
            x = sum(parts[1:], parts[0])
            if taps.outside.any():
                value = x.dtype.type(self.sampling.extrapolation_value)
                x = xp.where(xp.asarray(taps.outside).reshape(column), value, x)
        return x

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (ResizeGrad(self, y.inputs[0].type)(dy),)

    def decompose(self, x: Value) -> Value:
        import numpy as np

        rank = len(x.shape)
        for resize in self.axes:
            taps = axis_taps(self.sampling, resize, x.shape[resize.axis])
            require_precomputable(resize.size * x.shape[resize.axis], "weights of the elements to resize")
            matrix = np.zeros((resize.size, x.shape[resize.axis]))
            for index, weights in zip(taps.index, taps.weights, strict=True):
                np.add.at(matrix, (np.arange(resize.size), index), weights)
            order = (*(axis for axis in range(rank) if axis != resize.axis), resize.axis)
            back = tuple(order.index(axis) for axis in range(rank))
            y = MatMul(transpose_b=True)(Transpose(order)(x), cast(constant(matrix), x.dtype))
            if taps.outside.any():
                y = Add()(y, cast(constant(taps.outside * self.sampling.extrapolation_value), x.dtype))
            x = Transpose(back)(y)
        return x

    def linear(self) -> Resize:
        """The op with 0 as the value outside the input, which makes it linear."""
        return replace(self, sampling=replace(self.sampling, extrapolation_value=0.0))

    def flops(self, x: TensorType) -> int:
        if self.sampling.mode == "nearest":
            return 0
        return self.infer(x).size * 2 * prod(2 * REACH[self.sampling.mode] for _ in self.axes)


@dataclass(frozen=True)
class ResizeGrad(Op):
    """Gradient of a `Resize` with respect to its input, of type `x`."""

    resize: Resize
    x: TensorType
    onnx = GRADIENT

    def infer(self, dy: TensorType) -> TensorType:
        """dy: type of the result → type of the input."""
        return self.x.with_dtype(dy.dtype)

    def forward(self, xp: Xp, dy: Array) -> Array:
        for resize in reversed(self.resize.axes):
            axis, size = resize.axis, self.x.shape[resize.axis]
            dx = xp.zeros((size, *dy.shape[:axis], *dy.shape[axis + 1 :]), dy.dtype)
            rows, taps = xp.moveaxis(dy, axis, 0), axis_taps(self.resize.sampling, resize, size)
            column = (-1,) + (1,) * (dy.ndim - 1)
            for index, weights in zip(taps.index, taps.weights, strict=True):
                xp.add.at(dx, xp.asarray(index), rows * xp.asarray(weights, dy.dtype).reshape(column))
            dy = xp.moveaxis(dx, 0, axis)
        return dy

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (self.resize.linear()(dy),)

    def flops(self, dy: TensorType) -> int:
        return dy.size if self.resize.sampling.mode == "nearest" else self.resize.flops(self.x)
