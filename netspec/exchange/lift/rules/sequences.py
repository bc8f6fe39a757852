"""Sequences of tensors: lists that are resolved while importing, so that the net contains no sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.nodes import Expansion
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.control import add_iteration, graph_of
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.operator_graph.onnx_protos import MAX_NODES
from netspec.exchange.unsupported import UnsupportedFeature


@rule("SequenceEmpty", "SequenceConstruct")
def construct(ctx: LiftContext, node: OperatorNode) -> None:
    """Make a sequence of the operands, or an empty one."""
    _set_tensors(ctx, node, tuple(filter(None, node.inputs)))


@rule("SequenceInsert")
def insert(ctx: LiftContext, node: OperatorNode) -> None:
    """Insert a tensor before `position`, or at the end."""
    tensors = list(_tensors(ctx, node))
    at = _position(ctx, node, 2, len(tensors), len(tensors) + 1) if node.operand(2) else len(tensors)
    _set_tensors(ctx, node, (*tensors[:at], node.inputs[1], *tensors[at:]))


@rule("SequenceErase")
def erase(ctx: LiftContext, node: OperatorNode) -> None:
    """Remove the tensor at `position`, or the last one."""
    tensors = list(_tensors(ctx, node))
    at = _position(ctx, node, 1, len(tensors), len(tensors)) if node.operand(1) else len(tensors) - 1
    _set_tensors(ctx, node, (*tensors[:at], *tensors[at + 1 :]))


@rule("SequenceAt")
def element(ctx: LiftContext, node: OperatorNode) -> None:
    """Return one of the tensors."""
    tensors = _tensors(ctx, node)
    tensor = tensors[_position(ctx, node, 1, len(tensors), len(tensors))]
    ctx.nodes.replace(node, [replace(node, op_type="Identity", inputs=(tensor,))])


@rule("SequenceLength")
def length(ctx: LiftContext, node: OperatorNode) -> None:
    """Return the number of tensors, a constant."""
    ctx.tensors.constants[node.outputs[0]] = np.asarray(len(_tensors(ctx, node)), "int64")


@rule("SplitToSequence")
def split(ctx: LiftContext, node: OperatorNode) -> None:
    """Split an axis into a sequence: by the sizes in `split`, into parts of one size, or into single elements."""
    x, axis, sizes = node.inputs[0], node.attributes["axis"], np.asarray(1)
    if node.operand(1):
        sizes = ctx.tensors.constant(node.operand(1), "sizes")
    have = ctx.tensors.shape(x)[axis]
    if not sizes.ndim:
        size = int(sizes)
        if size < 1 or have // size > MAX_NODES:
            raise UnsupportedFeature(
                f"it splits {have} elements into chunks of {size}: 1 to {MAX_NODES:,} chunks are supported"
            )
        sizes = np.asarray([size] * (have // size) + [have % size] * (have % size > 0))
    parts = tuple(ctx.tensors.fresh_name(node.outputs[0], reads=0) for _ in sizes)
    size_name = ctx.tensors.fresh_name(node.outputs[0], reads=0)
    ctx.tensors.constants[size_name] = sizes.astype("int64")
    nodes = [replace(node, op_type="Split", inputs=(x, size_name), outputs=parts, attributes={"axis": axis})]
    members = parts
    if not node.operand(1) and not node.attributes["keepdims"]:
        members = tuple(ctx.tensors.fresh_name(node.outputs[0], reads=0) for _ in parts)
        nodes += [
            replace(node, op_type="Squeeze", inputs=(part,), outputs=(tensor,), attributes={"axes": [axis]})
            for part, tensor in zip(parts, members, strict=True)
        ]
    ctx.nodes.insert(nodes, members)
    _set_tensors(ctx, node, members)


@rule("ConcatFromSequence")
def concatenate(ctx: LiftContext, node: OperatorNode) -> None:
    """Concatenate all tensors along an axis, or stack them along a new one."""
    steps, tensors, axis = Expansion(ctx, node), _tensors(ctx, node), node.attributes["axis"]
    if node.attributes["new_axis"]:
        at = steps.integers([axis])
        tensors = [steps.node("Unsqueeze", tensor, at, axes=[axis]) for tensor in tensors]
    steps.node("Concat", *tensors, axis=axis)
    steps.lift()


@rule("SequenceMap", uses_all_results=True)
def mapped(ctx: LiftContext, node: OperatorNode) -> None:
    """Inline the body once for each element; the results are sequences."""
    body, others = graph_of(node, "body"), node.inputs[1:]
    rows: list[Sequence[str]] = []
    for iteration, tensor in enumerate(_tensors(ctx, node)):
        more = [ctx.tensors.sequences[name][iteration] if name in ctx.tensors.sequences else name for name in others]
        rows.append(add_iteration(ctx, node, body, (tensor, *more), iteration))
    for index, name in enumerate(node.outputs):
        ctx.tensors.sequences[name] = tuple(row[index] for row in rows)


def _set_tensors(ctx: LiftContext, node: OperatorNode, tensors: tuple[str, ...]) -> None:
    lost = [tensor for tensor in tensors if ctx.nodes.is_lost(tensor)]
    if lost:
        raise UnsupportedFeature(f"its element `{lost[0]}` can't be imported")
    ctx.tensors.sequences[node.outputs[0]] = tensors


def _tensors(ctx: LiftContext, node: OperatorNode) -> tuple[str, ...] | list[str]:
    """The tensors of the sequence that the node reads."""
    if node.inputs[0] not in ctx.tensors.sequences:
        raise UnsupportedFeature(f"`{node.inputs[0]}` is not a sequence of tensors")
    return ctx.tensors.sequences[node.inputs[0]]


def _position(ctx: LiftContext, node: OperatorNode, operand: int, length: int, end: int) -> int:
    """A constant position, counted from the end if negative, below `end`. Raises `UnsupportedFeature`."""
    position = int(ctx.tensors.constant(node.operand(operand), "position").reshape(()))
    at = position + length if position < 0 else position
    if not 0 <= at < end:
        raise UnsupportedFeature(f"position {position} is outside of the sequence of {length} tensors")
    return at
