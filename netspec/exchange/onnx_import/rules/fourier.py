"""Discrete Fourier transforms: DFT and STFT."""

from __future__ import annotations

from typing import Any

from netspec.exchange.onnx_import.model import Node
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("DFT")
def dft(net: Translator, node: Node) -> None:
    """The layer of the same name."""
    axis = node.attributes.get("axis", -2)
    if node.operand(2):
        axis = int(net.constant(node.operand(2), "axis").item())
    held = net.axis(node.inputs[0], axis)
    fields: dict[str, Any] = {} if held == net.net_rank(node.inputs[0]) - 2 else {"axis": held}
    if node.operand(1):
        fields["n"] = int(net.constant(node.operand(1), "dft_length").item())
    fields |= {name: True for name in ("inverse", "onesided") if node.attributes.get(name)}
    net.add(node, "DFT", node.inputs[:1], fields)


@rule("STFT")
def stft(net: Translator, node: Node) -> None:
    """The layer of the same name, with the window as a second input."""
    window = node.operand(2)
    step = int(net.constant(node.inputs[1], "frame_step").item())
    length = int(net.constant(node.operand(3), "frame_length").item()) if node.operand(3) else net.shape(window)[0]
    fields: dict[str, Any] = {"frame_length": length, "frame_step": step}
    if not node.attributes["onesided"]:
        fields["onesided"] = False
    net.add(node, "STFT", [name for name in (node.inputs[0], window) if name], fields)
