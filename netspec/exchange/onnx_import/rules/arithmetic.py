"""Arithmetic with constants: Power, Exp, Log, Abs and Clip for single numbers, Scale and Bias for one per channel."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.model import Node
from netspec.exchange.onnx_import.rules.functions import formula
from netspec.exchange.onnx_import.translate import Layer, Translator, rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST = 3.4028234e38
"""No float32 is beyond it: as a limit it is none."""


@rule("Abs", "Log")
def function(net: Translator, node: Node) -> None:
    """Functions that are layers of the same name; of whole numbers a formula."""
    if not net.dtype(node.inputs[0]).is_float:
        formula(net, node, f"{node.op_type.lower()}({{0}})")
        return
    net.each(node, node.op_type, node.inputs, {})


@rule("Div")
def divide(net: Translator, node: Node) -> None:
    """By a constant → Power or Scale; a constant number by x → a power of -1; of two → one times that."""
    first, second = node.inputs
    if not all(net.dtype(name).is_float for name in node.inputs if name not in net.constants):
        formula(net, node, "quotient({0}, {1})")
        return
    if second in net.constants:
        with_constant(net, node, first, second, "Div")
        return
    number = _number(net.constants[first]) if first in net.constants else None
    if number and net.constants[first].ndim <= net.rank(second):
        net.each(node, "Power", [second], {"power": -1.0, **({} if number == 1 else {"scale": 1 / number})})
        return
    net.each(node, "Expression", [first, second], {"expr": "x / y"})


@rule("Pow")
def power(net: Translator, node: Node) -> None:
    """x to a constant power → Power; a constant to the power of x → Exp; others a formula."""
    base, exponent = node.inputs
    if not all(net.dtype(name).is_float for name in node.inputs if name not in net.constants):
        formula(net, node, "{0} ** {1}")
        return
    if exponent in net.constants:
        number = _number(net.constants[exponent])
        if number:
            before = _unfinished(net, node, base, "Power", "power")
            if before is None:
                net.each(node, "Power", [base], {"power": number})
            else:
                before.fields["power"] = number
                net.absorb(before, node)
            return
    elif base in net.constants:
        number = _number(net.constants[base])
        if number is not None and number > 0:
            net.each(node, "Exp", [exponent], {"base": number})
            return
    formula(net, node, "{0} ** {1}")


def with_constant(net: Translator, node: Node, computed: str, constant: str, op_type: str) -> None:
    """x + c, x - c, x · c or x / c → Power for a number, Bias or Scale where c lies along neighbouring axes.

    Other constants, and those of whole numbers, become an operand of the layer for two computed tensors.
    """
    value, rank = net.constants[constant], net.rank(computed)
    number = _number(value)
    if not net.dtype(computed).is_float:
        of_whole(net, node, op_type)
    elif number is not None and value.ndim <= rank and (number or op_type in ("Add", "Sub")):
        scale = {"Mul": number, "Div": 1 / (number or 1)}.get(op_type, 1.0)
        _affine(net, node, computed, scale, {"Add": number, "Sub": -number}.get(op_type, 0.0))
    else:
        placed = _placed(net, value, computed)
        if placed is None or (op_type == "Div" and not value.all()):
            net.each(node, _OF_TWO[op_type], node.inputs, _EXPRESSION.get(op_type, {}))
        else:
            _along(net, node, computed, op_type, *placed)


def of_whole(net: Translator, node: Node, op_type: str) -> None:
    """Whole numbers of one type, which the result has too."""
    signs = {"Add": "{0} + {1}", "Sub": "{0} - {1}", "Mul": "{0} * {1}", "Max": "max({0}, {1})", "Min": "min({0}, {1})"}
    formula(net, node, signs[op_type])


_OF_TWO = {"Add": "Add", "Sub": "Subtract", "Mul": "Multiply", "Div": "Expression"}
_EXPRESSION = {"Div": {"expr": "x / y"}}


def _along(net: Translator, node: Node, computed: str, op_type: str, axis: int, array: NDArray[Any]) -> None:
    """Bias or Scale, `array` along the net's axes from `axis` on."""
    fields: dict[str, Any] = ({} if axis == 1 else {"axis": axis}) | (
        {} if array.ndim == 1 else {"num_axes": array.ndim}
    )
    if op_type in ("Mul", "Div"):
        net.each(node, "Scale", [computed], fields, {"scale": array if op_type == "Mul" else 1 / array})
        return
    array = array if op_type == "Add" else -array
    before = _unfinished(net, node, computed, "Scale", "use_bias")
    if before is not None and {name: before.fields[name] for name in before.fields} == fields:
        before.fields["use_bias"], before.arrays["bias"] = True, array
        net.absorb(before, node)
    else:
        net.each(node, "Bias", [computed], fields, {"bias": array})


