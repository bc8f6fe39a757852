"""Pad and CenterCropPad."""

from __future__ import annotations

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.windows import padding_field
from netspec.exchange.operator_graph.graph import OperatorNode


@rule("Pad")
def pad(ctx: LiftContext, node: OperatorNode) -> None:
    """Zeros around spatial axes → ZeroPadding2D (or 1D, 3D); other axes, values and modes → Pad."""
    rank, operand = ctx.tensors.rank(node.inputs[0]), node.operand(1)
    pads = ctx.tensors.constant(operand, "padding").reshape(-1).tolist() if operand else node.attributes["pads"]
    axes = ctx.tensors.constant(node.operand(3), "axes").tolist() if node.operand(3) else list(range(rank))
    value = (
        ctx.tensors.constant(node.operand(2), "value").item() if node.operand(2) else node.attributes.get("value", 0.0)
    )
    mode = node.attributes.get("mode", "constant")
    sides = [(0, 0)] * rank
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        sides[axis % rank] = int(before), int(after)
    _padded(ctx, node, sides, mode if isinstance(mode, str) else mode.decode(), float(str(value)))


def _padded(ctx: LiftContext, node: OperatorNode, sides: list[tuple[int, int]], mode: str, value: float) -> None:
    """Pad each axis of the operand before and after; negative numbers crop."""
    rank = len(sides)
    zeros = mode == "constant" and not value and min(map(min, sides)) >= 0
    if zeros and rank in (3, 4, 5) and not any(map(any, sides[:2])) and not ctx.layers.is_permuted(node.inputs[0]):
        fields = padding_field(sides[2:]) or {"padding": 0}
        ctx.reshaping.add_per_sample(node, f"ZeroPadding{rank - 2}D", node.inputs[:1], fields)
        return
    if not any(map(any, sides)):
        ctx.reshaping.alias(node, node.inputs[0])
        return
    for axis, side in enumerate(sides):
        if any(side):
            ctx.tensors.axis(node.inputs[0], axis, "it pads the batch")
    view = ctx.layers.permuted_view(node.inputs[0])
    stored = [list(sides[view.axes.index((axis,))]) for axis in range(1, rank + ctx.tensors.axis_offset)]
    fields = {"padding": stored, "mode": mode, "value": value}
    ctx.layers.add(node, "Pad", [view.source], fields, result_axes=lambda rank: view.axes)


@rule("CenterCropPad")
def center_crop_pad(ctx: LiftContext, node: OperatorNode) -> None:
    """Crop or zero-pad axes around their center → Pad. An odd difference has its larger half at the end."""
    shape = ctx.tensors.shape(node.inputs[0])
    sizes = ctx.tensors.constant(node.inputs[1], "shape").tolist()
    axes = node.attributes.get("axes") or range(len(shape))
    sides = [(0, 0)] * len(shape)
    for axis, size in zip(axes, sizes, strict=True):
        more = size - shape[axis]
        before = more // 2 if more > 0 else -(-more // 2)
        sides[axis] = before, more - before
    _padded(ctx, node, sides, "constant", 0.0)
