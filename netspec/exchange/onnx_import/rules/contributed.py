"""Operators of onnxruntime's own (com.microsoft), which its tools for quantization write."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.rules.recurrence import recurrent
from netspec.exchange.onnx_import.translate import Translator, rule

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

WEIGHTS, SCALES, LAST = (1, 2), (8, 10), 7
"""Where the operator has its kernels, the scale of each with its zero point behind, and the last operand of an LSTM."""


@rule("DynamicQuantizeLSTM", domain="com.microsoft", several=True)
def dynamically_quantized(net: Translator, node: Node) -> None:
    """LSTM with its kernels as floats again; what it reads is not rounded to 8 bits, which a note says."""
    operands = [*node.inputs[: LAST + 1], *[""] * (LAST + 1 - len(node.inputs))]
    for place, scale in zip(WEIGHTS, SCALES, strict=True):
        name = net.hide(node.inputs[place])
        net.constants[name] = _floats(net, node, place, scale)
        operands[place] = name
    recurrent(net, replace(node, op_type="LSTM", domain="", inputs=tuple(operands), opset=net.model.opset))
    net.remarks.append(
        f"{node.describe()} rounds what it reads to 8 bits before each product, which is not done here: results differ"
    )


def _floats(net: Translator, node: Node, place: int, scale: int) -> NDArray[Any]:
    """A kernel (directions, in, gates · H) of bytes as (directions, gates · H, in) of floats."""
    import numpy as np

    kernel = net.constant(node.inputs[place], "kernel")
    factors, zero = net.constant(node.operand(scale), "scale"), net.constant(node.operand(scale + 1), "zero point")
    if kernel.ndim != 3 or any(one.shape[:1] != kernel.shape[:1] or one.ndim > 2 for one in (factors, zero)):
        raise Unsupported("a kernel or a scale of another shape")
    steps, offset = (one.reshape(len(one), 1, -1) for one in (factors, zero))
    wide = (kernel.astype(np.float32) - offset.astype(np.float32)) * steps.astype(np.float32)
    if wide.shape != kernel.shape:
        raise Unsupported("a scale of another shape")
    return np.ascontiguousarray(wide.transpose(0, 2, 1))
