"""Operators whose result sizes depend on values: they are evaluated at import, from constants only."""

from __future__ import annotations

from shlex import quote

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature


@rule("ConstantOfShape", "MelWeightMatrix", "Range", constants_only=True)
def of_constants(ctx: LiftContext, node: OperatorNode) -> None:
    """Raise `UnsupportedFeature` for a computed operand."""
    for name in node.inputs:
        ctx.tensors.constant(name, "operand")


@rule("NonMaxSuppression", "NonZero", "Unique", uses_all_results=True, constants_only=True)
def of_values(ctx: LiftContext, node: OperatorNode) -> None:
    """Raise `UnsupportedFeature`: the result's size depends on values. The hint names tensors to cut the model at."""
    cuts = [name for name in node.inputs[:2] if name and ctx.tensors.is_computed(name)]
    options = " ".join(f"--until {quote(ctx.tensors.stands_for.get(name, name))}" for name in cuts)
    boxes = node.op_type == "NonMaxSuppression"
    ctx.tensors.needed_constants.update(() if boxes else cuts)
    reason = "it is post-processing: the number of boxes that it keeps" if boxes else "the size of its result"
    raise UnsupportedFeature(
        f"{reason} depends on values, and a net has static shapes",
        hint=f"`netspec import {options}` imports the model up to its inputs",
    )
