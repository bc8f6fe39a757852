"""Replace nodes by forms of older opsets: operands become attributes, or a node becomes several.

Facts are those of ONNX's changelog (`docs/Changelog.md` of the onnx repository).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.names import UniqueNames
from netspec.exchange.operator_graph.graph import LoweredGraph, OperatorNode
from netspec.graph.types import DType

Rewrite: TypeAlias = "Callable[[_Older, OperatorNode], list[OperatorNode]]"


def older(graph: LoweredGraph, opset: int) -> LoweredGraph:
    """Return the same computation with nodes of the opset, as far as it has older forms of them."""
    return _Older(graph, opset).written()


class _Older:
    """Rewrites a graph node by node."""

    def __init__(self, graph: LoweredGraph, opset: int) -> None:
        self.graph, self.opset = graph, opset
        self.constants: dict[str, NDArray[Any]] = dict(graph.constants)
        self.fresh = UniqueNames(
            [*(name for node in graph.nodes for name in (*node.outputs, node.name)), *self.constants]
        )

    def written(self) -> LoweredGraph:
        nodes: list[OperatorNode] = []
        for node in self.graph.nodes:
            since, rewrite = FORMS.get(node.op_type, (0, None))
            nodes += rewrite(self, node) if rewrite is not None and self.opset < since else [node]
        return replace(self.graph, nodes=nodes, constants=self.constants)

    def numbers(self, node: OperatorNode, index: int) -> list[int] | None:
        """The integers of a constant operand; None if it is left out, or computed."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        return [int(number) for number in self.constants[name].reshape(-1)] if name in self.constants else None

    def before(self, node: OperatorNode, op_type: str, *inputs: str, **attributes: Any) -> OperatorNode:
        """A node that computes a part of `node`, which it replaces."""
        preferred = f"{node.scope.layer}/{op_type}" if node.scope.layer else op_type
        name = self.fresh(preferred)
        return OperatorNode(op_type, name, inputs, (self.fresh(f"{preferred}:y"),), attributes, scope=node.scope)

    def constant(self, node: OperatorNode, values: Any, dtype: str) -> str:
        """A constant of a layer."""
        name = self.fresh(f"{node.scope.layer}/constant" if node.scope.layer else "constant")
        self.constants[name] = np.asarray(values, dtype=dtype)
        return name


def _operand_to_attribute(**operand_of: int) -> Rewrite:
    """Map lists of integers that were attributes to the operands that replaced them."""

    def rewrite(older: _Older, node: OperatorNode) -> list[OperatorNode]:
        attributes = dict(node.attributes)
        for name, index in operand_of.items():
            numbers = older.numbers(node, index)
            if numbers is None and index < len(node.inputs):
                return [node]  # computed: there is no older form
            if numbers is not None:
                attributes[name] = numbers
        return [replace(node, inputs=node.inputs[: min(operand_of.values())], attributes=attributes)]

    return rewrite


def _softmax(logarithm: bool) -> Rewrite:
    """Softmax over one axis, by its formula: the old operator merged all axes from that one on."""

    def rewrite(older: _Older, node: OperatorNode) -> list[OperatorNode]:
        (x,), axis = node.inputs, node.attributes.get("axis", -1)
        largest = older.before(node, "ReduceMax", x, axes=[axis], keepdims=1)
        apart = older.before(node, "Sub", x, largest.outputs[0])
        powers = older.before(node, "Exp", apart.outputs[0])
        total = older.before(node, "ReduceSum", powers.outputs[0], axes=[axis], keepdims=1)
        if logarithm:
            log = older.before(node, "Log", total.outputs[0])
            last = replace(node, op_type="Sub", inputs=(apart.outputs[0], log.outputs[0]), attributes={})
            return [largest, apart, powers, total, log, last]
        last = replace(node, op_type="Div", inputs=(powers.outputs[0], total.outputs[0]), attributes={})
        return [largest, apart, powers, total, last]

    return rewrite


