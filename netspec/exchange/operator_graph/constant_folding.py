"""Evaluate nodes of constants at import: a reshaped kernel, a target shape, dequantized weights.

Most are evaluated by ONNX's reference implementation. Operators that only move or repeat elements are done by NumPy,
without copies where possible. The size of a result is known before it is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.operator_graph.arrays import NARROW, bounds, widened
from netspec.exchange.operator_graph.evaluate import check_constant_size, compute
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.ops import quantization as ops
from netspec.graph.types import DType

MAX_ELEMENTS = 2**27
"""Largest number of elements of a computed constant; larger ones are refused."""


def fold(node: OperatorNode, operands: list[NDArray[Any] | None], batch_size: int = 0) -> list[NDArray[Any]]:
    """The results of a node whose operands are all constant (None: left out).

    A constant repeated along an axis of `batch_size` is stored once, so that axis does not count towards its size.
    Raises `UnsupportedFeature`, or `NotEvaluated`.
    """
    function = _FOLDS.get(node.op_type) if not node.domain else None
    if function is None:
        return compute(node, operands)
    try:
        with np.errstate(all="ignore"):
            if node.op_type not in _NEVER_COPY:
                for array in operands:
                    _require_size(np.asarray(array))
            result = np.asarray(function(node, *operands))
            _require_size(result, batch_size)
            return [result]
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, AttributeError) as error:
        raise UnsupportedFeature(f"its constant operands do not fit: {error}") from error


def stored_size(array: NDArray[Any]) -> int:
    """Number of elements in memory: those repeated by a broadcast count once."""
    return prod(size for size, stride in zip(array.shape, array.strides, strict=True) if stride)


def _require_size(array: NDArray[Any], batch_size: int = 0) -> None:
    """Raise `ValueError` if a broadcast array has too many elements, per sample if it repeats one for each."""
    axes = zip(array.shape, array.strides, strict=True)
    per_sample = prod(size for size, stride in axes if stride or size != batch_size)
    if stored_size(array) < array.size:
        check_constant_size(per_sample, MAX_ELEMENTS)


def target_shape(target: list[int], shape: tuple[int, ...], allow_zero: bool = False) -> tuple[int, ...]:
    """The shape that ONNX's Reshape gives: 0 keeps an axis, one -1 becomes what remains. Raises `ValueError`."""
    sizes = [shape[axis] if size == 0 and not allow_zero else size for axis, size in enumerate(target)]
    fixed_size = prod(size for size in sizes if size != -1)
    if -1 in sizes:
        if fixed_size == 0 or prod(shape) % fixed_size:
            raise ValueError(f"{list(shape)} cannot take the shape {target}")
        sizes[sizes.index(-1)] = prod(shape) // fixed_size
    if prod(sizes) != prod(shape) or min(sizes, default=1) < 0:
        raise ValueError(f"{list(shape)} cannot take the shape {target}")
    return tuple(sizes)


def squeezed(shape: tuple[int, ...], axes: list[int] | None) -> tuple[int, ...]:
    """`shape` without its axes of size 1, or without those in `axes`."""
    dropped = (
        {axis % len(shape) for axis in axes} if axes is not None else {i for i, size in enumerate(shape) if size == 1}
    )
    if any(shape[axis] != 1 for axis in dropped):
        raise ValueError(f"axes {sorted(dropped)} of {list(shape)} cannot be squeezed")
    return tuple(size for axis, size in enumerate(shape) if axis not in dropped)


def unsqueezed(shape: tuple[int, ...], axes: list[int]) -> tuple[int, ...]:
    """`shape` with axes of size 1 put in so that they are at `axes` of the result."""
    rank = len(shape) + len(axes)
    added, remaining = {axis % rank for axis in axes}, iter(shape)
    if len(added) != len(axes):
        raise ValueError(f"axes {axes} are given twice")
    return tuple(1 if axis in added else next(remaining) for axis in range(rank))


def slice_range(start: int, end: int, step: int, size: int) -> range:
    """The indices that ONNX's Slice takes of an axis of `size` elements.

    Unlike Python, ONNX clamps a start before the axis to its first element even for a negative step.
    """
    return range(*slice(max(start, -size), end, step).indices(size))


def element_type(code: int) -> str:
    """Return NumPy's name of an ONNX element type. Raises `ValueError` for a type that is not numeric."""
    names = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
             10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "float32"}  # fmt: skip
    if code not in names:
        raise ValueError(f"element type {code} is not read")
    return names[code]


