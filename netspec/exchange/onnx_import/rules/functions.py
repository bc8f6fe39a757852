"""Functions of single elements that are neither layers nor activations: a formula of the layer Expression, or Power."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.translate import Translator, rule
from netspec.graph.types import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

LETTERS = "xyz"
"""What formulas call their inputs."""


@rule(
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Floor", "IsNaN", "Round", "Sign",
    "Sin", "Sinh", "Tan",
)  # fmt: skip
def function(net: Translator, node: Node) -> None:
    """Functions that formulas have by the same names."""
    formula(net, node, f"{node.op_type.lower()}({{0}})", truth=node.op_type == "IsNaN")


@rule("Neg", "Reciprocal", "Sqrt")
def power(net: Translator, node: Node) -> None:
    """-x, 1/x and √x → Power; -x of whole numbers is a formula."""
    if not net.dtype(node.inputs[0]).is_float:
        formula(net, node, "-{0}")
        return
    fields = {"Neg": {"scale": -1.0}, "Reciprocal": {"power": -1.0}, "Sqrt": {"power": 0.5}}
    net.each(node, "Power", node.inputs, dict(fields[node.op_type]))


_COMPARED = {"Equal": "==", "Greater": ">", "GreaterOrEqual": ">=", "Less": "<", "LessOrEqual": "<="}


@rule(*_COMPARED)
def comparison(net: Translator, node: Node) -> None:
    """Two numbers compared; truth values are equal where not one of them alone holds."""
    if node.op_type == "Equal" and _dtype(net, node.inputs[0]) == DType.BOOL:
        formula(net, node, "not xor({0}, {1})", truth=True)
    else:
        formula(net, node, f"{{0}} {_COMPARED[node.op_type]} {{1}}", truth=True)


_LOGIC = {"And": "{0} and {1}", "Or": "{0} or {1}", "Xor": "xor({0}, {1})", "Not": "not {0}"}


@rule(*_LOGIC)
def logic(net: Translator, node: Node) -> None:
    """Conditions made of conditions."""
    formula(net, node, _LOGIC[node.op_type], truth=True)


@rule("Where")
def where(net: Translator, node: Node) -> None:
    """One of two numbers, or of two truth values, by a condition."""
    if _dtype(net, node.inputs[1]) == DType.BOOL:
        formula(net, node, "{0} and {1} or not {0} and {2}", truth=True)
    else:
        formula(net, node, "where({0}, {1}, {2})", truth=True)


@rule("IsInf")
def is_infinite(net: Translator, node: Node) -> None:
    """To the sides that its attributes say."""
    sides = {(1, 1): "isinf({0})", (0, 1): "isinf({0}) and {0} > 0", (1, 0): "isinf({0}) and {0} < 0"}
    asked = bool(node.attributes["detect_negative"]), bool(node.attributes["detect_positive"])
    formula(net, node, sides.get(asked, "{0} < {0}"), truth=True)


@rule("Mod")
def modulo(net: Translator, node: Node) -> None:
    """With the sign of the divisor, or with that of what is divided."""
    formula(net, node, "fmod({0}, {1})" if node.attributes.get("fmod") else "{0} % {1}")


_BITS = {"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor", "BitwiseNot": "bit_not"}


@rule("BitShift", *_BITS)
def bits(net: Translator, node: Node) -> None:
    """Bits of whole numbers."""
    name = _BITS.get(node.op_type) or f"shift_{_text(node.attributes['direction']).lower()}"
    formula(net, node, f"{name}({', '.join(f'{{{k}}}' for k in range(len(node.inputs)))})")


@rule("Shrink")
def shrink(net: Translator, node: Node) -> None:
    """Towards 0 by `bias`, and 0 within `lambd` of it."""
    bias, edge = node.attributes["bias"], node.attributes["lambd"]
    formula(net, node, f"{{0}} - {bias!r} if {{0}} > {edge!r} else {{0}} + {bias!r} if {{0}} < {-edge!r} else 0")


def formula(net: Translator, node: Node, text: str, *, truth: bool = False) -> None:
    """An Expression of the node's operands, which `text` numbers: a constant number is written into it.

    `truth` says that there are truth values among them, or that the result is one.
    """
    computed = [name for name in node.inputs if net.is_computed(name)]
    rank, types = max(map(net.rank, computed)), {net.dtype(name) for name in computed}
    floats = any(one.is_float for one in types)
    whole = truth or not all(one.is_float for one in types)
    written: dict[str, str] = {}
    if types != {DType.BOOL}:
        for name in dict.fromkeys(node.inputs):
            if not net.is_computed(name) and (net.constants[name].dtype.kind == "f") == floats:
                written |= _literal(name, net.constants[name], rank)
    operands = [name for name in dict.fromkeys(node.inputs) if name not in written]
    if len(operands) > len(LETTERS):
        raise Unsupported(f"a formula of {len(operands)} operands")
    names = written | dict(zip(operands, LETTERS, strict=False))
    expr = text.format(*(names[name] for name in node.inputs))
    if expr.startswith("-") and "**" in expr:  # of a number below 0, not a power taken away
        expr = text.replace("{0}", "({0})").format(*(names[name] for name in node.inputs))
    net.each(node, "Expression", operands, {"expr": expr} | ({"keep_types": True} if whole else {}))


def _literal(name: str, constant: NDArray[Any], rank: int) -> dict[str, str]:
    """The only number of a constant, as a formula has it, by its name; nothing for others."""
    if constant.size != 1 or constant.ndim > rank or constant.dtype == bool or not isfinite(constant.reshape(())):
        return {}
    number = constant.reshape(())[()]
    text = str(number) if constant.dtype.kind == "f" else repr(int(number))
    return {name: text}


def _dtype(net: Translator, tensor: str) -> DType | None:
    """The element type of a tensor; of a constant None where a net has none such."""
    if net.is_computed(tensor):
        return net.dtype(tensor)
    name = str(net.constants[tensor].dtype)
    return DType(name) if name in set(DType) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value.decode())