def _hardmax(older: _Older, node: OperatorNode) -> list[OperatorNode]:
    """Hardmax along the last axis: the old operator merged all axes from `axis` on."""
    (x,), kind = node.inputs, older.graph.types.get(node.inputs[0])
    if kind is None:
        return [node]
    axis, last = node.attributes["axis"] % kind.rank, kind.rank - 1
    if axis == last:
        return [replace(node, attributes={"axis": last})]
    order = [*(index for index in range(kind.rank) if index != axis), axis]
    transposed = older.before(node, "Transpose", x, perm=order)
    hardmax = older.before(node, "Hardmax", transposed.outputs[0], axis=last)
    back = sorted(range(kind.rank), key=order.__getitem__)
    return [transposed, hardmax, replace(node, op_type="Transpose", inputs=hardmax.outputs, attributes={"perm": back})]


def _negated(op_type: str) -> Rewrite:
    """Rewrite a comparison as the negation of another one."""

    def rewrite(older: _Older, node: OperatorNode) -> list[OperatorNode]:
        other = older.before(node, op_type, *node.inputs)
        return [other, replace(node, op_type="Not", inputs=other.outputs)]

    return rewrite


def _layer_normalization(older: _Older, node: OperatorNode) -> list[OperatorNode]:
    """Write the formula: (x - mean) / sqrt(variance + epsilon) · scale + bias, over the axes from `axis` on."""
    x, scale, *bias = node.inputs
    kind, axis = older.graph.types.get(x), node.attributes.get("axis", -1)
    if len(node.outputs) > 1 or (axis >= 0 and kind is None):
        return [node]
    axes = list(range(axis - kind.rank if axis >= 0 and kind is not None else axis, 0))
    epsilon = older.constant(node, node.attributes.get("epsilon", 1e-5), str(DType.FLOAT32))
    mean = older.before(node, "ReduceMean", x, axes=axes, keepdims=1)
    apart = older.before(node, "Sub", x, mean.outputs[0])
    square = older.before(node, "Mul", apart.outputs[0], apart.outputs[0])
    variance = older.before(node, "ReduceMean", square.outputs[0], axes=axes, keepdims=1)
    shifted = older.before(node, "Add", variance.outputs[0], epsilon)
    root = older.before(node, "Sqrt", shifted.outputs[0])
    normal = older.before(node, "Div", apart.outputs[0], root.outputs[0])
    nodes = [mean, apart, square, variance, shifted, root, normal]
    if not bias or not bias[0]:
        return [*nodes, replace(node, op_type="Mul", inputs=(normal.outputs[0], scale), attributes={})]
    scaled = older.before(node, "Mul", normal.outputs[0], scale)
    return [*nodes, scaled, replace(node, op_type="Add", inputs=(scaled.outputs[0], bias[0]), attributes={})]


def _resize(older: _Older, node: OperatorNode) -> list[OperatorNode]:
    """Replace omitted operands by empty tensors."""
    x, *more = node.inputs
    filled = [name or older.constant(node, [], str(DType.FLOAT32)) for name in (*more, *[""] * (2 - len(more)))]
    return [replace(node, inputs=(x, *filled))]


_REDUCTIONS = [
    f"Reduce{kind}" for kind in ("Max", "Min", "Mean", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
]
FORMS: Mapping[str, tuple[int, Rewrite]] = {
    **dict.fromkeys(_REDUCTIONS, (18, _operand_to_attribute(axes=1))),
    **dict.fromkeys(("ReduceSum", "Squeeze", "Unsqueeze"), (13, _operand_to_attribute(axes=1))),
    "Split": (13, _operand_to_attribute(split=1)),
    "Softmax": (13, _softmax(logarithm=False)),
    "LogSoftmax": (13, _softmax(logarithm=True)),
    "Hardmax": (13, _hardmax),
    "LayerNormalization": (17, _layer_normalization),
    "Resize": (13, _resize),
    "GreaterOrEqual": (12, _negated("Less")),
    "LessOrEqual": (12, _negated("Greater")),
}
"""For each operator: the opset of its current form, and the function that writes an older one."""
