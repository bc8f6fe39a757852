"""QuantizeLinear and DequantizeLinear on constants: the weights of quantized models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.arrays import NARROW, bounds, widened
from netspec.exchange.onnx_import.model import Node
from netspec.graph.ops import quantization as ops
from netspec.graph.types import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray


def quantized(node: Node, x: NDArray[Any], scale: NDArray[Any], zero_point: NDArray[Any] | None = None) -> Any:
    """Whole numbers of constant floats."""
    import numpy as np

    zero = np.zeros(scale.shape, "uint8") if zero_point is None else zero_point
    narrow, zero = str(zero.dtype), widened(zero)
    axis, block = _along(node, x, scale)
    found = ops.QuantizeLinear(axis, block, DType(str(zero.dtype)))
    made = found.forward(np, x, _flat(scale), _flat(zero))
    return np.clip(made, *bounds(narrow)) if narrow in NARROW else made


def dequantized(node: Node, x: NDArray[Any], scale: NDArray[Any], zero_point: NDArray[Any] | None = None) -> Any:
    """Floats of constant whole numbers."""
    import numpy as np

    x = widened(x)
    zero = np.zeros(scale.shape, x.dtype) if zero_point is None else widened(zero_point)
    axis, block = _along(node, x, scale)
    return ops.DequantizeLinear(axis, block).forward(np, x, _flat(scale), _flat(zero))


def _along(node: Node, x: NDArray[Any], scale: NDArray[Any]) -> tuple[int | None, int]:
    if scale.size == 1 and scale.ndim < 2:
        return None, 0
    axis = node.attributes.get("axis", 1) % x.ndim
    if scale.ndim == 1:
        return axis, 0
    return axis, node.attributes.get("block_size", 0) or -(-x.shape[axis] // scale.shape[axis])


def _flat(scale: NDArray[Any]) -> NDArray[Any]:
    return scale.reshape(()) if scale.size == 1 and scale.ndim < 2 else scale
