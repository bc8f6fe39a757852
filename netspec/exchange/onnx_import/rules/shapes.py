"""What moves numbers and computes nothing: Flatten, Reshape, Squeeze, Transpose, Identity, Expand, Dropout, Cast."""

from __future__ import annotations

from math import prod
from typing import Any, get_args

from netspec.exchange.onnx_import.folding import element_type, squeezed, target_shape, unsqueezed
from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.translate import Translator, rule
from netspec.schema.net import InputDType


@rule("Reshape")
def reshape(net: Translator, node: Node) -> None:
    """To a constant shape that keeps the samples apart → Flatten or Reshape."""
    target = net.constant(node.inputs[1], "target shape").tolist()
    _to(net, node, lambda shape: target_shape(target, shape, bool(node.attributes.get("allowzero"))))


@rule("Flatten")
def flatten(net: Translator, node: Node) -> None:
    """All axes from `axis` on into one → Flatten."""
    rank = len(net.shape(node.inputs[0]))
    axis = node.attributes["axis"] % rank if rank else 0
    if axis == 1:
        net.add(node, "Flatten", node.inputs, {})
    else:
        _to(net, node, lambda shape: (prod(shape[:axis]), prod(shape[axis:])))


@rule("Squeeze")
def squeeze(net: Translator, node: Node) -> None:
    """Axes of size 1 left out → Reshape."""
    _to(net, node, lambda shape: squeezed(shape, _axes(net, node)))


@rule("Unsqueeze")
def unsqueeze(net: Translator, node: Node) -> None:
    """Axes of size 1 put in → Reshape."""
    _to(net, node, lambda shape: unsqueezed(shape, _axes(net, node) or []))


def _axes(net: Translator, node: Node) -> list[int] | None:
    if node.operand(1):
        return list(net.constant(node.operand(1), "axes").tolist())
    return node.attributes.get("axes")


def _to(net: Translator, node: Node, shaped: Any) -> None:
    source = node.inputs[0]
    shape = net.shape(source)
    try:
        target = shaped(shape)
    except (ValueError, IndexError, StopIteration) as error:
        raise Unsupported(str(error)) from error
    if not target or target[0] != shape[0]:
        raise Unsupported(f"it mixes the samples of a batch: {_sizes(shape)} → {_sizes(target)}")
    if target == shape:
        net.same(node, source)
    elif len(target) == 2:
        net.add(node, "Flatten", [source], {})
    elif len(target) == 1:
        net.add(node, "Squeeze", [source], {})
    else:
        net.add(node, "Reshape", [source], {"target_shape": list(target[1:])})


def _sizes(shape: tuple[int, ...]) -> str:
    return str(list(shape))


@rule("Expand")
def expand(net: Translator, node: Node) -> None:
    """A vector made a row and repeated → RepeatVector."""
    before, shape = net.host(node.inputs[0], node), net.shape(node.inputs[0])
    wanted = net.constant(node.inputs[1], "shape").tolist()
    row = before is not None and before.type == "Reshape" and len(shape) == 3 and shape[1] == 1
    fits = len(wanted) == 3 and wanted[0] in (1, shape[0]) and wanted[2] in (1, shape[2])
    if not row or not fits or before is None or len(net.shape(before.inputs[0])) != 2:
        raise Unsupported(f"{list(shape)} repeated to {wanted}, which is not a vector made a sequence")
    net.layers.remove(before)
    net.add(node, "RepeatVector", before.inputs, {"n": wanted[1]})


@rule("Transpose")
def transpose(net: Translator, node: Node) -> None:
    """Taken up by what follows, if that knows how."""
    source = node.inputs[0]
    before = net.turned.get(source)
    rank = len(before.permutation) if before else len(net.shape(source))
    net.turn(node, source, node.attributes.get("perm") or range(rank)[::-1])


@rule("Identity")
def identity(net: Translator, node: Node) -> None:
    """The same tensor."""
    net.same(node, node.inputs[0])


@rule("Dropout")
def dropout(net: Translator, node: Node) -> None:
    """The same tensor in inference; the layer keeps the rate for further training."""
    rate = node.attributes.get("ratio", 0.5)
    if node.operand(1):
        rate = float(str(net.constant(node.operand(1), "ratio").reshape(())))
    net.add(node, "Dropout", node.inputs[:1], {"rate": rate})


@rule("Cast")
def cast(net: Translator, node: Node) -> None:
    """Left out between floats, and between int32 and int64; from whole numbers to floats Activation; else Cast."""
    try:
        target = element_type(node.attributes["to"])
    except ValueError as error:
        raise Unsupported(str(error)) from error
    source = net.value(node.inputs[0]).dtype
    if target.startswith("float"):
        if source.is_float:
            net.same(node, node.inputs[0])
        else:
            net.add(node, "Activation", node.inputs, {"activation": "linear"})
    elif {target, str(source)} <= {"int32", "int64"} or target == source:
        net.same(node, node.inputs[0])
    elif target in get_args(InputDType):
        net.add(node, "Cast", node.inputs, {"dtype": target})
    else:
        raise Unsupported(f"{source} made {target}")
