"""Concat, Gather, Slice and Split along an axis in front of the samples: states (directions, N, H), heads (3, N, …)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netspec.exchange.axis_view import Axes, AxisView
from netspec.exchange.lift.context import LiftContext
from netspec.exchange.operator_graph.graph import OperatorNode


def concat_leading_axis(ctx: LiftContext, node: OperatorNode) -> bool:
    """Add a Concat of tensors with the same layout, whose samples are not along the first axis. False for others."""
    if ctx.tensors.single_sample or not all(map(ctx.tensors.is_computed, node.inputs)):
        return False
    views = [ctx.tensors.view(name) for name in node.inputs]
    if views[0].axes[:1] == ((0,),) or any(view.axes != views[0].axes for view in views):
        return False
    layout, axis = views[0].axes, node.attributes["axis"]
    if layout[axis] == (0,):
        return False
    sources = [view.source for view in views]
    if not layout[axis]:
        sources = [ctx.tensors.fresh_name(name) for name in node.inputs]
        for view, name in zip(views, sources, strict=True):
            shape = [1, *ctx.layers.value(view.source).shape[1:]]
            ctx.layers.add(node, "Reshape", [view.source], {"target_shape": shape}, outputs=[name])
        layout = _shifted(layout, 1, 1)
        layout = tuple((1,) if index == axis % len(layout) else group for index, group in enumerate(layout))
    (along,) = layout[axis]
    ctx.layers.add(node, "Concatenate", sources, {"axis": along}, result_axes=lambda rank: layout)
    return True


def gather_leading_axis(ctx: LiftContext, node: OperatorNode) -> bool:
    """Add a Gather of one constant index along an axis in front of the samples. False for other nodes."""
    data, index = node.inputs
    if index not in ctx.tensors.constants or ctx.tensors.constants[index].ndim:
        return False
    axis = node.attributes["axis"] % ctx.tensors.rank(data)
    view = _is_leading_axis(ctx, data, axis) and _select_index(
        ctx, node, data, axis, int(ctx.tensors.constants[index]), node.outputs[0]
    )
    if not view:
        return False
    ctx.tensors.views[node.outputs[0]] = AxisView(view.source, (*view.axes[:axis], *view.axes[axis + 1 :]), node)
    return True


def slice_leading_axis(
    ctx: LiftContext, node: OperatorNode, parts: Mapping[int, tuple[int, int, int]], flipped: Sequence[int]
) -> bool:
    """Add a Slice along axes of a tensor whose samples are not in front; a single index becomes a Gather.

    `flipped` are the axes whose indices, ascending in `parts`, are to be in descending order. False for other tensors.
    """
    data = node.inputs[0]
    axes = {*parts, *flipped}
    if not axes or not all(_is_leading_axis(ctx, data, axis) for axis in axes):
        return False
    if len(axes) == len(parts) == 1 and all(len(range(*part)) == 1 for part in parts.values()):
        ((axis, part),) = parts.items()
        picked = _select_index(ctx, node, data, axis, part[0], node.outputs[0])
        if picked is not None:
            ctx.tensors.views[node.outputs[0]] = picked
        return picked is not None
    view = ctx.tensors.view(data)
    if not all(view.axes[axis] for axis in axes):
        return False
    layers: list[tuple[str, int, dict[str, int]]] = [
        ("Slice", axis, {"start": start, "stop": stop, "step": step}) for axis, (start, stop, step) in parts.items()
    ]
    layers += [("Flip", axis, {}) for axis in flipped]
    source = view.source
    for count, (type_, axis, fields) in enumerate(layers, 1):
        along, last = view.axis(axis), count == len(layers)
        result = node.outputs[0] if last else ctx.tensors.fresh_name(node.outputs[0])
        result_axes = (lambda _: view.axes) if last else None
        ctx.layers.add(node, type_, [source], {"axis": along, **fields}, outputs=[result], result_axes=result_axes)
        source = result
    return True


def split_leading_axis(ctx: LiftContext, node: OperatorNode, axis: int, parts: Sequence[tuple[str, int]]) -> bool:
    """Add a Split along an axis of a tensor whose samples are not in front, as Slices or Gathers. False for others."""
    data = node.inputs[0]
    if not _is_leading_axis(ctx, data, axis) or not ctx.tensors.view(data).axes[axis]:
        return False
    view, start = ctx.tensors.view(data), 0
    if all(size == 1 for _, size in parts):
        for index, (name, _) in enumerate(parts):
            picked = _select_index(ctx, node, data, axis, index, name) if name else None
            if picked is not None:
                ctx.tensors.views[name] = picked
        return True
    along = view.axis(axis)
    for name, size in parts:
        if name:
            fields = {"axis": along, "start": start, "stop": start + size}
            ctx.layers.add(node, "Slice", [view.source], fields, outputs=[name], result_axes=lambda _: view.axes)
        start += size
    return True


def _is_leading_axis(ctx: LiftContext, data: str, axis: int) -> bool:
    """Whether a computed tensor does not have its samples in front, and `axis` is one axis of the net or of size 1."""
    if ctx.tensors.single_sample or not ctx.tensors.is_computed(data):
        return False
    axes = ctx.tensors.view(data).axes
    return axes[:1] != ((0,),) and len(axes[axis]) < 2 and axes[axis] != (0,)


def _select_index(
    ctx: LiftContext, node: OperatorNode, data: str, axis: int, index: int, output: str
) -> AxisView | None:
    """The view of one index along an axis, which becomes an axis of size 1; None if the index does not exist."""
    view, source = ctx.tensors.view(data), ctx.tensors.view(data).source
    remaining = (*view.axes[:axis], (), *view.axes[axis + 1 :])
    if view.axes[axis]:
        along = view.axis(axis)
        gathered, source = ctx.tensors.fresh_name(data), ctx.tensors.fresh_name(output)
        ctx.layers.add(node, "Gather", [view.source], {"indices": [index], "axis": along}, outputs=[gathered])
        ctx.layers.add(node, "Squeeze", [gathered], {"axis": along}, outputs=[source])
        remaining = _shifted(remaining, along, -1)
    elif index not in (0, -1):
        return None
    return AxisView(source, remaining, node)


def _shifted(axes: Axes, start: int, by: int) -> Axes:
    """The axes, with the numbers of the net's axes from `start` on increased by `by`."""
    return tuple(tuple(axis + by if axis >= start else axis for axis in group) for group in axes)
