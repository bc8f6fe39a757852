"""What moves numbers and computes nothing: Flatten, Reshape, Squeeze, Transpose, Identity, Expand, Dropout, Cast."""

from __future__ import annotations

from math import prod
from typing import Any, get_args

from netspec.exchange.onnx_import.computing import MAX_ELEMENTS
from netspec.exchange.onnx_import.folding import element_type, squeezed, target_shape, unsqueezed
from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.translate import Translator, rule
from netspec.graph.types import broadcast_shapes
from netspec.schema.net import InputDType


@rule("Reshape")
def reshape(net: Translator, node: Node) -> None:
    """To a constant shape that keeps the samples apart → Flatten or Reshape."""
    target = net.constant(node.inputs[1], "target shape").tolist()
    _to(net, node, lambda shape: target_shape(target, shape, bool(node.attributes.get("allowzero"))))


@rule("Flatten")
def flatten(net: Translator, node: Node) -> None:
    """All axes from `axis` on into one → Flatten."""
    rank, axis = net.rank(node.inputs[0]), node.attributes["axis"]
    axis = axis + rank if axis < 0 else axis
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
        return list(net.constant(node.operand(1), "axes").reshape(-1).tolist())
    return node.attributes.get("axes")


def _to(net: Translator, node: Node, shaped: Any) -> None:
    source = node.inputs[0]
    shape = net.shape(source)
    try:
        target = shaped(shape)
    except (ValueError, IndexError, StopIteration) as error:
        raise Unsupported(str(error)) from error
    net.reshape(node, source, target)


@rule("Expand")
def expand(net: Translator, node: Node) -> None:
    """A vector made a row and repeated → RepeatVector; other axes of size 1 repeated → Tile."""
    source = node.inputs[0]
    before, shape = net.host(source, node), net.shape(source)
    wanted = tuple(int(size) for size in net.constant(node.inputs[1], "shape"))
    row = before is not None and before.type == "Reshape" and len(shape) == 3 and shape[1] == 1 and not net.whole
    fits = len(wanted) == 3 and wanted[0] in (1, shape[0]) and wanted[2] in (1, shape[2])
    if row and fits and before is not None and net.rank(before.inputs[0]) == 2:
        net.layers.remove(before)
        net.add(node, "RepeatVector", before.inputs, {"n": wanted[1]})
        return
    target = broadcast_shapes(shape, wanted)
    if target is None:
        raise Unsupported(f"{list(shape)} does not broadcast to {list(wanted)}")
    net.need_room(target)
    longer = (*(1,) * (len(target) - len(shape)), *shape)
    held = net.hide(node.outputs[0])
    net.reshape(node, source, longer, held)
    layers = [
        ("Tile", {"tiles": want, "axis": net.axis(held, axis, "it repeats the batch")})
        for axis, (have, want) in enumerate(zip(longer, target, strict=True))
        if have != want
    ]
    net.chain(node, held, layers)


@rule("Transpose")
def transpose(net: Translator, node: Node) -> None:
    """Taken up by what follows, if that knows how."""
    source = node.inputs[0]
    net.turn(node, source, node.attributes.get("perm") or range(net.rank(source))[::-1])


@rule("Identity")
def identity(net: Translator, node: Node) -> None:
    """The same tensor."""
    net.same(node, node.inputs[0])


@rule("Cast")
def cast(net: Translator, node: Node) -> None:
    """Left out between floats, and between int32 and int64; from whole numbers to floats Activation; else Cast."""
    try:
        target = element_type(node.attributes["to"])
    except ValueError as error:
        raise Unsupported(str(error)) from error
    _cast(net, node, target)


@rule("BitCast")
def bit_cast(net: Translator, node: Node) -> None:
    """The layer of the same name; numbers of 64 or 16 bits with a point have none of these in a net."""
    target = element_type(node.attributes["to"])
    own = [one.dtype for one in net.model.inputs if one.name == node.inputs[0]]
    if target in ("float64", "float16") or not {"float64", "float16", "bfloat16"}.isdisjoint(own):
        raise Unsupported("bits of floats other than float32")
    net.each(node, "BitCast", node.inputs, {"dtype": target})


@rule("CastLike")
def cast_like(net: Translator, node: Node) -> None:
    """As Cast, to the element type of the second operand, of which nothing else is used."""
    like = node.inputs[1]
    _cast(net, node, str(net.dtype(like)) if net.is_computed(like) else str(net.constants[like].dtype))


def _cast(net: Translator, node: Node, target: str) -> None:
    source = net.dtype(node.inputs[0])
    if target.startswith("float"):
        if source.is_float:
            net.same(node, node.inputs[0])
        else:
            net.each(node, "Activation", node.inputs[:1], {"activation": "linear"})
    elif {target, str(source)} <= {"int32", "int64"} or target == source:
        net.same(node, node.inputs[0])
    elif target in get_args(InputDType):
        net.each(node, "Cast", node.inputs[:1], {"dtype": target})
    else:
        raise Unsupported(f"{source} made {target}")


@rule("EyeLike")
def eye_like(net: Translator, node: Node) -> None:
    """Ones along a diagonal: a constant, of a shape without samples."""
    import numpy as np

    if not net.whole:
        raise Mixed("its rows are the samples of a batch")
    shape = net.shape(node.inputs[0])
    given = node.attributes.get("dtype")
    dtype = element_type(given) if given else str(net.dtype(node.inputs[0]))
    rows, columns = shape
    if rows * columns > MAX_ELEMENTS:
        raise Unsupported(f"a matrix of {rows} by {columns}")
    net.constants[node.outputs[0]] = np.eye(rows, columns, k=node.attributes.get("k", 0), dtype=dtype)
