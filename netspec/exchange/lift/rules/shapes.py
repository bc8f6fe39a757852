"""Operators that only change shape, order or type: Flatten, Reshape, Squeeze, Transpose, Identity, Expand, Cast."""

from __future__ import annotations

from math import prod
from typing import Any, get_args

import numpy as np

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.constant_folding import element_type, squeezed, target_shape, unsqueezed
from netspec.exchange.operator_graph.evaluate import MAX_ELEMENTS
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature
from netspec.graph.ops.shape import Transpose
from netspec.graph.types import broadcast_shapes
from netspec.schema.specs.net import InputDType


@rule("Reshape")
def reshape(ctx: LiftContext, node: OperatorNode) -> None:
    """Reshape to a constant shape that keeps samples separate → Flatten or Reshape."""
    target = ctx.tensors.constant(node.inputs[1], "target shape").tolist()
    _reshape_to(ctx, node, lambda shape: target_shape(target, shape, bool(node.attributes.get("allowzero"))))


@rule("Flatten")
def flatten(ctx: LiftContext, node: OperatorNode) -> None:
    """Merge the axes before `axis` into one, and those from it on into another."""
    rank, axis = ctx.tensors.rank(node.inputs[0]), node.attributes["axis"]
    axis = axis + rank if axis < 0 else axis
    _reshape_to(ctx, node, lambda shape: (prod(shape[:axis]), prod(shape[axis:])))


@rule("Squeeze")
def squeeze(ctx: LiftContext, node: OperatorNode) -> None:
    """Remove axes of size 1."""
    _reshape_to(ctx, node, lambda shape: squeezed(shape, _axes(ctx, node)))


@rule("Unsqueeze")
def unsqueeze(ctx: LiftContext, node: OperatorNode) -> None:
    """Insert axes of size 1."""
    _reshape_to(ctx, node, lambda shape: unsqueezed(shape, _axes(ctx, node) or []))


def _axes(ctx: LiftContext, node: OperatorNode) -> list[int] | None:
    if node.operand(1):
        return list(ctx.tensors.constant(node.operand(1), "axes").reshape(-1).tolist())
    return node.attributes.get("axes")


def _reshape_to(ctx: LiftContext, node: OperatorNode, shaped: Any) -> None:
    source = node.inputs[0]
    shape = ctx.tensors.shape(source)
    try:
        target = shaped(shape)
    except (ValueError, IndexError, StopIteration) as error:
        raise UnsupportedFeature(str(error)) from error
    ctx.reshaping.reshape(node, source, target)


@rule("Expand")
def expand(ctx: LiftContext, node: OperatorNode) -> None:
    """Vectors (N, C) repeated to (N, n, C) → RepeatVector; other repeated axes of size 1 → Tile."""
    source = node.inputs[0]
    before, shape = ctx.layers.fusable_producer(source, node), ctx.tensors.shape(source)
    requested = tuple(int(size) for size in ctx.tensors.constant(node.inputs[1], "shape"))
    row = (
        before is not None
        and before.type == "Reshape"
        and len(shape) == 3
        and shape[1] == 1
        and not ctx.tensors.single_sample
    )
    fits = len(requested) == 3 and requested[0] in (1, shape[0]) and requested[2] in (1, shape[2])
    if row and fits and before is not None and ctx.tensors.rank(before.inputs[0]) == 2:
        ctx.layers.written.remove(before)
        ctx.layers.add(node, "RepeatVector", before.inputs, {"n": requested[1]})
        return
    target = broadcast_shapes(shape, requested)
    if target is None:
        raise UnsupportedFeature(f"{list(shape)} does not broadcast to {list(requested)}")
    ctx.tensors.require_room(target)
    longer = (*(1,) * (len(target) - len(shape)), *shape)
    expanded = ctx.tensors.fresh_name(node.outputs[0])
    ctx.reshaping.reshape(node, source, longer, expanded)
    layers = [
        ("Tile", {"tiles": want, "axis": ctx.tensors.axis(expanded, axis, "it repeats the batch")})
        for axis, (have, want) in enumerate(zip(longer, target, strict=True))
        if have != want
    ]
    ctx.reshaping.add_chain(node, expanded, layers)


@rule("Transpose")
def transpose(ctx: LiftContext, node: OperatorNode) -> None:
    """Import Transpose, which the next layers absorb if they can."""
    source = node.inputs[0]
    reverse = tuple(range(ctx.tensors.rank(source)))[::-1]
    ctx.reshaping.transpose(node, source, node.as_op(Transpose).permutation if node.attributes.get("perm") else reverse)


@rule("Identity")
def identity(ctx: LiftContext, node: OperatorNode) -> None:
    """The same tensor."""
    ctx.reshaping.alias(node, node.inputs[0])


@rule("Cast")
def cast(ctx: LiftContext, node: OperatorNode) -> None:
    """Left out between floats, and between int32 and int64; else Cast."""
    try:
        target = element_type(node.attributes["to"])
    except ValueError as error:
        raise UnsupportedFeature(str(error)) from error
    _cast(ctx, node, target)


@rule("BitCast")
def bit_cast(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name; float64 and float16 do not keep their bits in a net."""
    target = element_type(node.attributes["to"])
    input_dtypes = [model_input.dtype for model_input in ctx.model.inputs if model_input.name == node.inputs[0]]
    if target in ("float64", "float16") or not {"float64", "float16", "bfloat16"}.isdisjoint(input_dtypes):
        raise UnsupportedFeature("only floats of type float32 keep their bits in a net")
    ctx.layers.add_elementwise(node, "BitCast", node.inputs, {"dtype": target})


@rule("CastLike")
def cast_like(ctx: LiftContext, node: OperatorNode) -> None:
    """Import as a Cast to the element type of the second operand."""
    _cast(ctx, node, ctx.tensors.dtype_name(node.inputs[1]))


def _cast(ctx: LiftContext, node: OperatorNode, target: str) -> None:
    source = ctx.tensors.dtype(node.inputs[0])
    if target.startswith("float"):
        if source.is_float:
            ctx.reshaping.alias(node, node.inputs[0])
        else:
            ctx.layers.add_elementwise(node, "Cast", node.inputs[:1], {"dtype": "float32"})
    elif {target, str(source)} <= {"int32", "int64"} or target == source:
        ctx.reshaping.alias(node, node.inputs[0])
    elif target in get_args(InputDType):
        ctx.layers.add_elementwise(node, "Cast", node.inputs[:1], {"dtype": target})
    else:
        raise UnsupportedFeature(f"a cast from {source} to {target} is not supported")


@rule("EyeLike")
def eye_like(ctx: LiftContext, node: OperatorNode) -> None:
    """A constant matrix with ones along a diagonal, if the model is one sample."""
    if not ctx.tensors.single_sample:
        raise MixesSamples("its rows are the samples of the batch")
    shape = ctx.tensors.shape(node.inputs[0])
    type_code = node.attributes.get("dtype")
    dtype = element_type(type_code) if type_code else str(ctx.tensors.dtype(node.inputs[0]))
    rows, columns = shape
    if rows * columns > MAX_ELEMENTS:
        raise UnsupportedFeature(f"its matrix of {rows} × {columns} is too large")
    ctx.tensors.constants[node.outputs[0]] = np.eye(rows, columns, k=node.attributes.get("k", 0), dtype=dtype)
