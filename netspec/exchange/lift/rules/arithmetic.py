"""Arithmetic with constants: Power, Exp, Log, Abs and Clip for scalars, Scale and Bias for a vector per channel."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.layers import LiftedLayer
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.functions import formula
from netspec.exchange.net_yaml_writer import without_defaults
from netspec.exchange.operator_graph.graph import OperatorNode

LARGEST = 3.4028234e38
"""The largest float32: as a bound it has no effect."""


@rule("Abs", "Log")
def function(ctx: LiftContext, node: OperatorNode) -> None:
    """The layers of the same names; a formula for integers."""
    if ctx.tensors.dtype(node.inputs[0]).is_float:
        ctx.layers.add_elementwise(node, node.op_type, node.inputs, {})
    else:
        formula(ctx, node, "max({0}, -{0})" if node.op_type == "Abs" else "log({0})")


def _computes_floats(ctx: LiftContext, node: OperatorNode) -> bool:
    """Whether all operands but constants are floats."""
    return all(ctx.tensors.dtype(name).is_float for name in node.inputs if name not in ctx.tensors.constants)


@rule("Div")
def divide(ctx: LiftContext, node: OperatorNode) -> None:
    """x / constant → Power or Scale; number / x → a power of -1; others a formula."""
    first, second = node.inputs
    if not _computes_floats(ctx, node):
        formula(ctx, node, "quotient({0}, {1})")
        return
    if second in ctx.tensors.constants:
        with_constant(ctx, node, first, second, "Div")
        return
    number = _number(ctx.tensors.constants[first]) if first in ctx.tensors.constants else None
    if number and ctx.tensors.constants[first].ndim <= ctx.tensors.rank(second):
        ctx.layers.add_elementwise(node, "Power", [second], {"power": -1.0, "scale": 1 / number})
        return
    ctx.layers.add_elementwise(node, "Expression", [first, second], {"expr": "x / y"})


@rule("Pow")
def power(ctx: LiftContext, node: OperatorNode) -> None:
    """x to a constant power → Power; a constant to the power of x → Exp; others a formula."""
    base, exponent = node.inputs
    if not _computes_floats(ctx, node):
        formula(ctx, node, "{0} ** {1}")
        return
    if exponent in ctx.tensors.constants:
        number = _number(ctx.tensors.constants[exponent])
        if number:
            before = _unfinished(ctx, node, base, "Power", "power")
            if before is None:
                ctx.layers.add_elementwise(node, "Power", [base], {"power": number})
            else:
                before.fields["power"] = number
                ctx.layers.absorb(before, node)
            return
    elif base in ctx.tensors.constants:
        number = _number(ctx.tensors.constants[base])
        if number is not None and number > 0:
            ctx.layers.add_elementwise(node, "Exp", [exponent], {"base": number})
            return
    formula(ctx, node, "{0} ** {1}")


def with_constant(ctx: LiftContext, node: OperatorNode, computed: str, constant: str, op_type: str) -> None:
    """x + c, x - c, x · c or x / c → Power for a scalar, Bias or Scale if c varies along adjacent axes.

    Other constants become an operand of the layer for two tensors. Integers, and x · 0 or x / 0, become a formula.
    """
    value, rank = ctx.tensors.constants[constant], ctx.tensors.rank(computed)
    number = _number(value)
    if not ctx.tensors.dtype(computed).is_float:
        integer_formula(ctx, node, op_type)
    elif number is not None and value.ndim <= rank and (number or op_type in ("Add", "Sub")):
        scale = {"Mul": number, "Div": 1 / (number or 1)}.get(op_type, 1.0)
        _affine(ctx, node, computed, scale, {"Add": number, "Sub": -number}.get(op_type, 0.0))
    elif number is not None and value.ndim <= rank:
        formula(ctx, node, f"{{0}} {'*' if op_type == 'Mul' else '/'} {{1}}")
    else:
        placed = _adjacent_axes(ctx, value, computed)
        if placed is None or (op_type == "Div" and not value.all()):
            ctx.layers.add_elementwise(node, _OF_TWO[op_type], node.inputs, _EXPRESSION.get(op_type, {}))
        else:
            _along(ctx, node, computed, op_type, *placed)


def integer_formula(ctx: LiftContext, node: OperatorNode, op_type: str) -> None:
    """Arithmetic on integers as a formula, which keeps their type."""
    signs = {"Add": "{0} + {1}", "Sub": "{0} - {1}", "Mul": "{0} * {1}", "Max": "max({0}, {1})", "Min": "min({0}, {1})"}
    formula(ctx, node, signs[op_type])


_OF_TWO = {"Add": "Add", "Sub": "Subtract", "Mul": "Multiply", "Div": "Expression"}
_EXPRESSION = {"Div": {"expr": "x / y"}}


def _along(ctx: LiftContext, node: OperatorNode, computed: str, op_type: str, axis: int, array: NDArray[Any]) -> None:
    """Bias or Scale, `array` along the net's axes from `axis` on."""
    fields: dict[str, Any] = {"axis": axis, "num_axes": array.ndim}
    if op_type in ("Mul", "Div"):
        ctx.layers.add_elementwise(
            node, "Scale", [computed], fields, {"scale": array if op_type == "Mul" else 1 / array}
        )
        return
    array = array if op_type == "Add" else -array
    before = _unfinished(ctx, node, computed, "Scale", "use_bias")
    if before is not None and before.fields == without_defaults("Scale", fields):
        before.fields["use_bias"], before.arrays["bias"] = True, array
        ctx.layers.absorb(before, node)
    else:
        ctx.layers.add_elementwise(node, "Bias", [computed], fields, {"bias": array})


