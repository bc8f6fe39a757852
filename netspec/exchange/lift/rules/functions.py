"""Elementwise functions that are neither layers nor activations → Expression with a formula, or Power."""

from __future__ import annotations

from math import isfinite
from typing import Any

from numpy.typing import NDArray

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.patterns.finding import DOMAIN
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.onnx_map import OnnxMap
from netspec.graph.op import Op
from netspec.graph.ops.elementwise import Comparison
from netspec.graph.ops.rounding import FloatPredicate
from netspec.graph.types import DType
from netspec.layers.expression.formula import TERMS

FORMULA = "Formula"
"""The operator of nodes of the domain `netspec` whose attribute `text` is a formula of their operands."""
LETTERS = "xyz"
"""Names of the inputs of formulas."""


_NOT_TERMS = {"Abs", "Div", "Equal", "Exp", "IsInf", "Log", "Sqrt"}
"""Operators that have rules of their own, or are activation functions."""
_TERMS: dict[str, list[tuple[type[Op], OnnxMap]]] = {}
for _op in TERMS:
    if isinstance(_op.onnx, OnnxMap) and _op.onnx.op_type not in _NOT_TERMS:
        _TERMS.setdefault(_op.onnx.op_type, []).append((type(_op), _op.onnx))


@rule(*_TERMS)
def term(ctx: LiftContext, node: OperatorNode) -> None:
    """Operators that are one op with a name or sign in formulas: the inverse of the ops' ONNX forms."""
    decoded = (form.decode(op_class, node.attributes) for op_class, form in _TERMS[node.op_type])
    op = next((op for op in decoded if op in TERMS), None)
    if op is None:
        raise UnsupportedFeature(f"these attributes are not supported: {node.attributes}")
    kinds = [_dtype(ctx, name) for name in node.inputs]
    formula(ctx, node, TERMS[op], truth=isinstance(op, (Comparison, FloatPredicate)) or DType.BOOL in kinds)


@rule(FORMULA, domain=DOMAIN)
def written(ctx: LiftContext, node: OperatorNode) -> None:
    """A formula that a format gives for an operation that ONNX has no operator for."""
    formula(ctx, node, node.attributes["text"], truth=node.attributes.get("truth", False))


@rule("Tan")
def tangent(ctx: LiftContext, node: OperatorNode) -> None:
    """Tan: a function of formulas, but not an op."""
    formula(ctx, node, "tan({0})")


@rule("Neg", "Reciprocal", "Sqrt")
def power(ctx: LiftContext, node: OperatorNode) -> None:
    """-x, 1/x and √x → Power; -x of integers → a formula."""
    if not ctx.tensors.dtype(node.inputs[0]).is_float:
        formula(ctx, node, "-{0}")
        return
    fields = {"Neg": {"scale": -1.0}, "Reciprocal": {"power": -1.0}, "Sqrt": {"power": 0.5}}
    ctx.layers.add_elementwise(node, "Power", node.inputs, dict(fields[node.op_type]))


@rule("Equal", "Less")
def comparison(ctx: LiftContext, node: OperatorNode) -> None:
    """Comparisons that are not one op: Equal of bools, and Less, which is Greater with exchanged operands."""
    if node.op_type == "Equal" and _dtype(ctx, node.inputs[0]) == DType.BOOL:
        formula(ctx, node, "not xor({0}, {1})", truth=True)
    else:
        formula(ctx, node, "{0} == {1}" if node.op_type == "Equal" else "{0} < {1}", truth=True)


@rule("Where")
def where(ctx: LiftContext, node: OperatorNode) -> None:
    """Select from two tensors by a condition; for bool tensors, by a logical formula."""
    if _dtype(ctx, node.inputs[1]) == DType.BOOL:
        formula(ctx, node, "{0} and {1} or not {0} and {2}", truth=True)
    else:
        formula(ctx, node, "where({0}, {1}, {2})", truth=True)


@rule("IsInf")
def is_infinite(ctx: LiftContext, node: OperatorNode) -> None:
    """Import IsInf for the signs that its attributes select."""
    sides = {(1, 1): "isinf({0})", (0, 1): "isinf({0}) and {0} > 0", (1, 0): "isinf({0}) and {0} < 0"}
    signs = bool(node.attributes["detect_negative"]), bool(node.attributes["detect_positive"])
    formula(ctx, node, sides.get(signs, "{0} < {0}"), truth=True)


@rule("Mod")
def modulo(ctx: LiftContext, node: OperatorNode) -> None:
    """Import Mod, with the sign of the divisor or of the dividend."""
    formula(ctx, node, "fmod({0}, {1})" if node.attributes.get("fmod") else "{0} % {1}")


@rule("Shrink")
def shrink(ctx: LiftContext, node: OperatorNode) -> None:
    """Move x towards 0 by `bias`; the result is 0 if |x| ≤ `lambd`."""
    bias, edge = node.attributes["bias"], node.attributes["lambd"]
    formula(ctx, node, f"{{0}} - {bias!r} if {{0}} > {edge!r} else {{0}} + {bias!r} if {{0}} < {-edge!r} else 0")


def formula(ctx: LiftContext, node: OperatorNode, text: str, *, truth: bool = False) -> None:
    """Add an Expression of the node's operands, `{0}`, `{1}`, … in `text`; scalar constants are written into it.

    `truth` is whether an operand or the result is bool.
    """
    computed = [name for name in node.inputs if ctx.tensors.is_computed(name)]
    rank, types = max(map(ctx.tensors.rank, computed)), {ctx.tensors.dtype(name) for name in computed}
    floats = any(type_.is_float for type_ in types)
    exact = truth or not all(type_.is_float for type_ in types)
    written: dict[str, str] = {}
    if types != {DType.BOOL}:
        for name in dict.fromkeys(node.inputs):
            if not ctx.tensors.is_computed(name) and (ctx.tensors.constants[name].dtype.kind == "f") == floats:
                written |= _literal(name, ctx.tensors.constants[name], rank)
    operands = [name for name in dict.fromkeys(node.inputs) if name not in written]
    if len(operands) > len(LETTERS):
        raise UnsupportedFeature(f"it has {len(operands)} operands, at most {len(LETTERS)} are supported")
    names = written | dict(zip(operands, LETTERS, strict=False))
    expr = text.format(*(names[name] for name in node.inputs))
    if expr.startswith("-") and "**" in expr:  # a power of -x, not the negated power
        expr = text.replace("{0}", "({0})").format(*(names[name] for name in node.inputs))
    ctx.layers.add_elementwise(node, "Expression", operands, {"expr": expr, "keep_types": exact})


def _literal(name: str, constant: NDArray[Any], rank: int) -> dict[str, str]:
    """Map the name of a constant with one element to its text in a formula; empty for other constants."""
    if constant.size != 1 or constant.ndim > rank or constant.dtype == bool or not isfinite(constant.reshape(())):
        return {}
    number = constant.reshape(())[()]
    text = str(number) if constant.dtype.kind == "f" else repr(int(number))
    return {name: text}


def _dtype(ctx: LiftContext, tensor: str) -> DType | None:
    """The element type of a tensor; None for a constant of a type that nets do not have."""
    if ctx.tensors.is_computed(tensor):
        return ctx.tensors.dtype(tensor)
    name = str(ctx.tensors.constants[tensor].dtype)
    return DType(name) if name in set(DType) else None
