"""Functions of single elements that are neither layers nor activations: a formula of the layer Expression, or Power."""

from __future__ import annotations

from netspec.exchange.onnx_import.model import Node
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("Atan", "Cos", "Erf", "Sign", "Sin", "Tan")
def formula(net: Translator, node: Node) -> None:
    """Functions that formulas have by the same names."""
    net.each(node, "Expression", node.inputs, {"expr": f"{node.op_type.lower()}(x)"})


@rule("Neg", "Reciprocal", "Sqrt")
def power(net: Translator, node: Node) -> None:
    """-x, 1/x and √x → Power."""
    fields = {"Neg": {"scale": -1.0}, "Reciprocal": {"power": -1.0}, "Sqrt": {"power": 0.5}}
    net.each(node, "Power", node.inputs, dict(fields[node.op_type]))
