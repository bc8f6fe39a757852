"""Arithmetic with constants: Power, Exp, Log, Abs and Clip for single numbers, Scale and Bias for one per channel."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.translate import Layer, Translator, rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST = 3.4028234e38
"""No float32 is beyond it: as a limit it is none."""


@rule("Abs", "Log")
def function(net: Translator, node: Node) -> None:
    """Functions that are layers of the same name."""
    net.add(node, node.op_type, node.inputs, {})


@rule("Div")
def divide(net: Translator, node: Node) -> None:
    """By a constant → Power or Scale; a constant number by x → a power of -1."""
    first, second = node.inputs
    if second in net.constants:
        with_constant(net, node, first, net.constants[second], "Div")
        return
    if first not in net.constants:
        raise Unsupported("both operands are computed")
    number = _number(net.constants[first])
    if not number:
        raise Unsupported("its first operand is neither computed nor a number")
    net.add(node, "Power", [second], {"power": -1.0, **({} if number == 1 else {"scale": 1 / number})})


@rule("Pow")
def power(net: Translator, node: Node) -> None:
    """x to a constant power → Power; a constant to the power of x → Exp."""
    base, exponent = node.inputs
    if exponent not in net.constants:
        number = _number(net.constant(base, "base, or its exponent,"))
        if number is None or number <= 0:
            raise Unsupported("its base is not a positive number")
        net.add(node, "Exp", [exponent], {"base": number})
        return
    number = _number(net.constants[exponent])
    if not number:
        raise Unsupported("its exponent is not a number other than 0")
    before = _unfinished(net, node, base, "Power", "power")
    if before is None:
        net.add(node, "Power", [base], {"power": number})
    else:
        before.fields["power"] = number
        net.absorb(before, node)


def with_constant(net: Translator, node: Node, computed: str, constant: NDArray[Any], op_type: str) -> None:
    """x + c, x - c, x · c or x / c → Power for a number, Bias or Scale for one number for each channel."""
    x = net.value(computed)
    if not x.dtype.is_float:
        raise Unsupported("arithmetic of whole numbers")
    number = _number(constant)
    if number is not None and constant.ndim <= len(x.shape):
        if number == 0 and op_type in ("Mul", "Div"):
            raise Unsupported("a product with 0, or a division by it")
        scale = {"Mul": number, "Div": 1 / (number or 1)}.get(op_type, 1.0)
        _affine(net, node, computed, scale, {"Add": number, "Sub": -number}.get(op_type, 0.0))
        return
    axis, array = _placed(constant, x.shape)
    fields: dict[str, Any] = ({} if axis == 1 else {"axis": axis}) | (
        {} if array.ndim == 1 else {"num_axes": array.ndim}
    )
    if op_type in ("Mul", "Div"):
        net.add(node, "Scale", [computed], fields, {"scale": array if op_type == "Mul" else 1 / array})
        return
    array = array if op_type == "Add" else -array
    before = _unfinished(net, node, computed, "Scale", "use_bias")
    if before is not None and {name: before.fields[name] for name in before.fields} == fields:
        before.fields["use_bias"], before.arrays["bias"] = True, array
        net.absorb(before, node)
    else:
        net.add(node, "Bias", [computed], fields, {"bias": array})


def subtracted_from(net: Translator, node: Node, constant: NDArray[Any], computed: str) -> None:
    """c - x → Power."""
    number = _number(constant)
    if number is None:
        raise Unsupported("subtracted from a constant that is not a number")
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
    else:
        net.add(node, "Clip", [computed], limits)


def limit(net: Translator, node: Node, computed: str, constant: NDArray[Any]) -> None:
    """A maximum or minimum of x and a number → Clip."""
    number = _number(constant)
    if number is None:
        raise Unsupported("compared with a constant that is not a number")
    if node.op_type == "Max":
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
        net.add(node, "Power", [computed], fields)
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


def _placed(constant: NDArray[Any], shape: tuple[int, ...]) -> tuple[int, NDArray[Any]]:
    """Where a constant lies along neighbouring axes of a tensor: the first of them, and the constant without others."""
    import numpy as np

    full = (1,) * (len(shape) - constant.ndim) + constant.shape
    along = [axis for axis, size in enumerate(full) if size != 1]
    first, last = along[0], along[-1] + 1
    if len(full) != len(shape) or first == 0 or full[first:last] != shape[first:last]:
        raise Unsupported(f"a constant of shape {list(constant.shape)}, which does not lie along neighbouring axes")
    return first, np.asarray(constant, np.float32).reshape(full[first:last])