def subtracted_from(ctx: LiftContext, node: OperatorNode, constant: str, computed: str) -> None:
    """c - x → Power for a number, else Subtract."""
    value = ctx.tensors.constants[constant]
    number = _number(value)
    if not ctx.tensors.dtype(computed).is_float:
        integer_formula(ctx, node, "Sub")
    elif number is None or value.ndim > ctx.tensors.rank(computed):
        ctx.layers.add_elementwise(node, "Subtract", node.inputs, {})
    else:
        _affine(ctx, node, computed, -1.0, number)


def add_clip(ctx: LiftContext, node: OperatorNode, computed: str, low: float, high: float) -> None:
    """x limited to [`low`, `high`] → Clip, or the missing limit of the Clip before it."""
    limits = {name: limit for name, limit in (("min", low), ("max", high)) if abs(limit) < LARGEST}
    if not limits:
        ctx.reshaping.alias(node, computed)
        return
    before = _unfinished(ctx, node, computed, "Clip", "max")
    if before is not None and set(limits) == {"max"} and before.fields["min"] < high:
        before.fields["max"] = high
        ctx.layers.absorb(before, node)
        return
    before = _unfinished(ctx, node, computed, "Clip", "min")
    if before is not None and set(limits) == {"min"} and before.fields["max"] > low:
        before.fields["min"] = low
        ctx.layers.absorb(before, node)
    else:
        ctx.layers.add_elementwise(node, "Clip", [computed], limits)


def clip_by_constant(ctx: LiftContext, node: OperatorNode, computed: str, constant: str) -> None:
    """A maximum or minimum of x and a number → Clip; of x and another constant → Maximum, Minimum."""
    number = _number(ctx.tensors.constants[constant])
    if not ctx.tensors.dtype(computed).is_float:
        integer_formula(ctx, node, node.op_type)
    elif number is None or ctx.tensors.rank(constant) > ctx.tensors.rank(computed):
        ctx.layers.add_elementwise(node, {"Max": "Maximum", "Min": "Minimum"}[node.op_type], node.inputs, {})
    elif node.op_type == "Max":
        add_clip(ctx, node, computed, number, inf)
    else:
        add_clip(ctx, node, computed, -inf, number)


def _affine(ctx: LiftContext, node: OperatorNode, computed: str, scale: float, shift: float) -> None:
    """scale · x + shift → Power, or merged into the Power before it."""
    before = _unfinished(ctx, node, computed, "Power", "power")
    if before is not None:
        scale, shift = before.fields.get("scale", 1.0) * scale, before.fields.get("shift", 0.0) * scale + shift
    fields = {"scale": scale, "shift": shift}
    if before is None:
        ctx.layers.add_elementwise(node, "Power", [computed], fields)
    else:
        before.fields = without_defaults("Power", fields)
        ctx.layers.absorb(before, node)


def _unfinished(ctx: LiftContext, node: OperatorNode, tensor: str, type_: str, field: str) -> LiftedLayer | None:
    """The layer of this type that computes `tensor` only for this node, and does not set the field yet."""
    before = ctx.layers.fusable_producer(tensor, node)
    return before if before is not None and before.type == type_ and field not in before.fields else None


def _number(constant: NDArray[Any]) -> float | None:
    """A scalar constant as the shortest decimal that is equal to it; None for other constants."""
    return float(str(constant.reshape(())[()])) if constant.size == 1 else None


def _adjacent_axes(ctx: LiftContext, constant: NDArray[Any], computed: str) -> tuple[int, NDArray[Any]] | None:
    """The first of the axes in the net along which a constant varies, and the constant along these axes alone.

    None if these axes are not adjacent in the net, or include the batch.
    """
    axes, shape = ctx.tensors.view(computed).axes, ctx.tensors.shape(computed)
    if constant.ndim == len(shape) and ctx.tensors.is_same_for_all_samples(constant):
        constant = constant[:1]
    full = (1,) * (len(shape) - constant.ndim) + constant.shape
    along = [axis for axis, size in enumerate(full) if size != 1]
    if len(full) != len(shape) or not along or constant.dtype.kind != "f":
        return None
    first, last = along[0], along[-1] + 1
    inner_axes = [axis for group in axes[first:last] for axis in group]
    if (
        inner_axes != list(range(inner_axes[0], inner_axes[0] + last - first))
        or inner_axes[0] == 0
        or full[first:last] != shape[first:last]
    ):
        return None
    return inner_axes[0], np.asarray(constant, np.float32).reshape(full[first:last])
