"""Operators whose results have sizes that depend on numbers: they are computed of constants, and of nothing else."""

from __future__ import annotations

from netspec.exchange.onnx_import.model import Node
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("ConstantOfShape", "NonZero", "Range", "Unique", several=True)
def of_constants(net: Translator, node: Node) -> None:
    """Never written down: it is told which operand is computed."""
    for name in node.inputs:
        net.constant(name, "operand")
