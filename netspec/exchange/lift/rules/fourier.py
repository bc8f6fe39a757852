"""Discrete Fourier transforms: DFT and STFT."""

from __future__ import annotations

from typing import Any

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.graph import OperatorNode


@rule("DFT")
def dft(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name."""
    axis = node.attributes.get("axis", -2)
    if node.operand(2):
        axis = int(ctx.tensors.constant(node.operand(2), "axis").item())
    net_axis = ctx.tensors.axis(node.inputs[0], axis)
    fields: dict[str, Any] = {} if net_axis == ctx.tensors.rank_in_net(node.inputs[0]) - 2 else {"axis": net_axis}
    if node.operand(1):
        fields["n"] = int(ctx.tensors.constant(node.operand(1), "dft_length").item())
    fields |= {name: bool(node.attributes.get(name)) for name in ("inverse", "onesided")}
    ctx.layers.add(node, "DFT", node.inputs[:1], fields)


@rule("STFT")
def stft(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name, with the window as a second input."""
    window = node.operand(2)
    step = int(ctx.tensors.constant(node.inputs[1], "frame_step").item())
    length = (
        int(ctx.tensors.constant(node.operand(3), "frame_length").item())
        if node.operand(3)
        else ctx.tensors.shape(window)[0]
    )
    fields = {"frame_length": length, "frame_step": step, "onesided": bool(node.attributes["onesided"])}
    ctx.layers.add(node, "STFT", [name for name in (node.inputs[0], window) if name], fields)