def _constant(node: OperatorNode) -> Any:
    for key, dtype in (("value", None), ("value_float", "float32"), ("value_floats", "float32"),
                       ("value_int", "int64"), ("value_ints", "int64"), ("sparse_value", None)):  # fmt: skip
        if key in node.attributes:
            return np.asarray(node.attributes[key], dtype)
    raise ValueError("a constant of another kind than numbers")


def _axes(node: OperatorNode, operand: Any) -> list[int] | None:
    """Axes from an operand, as in newer opsets, or from an attribute, as in older ones."""
    axes = operand.reshape(-1).tolist() if operand is not None else node.attributes.get("axes")
    return None if axes is None else list(axes)


def _flat(node: OperatorNode, x: Any) -> Any:
    axis = node.attributes["axis"]
    return x.reshape(prod(x.shape[: axis if axis >= 0 else axis + x.ndim]), -1)


def _expand(x: Any, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, shape))


def _constant_of_shape(node: OperatorNode, shape: Any) -> Any:
    value = node.attributes.get("value")
    return _expand(np.zeros((), "float32") if value is None else value.reshape(()), tuple(shape.tolist()))


def _range(start: Any, limit: Any, delta: Any) -> Any:
    """ONNX requires scalars; its own function bodies (AffineGrid) pass vectors of one element."""
    start, limit, delta = (bound.reshape(()) for bound in (start, limit, delta))
    if not delta:
        raise ValueError("a step of 0")
    count = max(0, ceil((limit.item() - start.item()) / delta.item()))
    check_constant_size(count, MAX_ELEMENTS)
    return start + np.arange(count, dtype=start.dtype) * delta


def quantized(node: OperatorNode, x: NDArray[Any], scale: NDArray[Any], zero_point: NDArray[Any] | None = None) -> Any:
    """Quantize constant floats."""
    zero = np.zeros(scale.shape, "uint8") if zero_point is None else zero_point
    narrow, zero = str(zero.dtype), widened(zero)
    axis, block = _along(node, x, scale)
    quantize = ops.QuantizeLinear(axis, block, DType(str(zero.dtype)))
    quantized = quantize.forward(np, np.atleast_1d(x), _scalar_if_single(scale), _scalar_if_single(zero)).reshape(
        x.shape
    )
    return np.clip(quantized, *bounds(narrow)) if narrow in NARROW else quantized


def dequantized(
    node: OperatorNode, x: NDArray[Any], scale: NDArray[Any], zero_point: NDArray[Any] | None = None
) -> Any:
    """Dequantize constant integers."""
    x = widened(x)
    zero = np.zeros(scale.shape, x.dtype) if zero_point is None else widened(zero_point)
    axis, block = _along(node, x, scale)
    return ops.DequantizeLinear(axis, block).forward(np, x, _scalar_if_single(scale), _scalar_if_single(zero))


def _along(node: OperatorNode, x: NDArray[Any], scale: NDArray[Any]) -> tuple[int | None, int]:
    if scale.size == 1 and scale.ndim < 2:
        return None, 0
    axis = node.attributes.get("axis", 1) % x.ndim
    if scale.ndim == 1:
        return axis, 0
    return axis, node.attributes.get("block_size", 0) or -(-x.shape[axis] // scale.shape[axis])


def _scalar_if_single(scale: NDArray[Any]) -> NDArray[Any]:
    return scale.reshape(()) if scale.size == 1 and scale.ndim < 2 else scale


_FOLDS: dict[str, Callable[..., Any]] = {
    "Constant": _constant,
    "Identity": lambda node, x: x,
    "Reshape": lambda node, x, shape: x.reshape(
        target_shape(shape.tolist(), x.shape, bool(node.attributes.get("allowzero")))
    ),
    "Transpose": lambda node, x: x.transpose(node.attributes.get("perm")),
    "Squeeze": lambda node, x, axes=None: x.reshape(squeezed(x.shape, _axes(node, axes))),
    "Unsqueeze": lambda node, x, axes=None: x.reshape(unsqueezed(x.shape, _axes(node, axes) or [])),
    "Flatten": _flat,
    "Cast": lambda node, x: x.astype(element_type(node.attributes["to"])),
    "Expand": lambda node, x, shape: _expand(x, tuple(shape.tolist())),
    "ConstantOfShape": _constant_of_shape,
    "Shape": lambda node, x: list(x.shape)[node.attributes.get("start", 0) : node.attributes.get("end")],
    "Range": lambda node, *bounds: _range(*bounds),
    "Size": lambda node, x: x.size,
    "QuantizeLinear": quantized,
    "DequantizeLinear": dequantized,
}
"""Operators that NumPy evaluates, most of them without a copy."""
_NEVER_COPY = ("Expand", "Identity", "Shape", "Size", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that NumPy evaluates without a copy even if an operand is broadcast."""
