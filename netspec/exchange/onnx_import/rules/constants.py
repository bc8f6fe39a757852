"""Operators whose results have sizes that depend on numbers: they are computed of constants, and of nothing else."""

from __future__ import annotations

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("ConstantOfShape", "MelWeightMatrix", "NonZero", "Range", "Unique", several=True)
def of_constants(net: Translator, node: Node) -> None:
    """Never written down: it is told which operand is computed."""
    for name in node.inputs:
        net.constant(name, "operand")


@rule("NonMaxSuppression")
def non_max_suppression(net: Translator, node: Node) -> None:
    """Computed of constants alone: what reads the result goes by how many boxes there are."""
    raise Unsupported(
        "how many boxes are left depends on the numbers, and a net has static shapes: "
        "what is before it can be imported as a model of its own (`onnx.utils.extract_model`)"
    )
