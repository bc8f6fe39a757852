"""Concat, Gather, Slice and Split along an axis in front of the samples: states (directions, N, H), heads (3, N, …)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netspec.exchange.onnx_import.model import Node
from netspec.exchange.onnx_import.tensors import Axes, View
from netspec.exchange.onnx_import.translate import Translator


def joined_beside(net: Translator, node: Node) -> bool:
    """Write down a Concat of tensors that lie alike, with their samples along another axis than the first."""
    if net.whole or not all(map(net.is_computed, node.inputs)):
        return False
    views = [net.held(name) for name in node.inputs]
    if views[0].axes[:1] == ((0,),) or any(view.axes != views[0].axes for view in views):
        return False
    lies, axis = views[0].axes, node.attributes["axis"]
    if lies[axis] == (0,):
        return False
    sources = [view.source for view in views]
    if not lies[axis]:
        sources = [net.hide(name) for name in node.inputs]
        for view, name in zip(views, sources, strict=True):
            shape = [1, *net.value(view.source).shape[1:]]
            net.add(node, "Reshape", [view.source], {"target_shape": shape}, outputs=[name])
        lies = _shifted(lies, 1, 1)
        lies = tuple((1,) if place == axis % len(lies) else one for place, one in enumerate(lies))
    (along,) = lies[axis]
    net.add(node, "Concatenate", sources, {} if along == 1 else {"axis": along}, laid=lambda rank: lies)
    return True


def picked_beside(net: Translator, node: Node) -> bool:
    """Write down a Gather of one constant place along an axis in front of the samples."""
    data, index = node.inputs
    if index not in net.constants or net.constants[index].ndim:
        return False
    axis = node.attributes["axis"] % net.rank(data)
    found = _beside(net, data, axis) and _picked(net, node, data, axis, int(net.constants[index]), node.outputs[0])
    if not found:
        return False
    net.views[node.outputs[0]] = View(found.source, (*found.axes[:axis], *found.axes[axis + 1 :]), node)
    return True


def cut_beside(net: Translator, node: Node, parts: Mapping[int, tuple[int, int, int]], turned: Sequence[int]) -> bool:
    """Write down a Slice along axes of a tensor that does not have its samples in front; one place is picked.

    `turned` are the axes whose places, counted upwards in `parts`, are wanted in the opposite order.
    """
    data = node.inputs[0]
    axes = {*parts, *turned}
    if not axes or not all(_beside(net, data, axis) for axis in axes):
        return False
    if len(axes) == len(parts) == 1 and all(len(range(*part)) == 1 for part in parts.values()):
        ((axis, part),) = parts.items()
        found = _picked(net, node, data, axis, part[0], node.outputs[0])
        if found is not None:
            net.views[node.outputs[0]] = found
        return found is not None
    view = net.held(data)
    if not all(view.axes[axis] for axis in axes):
        return False
    layers: list[tuple[str, int, dict[str, int]]] = [
        ("Slice", axis, {"start": start, "stop": stop, **({} if step == 1 else {"step": step})})
        for axis, (start, stop, step) in parts.items()
    ]
    layers += [("Flip", axis, {}) for axis in turned]
    source = view.source
    for count, (type_, axis, fields) in enumerate(layers, 1):
        along, last = view.axis(axis), count == len(layers)
        made = node.outputs[0] if last else net.hide(node.outputs[0])
        at = {} if along == 1 else {"axis": along}
        net.add(node, type_, [source], {**at, **fields}, outputs=[made], laid=(lambda _: view.axes) if last else None)
        source = made
    return True


def split_beside(net: Translator, node: Node, axis: int, parts: Sequence[tuple[str, int]]) -> bool:
    """Write down a Split along an axis of a tensor without its samples in front; single places are picked."""
    data = node.inputs[0]
    if not _beside(net, data, axis) or not net.held(data).axes[axis]:
        return False
    view, start = net.held(data), 0
    if all(size == 1 for _, size in parts):
        for place, (name, _) in enumerate(parts):
            found = _picked(net, node, data, axis, place, name) if name else None
            if found is not None:
                net.views[name] = found
        return True
    along = view.axis(axis)
    for name, size in parts:
        if name:
            at = {} if along == 1 else {"axis": along}
            fields = {**at, "start": start, "stop": start + size}
            net.add(node, "Slice", [view.source], fields, outputs=[name], laid=lambda _: view.axes)
        start += size
    return True


def _beside(net: Translator, data: str, axis: int) -> bool:
    """Whether an axis of a computed tensor is one of the net's, or none, and its samples are not in front."""
    if net.whole or not net.is_computed(data):
        return False
    axes = net.held(data).axes
    return axes[:1] != ((0,),) and len(axes[axis]) < 2 and axes[axis] != (0,)


def _picked(net: Translator, node: Node, data: str, axis: int, place: int, output: str) -> View | None:
    """One place along an axis, which the net does not have then; None where the place is not there."""
    view, source = net.held(data), net.held(data).source
    rest = (*view.axes[:axis], (), *view.axes[axis + 1 :])
    if view.axes[axis]:
        along = view.axis(axis)
        gathered, source = net.hide(data), net.hide(output)
        at = {} if along == 1 else {"axis": along}
        net.add(node, "Gather", [view.source], {"indices": [place], **at}, outputs=[gathered])
        net.add(node, "Squeeze", [gathered], {"axis": along}, outputs=[source])
        rest = _shifted(rest, along, -1)
    elif place not in (0, -1):
        return None
    return View(source, rest, node)


def _shifted(axes: Axes, start: int, by: int) -> Axes:
    """The axes of the net from `start` on moved."""
    return tuple(tuple(one + by if one >= start else one for one in found) for found in axes)
