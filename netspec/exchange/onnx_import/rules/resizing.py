"""Resize, and Upsample, as it was called before opset 10."""

from __future__ import annotations

from math import floor
from typing import Any

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.rules.windows import short
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("Resize", "Upsample")
def resize(net: Translator, node: Node) -> None:
    """By a whole factor → UpSampling2D (or 1D, 3D), of an image to any size → Resizing."""
    shape = net.shape(node.inputs[0])
    wanted = _wanted(net, node, shape)
    spatial, sizes = shape[2:], wanted[2:]
    if len(spatial) not in (1, 2, 3) or wanted[:2] != shape[:2]:
        raise Unsupported(f"{list(shape)} made {list(wanted)}, not other sizes of 1 to 3 spatial axes")
    mode = node.attributes.get("mode", "nearest")
    mode = mode if isinstance(mode, str) else mode.decode()
    whole = all(want % have == 0 for want, have in zip(sizes, spatial, strict=True))
    _need_same_places(node, mode, whole, min(sizes))
    rank = len(spatial)
    if whole and (mode == "nearest" or rank == 2):
        factors = [want // have for want, have in zip(sizes, spatial, strict=True)]
        fields: dict[str, Any] = {} if set(factors) == {2} else {"size": short(factors)}
        if mode != "nearest":
            fields["interpolation"] = "bilinear"
        net.add(node, f"UpSampling{rank}D", node.inputs[:1], fields)
    elif rank == 2:
        fields = {"height": sizes[0], "width": sizes[1]} | ({"interpolation": mode} if mode == "nearest" else {})
        net.add(node, "Resizing", node.inputs[:1], fields)
    else:
        raise Unsupported(f"{mode} resizing over {rank} axes, not by repeating")


def _wanted(net: Translator, node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the result."""
    if node.operand(3):
        return tuple(int(size) for size in net.constant(node.operand(3), "sizes"))
    place = 1 if node.op_type == "Upsample" or node.opset < 11 else 2
    given = node.attributes.get("scales") if node.opset < 9 else net.constant(node.operand(place), "scales").tolist()
    scales = list(given or [])
    if len(scales) != len(shape):
        raise Unsupported(f"scales {scales} of {len(shape)} axes")
    exact = [size * scale for size, scale in zip(shape, scales, strict=True)]
    # Scales are float32: a factor such as 7/4 or 1/3 is not exact there.
    if any(abs(size - round(size)) > 1e-5 * size for size in exact):
        raise Unsupported(f"scales {scales} that leave a part of a pixel")
    return tuple(floor(size + 0.5) for size in exact)


def _need_same_places(node: Node, mode: str, whole: bool, least: int) -> None:
    """Raise unless the operator looks where the layer looks: at the centers of pixels, the upper of two near ones."""
    default = "half_pixel" if node.opset >= 11 and node.op_type == "Resize" else "asymmetric"
    where = node.attributes.get("coordinate_transformation_mode", default)
    rounding = node.attributes.get("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
    centers = where == "half_pixel" or (where == "pytorch_half_pixel" and least > 1)
    if mode == "nearest":
        repeats = centers and rounding.startswith("round")
        repeats = whole and (repeats or (where == "asymmetric" and rounding == "floor"))
        fits = repeats or (centers and rounding == "round_prefer_ceil")
    else:
        fits = centers and mode == "linear"
    if not fits or node.attributes.get("antialias") or node.attributes.get("exclude_outside"):
        raise Unsupported(f"{mode} interpolation with {where} coordinates ({rounding})")
