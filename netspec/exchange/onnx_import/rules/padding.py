"""Numbers around data, and sides cut off: Pad and CenterCropPad."""

from __future__ import annotations

from typing import Any

from netspec.exchange.onnx_import.model import Node
from netspec.exchange.onnx_import.rules.windows import padding_field
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("Pad")
def pad(net: Translator, node: Node) -> None:
    """Zeros around spatial axes → ZeroPadding2D (or 1D, 3D); other axes, numbers and modes → Pad."""
    rank, operand = net.rank(node.inputs[0]), node.operand(1)
    given = net.constant(operand, "padding").reshape(-1).tolist() if operand else node.attributes["pads"]
    axes = net.constant(node.operand(3), "axes").tolist() if node.operand(3) else list(range(rank))
    value = net.constant(node.operand(2), "value").item() if node.operand(2) else node.attributes.get("value", 0.0)
    mode = node.attributes.get("mode", "constant")
    sides = [(0, 0)] * rank
    for axis, before, after in zip(axes, given[: len(axes)], given[len(axes) :], strict=True):
        sides[axis % rank] = int(before), int(after)
    _padded(net, node, sides, mode if isinstance(mode, str) else mode.decode(), float(str(value)))


def _padded(net: Translator, node: Node, sides: list[tuple[int, int]], mode: str, value: float) -> None:
    """Around each axis of the operand so much before and after; less than nothing is cut off."""
    rank = len(sides)
    zeros = mode == "constant" and not value and min(map(min, sides)) >= 0
    if zeros and rank in (3, 4, 5) and not any(map(any, sides[:2])):
        fields = padding_field(sides[2:]) or {"padding": 0}
        net.sampled(node, f"ZeroPadding{rank - 2}D", node.inputs[:1], {} if fields == {"padding": 1} else fields)
        return
    if not any(map(any, sides)):
        net.same(node, node.inputs[0])
        return
    for axis, side in enumerate(sides):
        if any(side):
            net.axis(node.inputs[0], axis, "it pads the batch")
    given: dict[str, Any] = {"padding": [list(side) for side in sides[1 - net.lead :]]}
    given |= ({} if mode == "constant" else {"mode": mode}) | ({"value": value} if value else {})
    net.add(node, "Pad", node.inputs[:1], given)


@rule("CenterCropPad")
def center_crop_pad(net: Translator, node: Node) -> None:
    """The middle of axes, or zeros around them → Pad: of an odd rest the larger half is behind."""
    shape = net.shape(node.inputs[0])
    wanted = net.constant(node.inputs[1], "shape").tolist()
    axes = node.attributes.get("axes") or range(len(shape))
    sides = [(0, 0)] * len(shape)
    for axis, size in zip(axes, wanted, strict=True):
        more = size - shape[axis]
        before = more // 2 if more > 0 else -(-more // 2)
        sides[axis] = before, more - before
    _padded(net, node, sides, "constant", 0.0)
