"""Resize, and Upsample, its name before opset 10."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.windows import short
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature


@dataclass(frozen=True)
class Resized:
    """One axis: its size before and after, the scale if coordinates depend on it, and the region that is read."""

    before: int
    size: int
    scale: float | None
    part: tuple[float, float] = (0.0, 1.0)

    @property
    def changes(self) -> bool:
        """Whether the axis is resized at all."""
        return self.size != self.before or self.scale not in (None, 1.0) or self.part != (0.0, 1.0)


@rule("Resize", "Upsample", keeps_type=True)
def resize(ctx: LiftContext, node: OperatorNode) -> None:
    """An integer factor → UpSampling; an image to any size → Resizing; other sampling rules or axes → Resize."""
    shape = ctx.tensors.shape(node.inputs[0])
    by_axis = {axis: resized for axis, resized in _axes(ctx, node, shape).items() if resized.changes}
    if 0 in by_axis and not ctx.tensors.single_sample:
        raise MixesSamples("it resizes the batch axis")
    spatial = [by_axis.get(axis, Resized(size, size, None)) for axis, size in enumerate(shape) if axis > 1]
    if not by_axis:
        ctx.reshaping.alias(node, node.inputs[0])
    elif 0 in by_axis:
        in_net = {axis + ctx.tensors.axis_offset: resized for axis, resized in by_axis.items()}
        ctx.layers.add(node, "Resize", node.inputs[:1], _fields(node, in_net, len(shape) + ctx.tensors.axis_offset))
    elif min(by_axis) < 2 or len(spatial) not in (1, 2, 3) or not _add_keras_layer(ctx, node, spatial):
        ctx.reshaping.add_per_sample(node, "Resize", node.inputs[:1], _fields(node, by_axis, len(shape)))


def _add_keras_layer(ctx: LiftContext, node: OperatorNode, spatial: list[Resized]) -> bool:
    """Add UpSampling or Resizing if it samples the same coordinates as the operator. Return whether it does."""
    mode, coordinates, rounding = _mode(node), _coordinates(node), _rounding(node)
    if any(resized.scale not in (None, 1.0) for resized in spatial) or _policy(node):
        return False
    is_integer, rank = all(resized.size % resized.before == 0 for resized in spatial), len(spatial)
    centers = coordinates == "half_pixel" or (
        coordinates == "pytorch_half_pixel" and min(resized.size for resized in spatial) > 1
    )
    if mode == "nearest":
        repeats = is_integer and (
            (centers and rounding.startswith("round")) or (coordinates, rounding) == ("asymmetric", "floor")
        )
        fits = repeats or (centers and rounding == "round_prefer_ceil")
    else:
        fits = centers and mode == "linear"
    if not fits or node.attributes.get("antialias") or node.attributes.get("exclude_outside"):
        return False
    if is_integer and (mode == "nearest" or rank == 2):
        factors = [resized.size // resized.before for resized in spatial]
        fields: dict[str, Any] = {"size": short(factors)}
        if mode != "nearest":
            fields["interpolation"] = "bilinear"
        ctx.reshaping.add_per_sample(node, f"UpSampling{rank}D", node.inputs[:1], fields)
    elif rank == 2:
        height, width = (resized.size for resized in spatial)
        interpolation = mode if mode == "nearest" else "bilinear"
        sizes = {"height": height, "width": width, "interpolation": interpolation}
        ctx.reshaping.add_per_sample(node, "Resizing", node.inputs[:1], sizes)
    else:
        return False
    return True


def _fields(node: OperatorNode, by_axis: dict[int, Resized], rank: int) -> dict[str, Any]:
    """The fields of the layer Resize."""
    axes = sorted(by_axis)
    fields: dict[str, Any] = {} if axes == list(range(2, rank)) else {"axes": axes[0] if len(axes) == 1 else axes}
    if any(resized.scale is not None for resized in by_axis.values()) and not _policy(node):
        scaled = [by_axis[axis] for axis in axes]
        fields["scales"] = [axis.size / axis.before if axis.scale is None else axis.scale for axis in scaled]
    else:
        fields["sizes"] = [by_axis[axis].size for axis in axes]
    fields |= {
        "mode": _mode(node),
        "coordinate_transformation_mode": _coordinates(node),
        "nearest_mode": _rounding(node),
    }
    fields |= {name: bool(node.attributes.get(name)) for name in ("antialias", "exclude_outside")}
    if _mode(node) == "cubic":
        fields["cubic_coeff_a"] = _short(node.attributes.get("cubic_coeff_a", -0.75))
    if _policy(node):
        fields["keep_aspect_ratio_policy"] = _policy(node)
    if _coordinates(node) == "tf_crop_and_resize":
        fields["roi"] = [by_axis[axis].part[side] for side in range(2) for axis in axes]
        fields["extrapolation_value"] = _short(node.attributes.get("extrapolation_value", 0.0))
    if _mode(node) != "nearest":
        del fields["nearest_mode"]
    return fields


def _axes(ctx: LiftContext, node: OperatorNode, shape: tuple[int, ...]) -> dict[int, Resized]:
    """The axes that the operator names, resized."""
    axes = [axis % len(shape) for axis in node.attributes.get("axes") or range(len(shape))]
    count = len(axes)
    roi = [0.0] * count + [1.0] * count
    if _coordinates(node) == "tf_crop_and_resize":
        roi = [_short(number) for number in ctx.tensors.constant(node.operand(1), "roi").reshape(-1)]
    parts = list(zip(roi, roi[count:], strict=False))
    have = [shape[axis] for axis in axes]
    if node.operand(3):
        sizes = [int(size) for size in ctx.tensors.constant(node.operand(3), "sizes").reshape(-1)]
        if len(sizes) != count:
            raise UnsupportedFeature(f"its `sizes` {sizes} must have {count} values, one per axis")
        resized_axes = [
            Resized(size, new_size, None, part) for size, new_size, part in zip(have, sizes, parts, strict=True)
        ]
    else:
        scales = _scales(ctx, node)
        if len(scales) != count:
            raise UnsupportedFeature(f"its `scales` {scales} must have {count} values, one per axis")
        resized_axes = [_scaled(size, scale, part) for size, scale, part in zip(have, scales, parts, strict=True)]
    if prod(resized.size for resized in resized_axes) <= 0:
        raise UnsupportedFeature(f"it resizes {have} to {[resized.size for resized in resized_axes]}, which is empty")
    return dict(zip(axes, resized_axes, strict=True))


def _scaled(size: int, scale: float, part: tuple[float, float]) -> Resized:
    # Scales are float32, in which a factor such as 1/3 is not exact: a nearly integer size means the integer.
    exact = size * scale
    if abs(exact - round(exact)) <= 1e-5 * exact:
        return Resized(size, round(exact), None, part)
    short = _short(scale)
    return Resized(size, int(exact), short if int(size * short) == int(exact) else float(scale), part)


def _scales(ctx: LiftContext, node: OperatorNode) -> list[Any]:
    if node.op_type == "Upsample" and node.opset < 9:
        return list(node.attributes.get("scales") or [])
    index = 1 if node.op_type == "Upsample" or node.opset < 11 else 2
    return list(ctx.tensors.constant(node.operand(index), "scales").reshape(-1).tolist())


def _short(number: Any) -> float:
    """The shortest decimal that is the same number in float32."""
    return float(str(np.float32(number)))


def _mode(node: OperatorNode) -> str:
    mode: str = node.attributes.get("mode", "nearest")
    return "linear" if mode == "bilinear" else mode


def _coordinates(node: OperatorNode) -> str:
    default = "half_pixel" if _newer(node) else "asymmetric"
    coordinates: str = node.attributes.get("coordinate_transformation_mode", default)
    return coordinates


def _rounding(node: OperatorNode) -> str:
    rounding: str = node.attributes.get("nearest_mode", "round_prefer_floor" if _newer(node) else "floor")
    return rounding


def _newer(node: OperatorNode) -> bool:
    return node.opset >= 11 and node.op_type == "Resize"


def _policy(node: OperatorNode) -> str:
    """The policy that keeps the aspect ratio; empty if there is none."""
    policy: str = node.attributes.get("keep_aspect_ratio_policy", "stretch")
    return "" if policy == "stretch" or not node.operand(3) else policy
