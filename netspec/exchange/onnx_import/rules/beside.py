"""Concat and Gather along an axis of the model in front of its samples: states (directions, N, H) of several layers."""

from __future__ import annotations

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
    if net.whole or data in net.constants or index not in net.constants or net.constants[index].ndim:
        return False
    view, axis = net.held(data), node.attributes["axis"]
    axis %= len(view.axes)
    if view.axes[:1] == ((0,),) or len(view.axes[axis]) > 1 or view.axes[axis] == (0,):
        return False
    place, rest = int(net.constants[index]), (*view.axes[:axis], *view.axes[axis + 1 :])
    source = view.source
    if view.axes[axis]:
        (along,) = view.axes[axis]
        gathered, source = net.hide(data), net.hide(node.outputs[0])
        at = {} if along == 1 else {"axis": along}
        net.add(node, "Gather", [view.source], {"indices": [place], **at}, outputs=[gathered])
        net.add(node, "Squeeze", [gathered], {"axis": along}, outputs=[source])
        rest = _shifted(rest, along, -1)
    elif place not in (0, -1):
        return False
    net.views[node.outputs[0]] = View(source, rest, node)
    return True


def _shifted(axes: Axes, start: int, by: int) -> Axes:
    """The axes of the net from `start` on moved."""
    return tuple(tuple(one + by if one >= start else one for one in found) for found in axes)