def subtracted_from(net: Translator, node: Node, constant: str, computed: str) -> None:
    """c - x → Power for a number, else Subtract."""
    value = net.constants[constant]
    number = _number(value)
    if not net.dtype(computed).is_float:
        of_whole(net, node, "Sub")
    elif number is None or value.ndim > net.rank(computed):
        net.each(node, "Subtract", node.inputs, {})
    else:
        _affine(net, node, computed, -1.0, number)


def limited(net: Translator, node: Node, computed: str, low: float, high: float) -> None:
    """The greater of x and `low`, the lesser of that and `high` → Clip."""
    limits = {name: limit for name, limit in (("min", low), ("max", high)) if abs(limit) < LARGEST}
    if not limits:
        net.same(node, computed)
        return
    before = _unfinished(net, node, computed, "Clip", "max")
    if before is not None and set(limits) == {"max"} and before.fields["min"] < high:
        before.fields["max"] = high
        net.absorb(before, node)
        return
    before = _unfinished(net, node, computed, "Clip", "min")
    if before is not None and set(limits) == {"min"} and before.fields["max"] > low:
        before.fields["min"] = low
        net.absorb(before, node)
    else:
        net.each(node, "Clip", [computed], limits)


def limit(net: Translator, node: Node, computed: str, constant: str) -> None:
    """A maximum or minimum of x and a number → Clip; of other constants → Maximum, Minimum."""
    number = _number(net.constants[constant])
    if not net.dtype(computed).is_float:
        of_whole(net, node, node.op_type)
    elif number is None or net.rank(constant) > net.rank(computed):
        net.each(node, {"Max": "Maximum", "Min": "Minimum"}[node.op_type], node.inputs, {})
    elif node.op_type == "Max":
        limited(net, node, computed, number, inf)
    else:
        limited(net, node, computed, -inf, number)


def _affine(net: Translator, node: Node, computed: str, scale: float, shift: float) -> None:
    """scale · x + shift → Power, or part of the one before it."""
    before = _unfinished(net, node, computed, "Power", "power")
    if before is not None:
        scale, shift = before.fields.get("scale", 1.0) * scale, before.fields.get("shift", 0.0) * scale + shift
    fields = ({} if scale == 1 else {"scale": scale}) | ({} if shift == 0 else {"shift": shift})
    if before is None:
        net.each(node, "Power", [computed], fields)
    else:
        before.fields = fields
        net.absorb(before, node)


def _unfinished(net: Translator, node: Node, tensor: str, type_: str, field: str) -> Layer | None:
    """The layer of this type that makes `tensor` for this node alone, and does not have the field yet."""
    before = net.host(tensor, node)
    return before if before is not None and before.type == type_ and field not in before.fields else None


def _number(constant: NDArray[Any]) -> float | None:
    """The constant as the shortest decimal that is the same number, where it is one."""
    return float(str(constant.reshape(())[()])) if constant.size == 1 else None


def _placed(net: Translator, constant: NDArray[Any], computed: str) -> tuple[int, NDArray[Any]] | None:
    """Where a constant lies along neighbouring axes of a tensor of the net: the first, and it without others."""
    import numpy as np

    axes, shape = net.held(computed).axes, net.shape(computed)
    if constant.ndim == len(shape) and net.same_for_all(constant):
        constant = constant[:1]
    full = (1,) * (len(shape) - constant.ndim) + constant.shape
    along = [axis for axis, size in enumerate(full) if size != 1]
    if len(full) != len(shape) or not along or constant.dtype.kind != "f":
        return None
    first, last = along[0], along[-1] + 1
    held = [axis for lies in axes[first:last] for axis in lies]
    if held != list(range(held[0], held[0] + last - first)) or held[0] == 0 or full[first:last] != shape[first:last]:
        return None
    return held[0], np.asarray(constant, np.float32).reshape(full[first:last])
