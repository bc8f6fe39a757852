"""Quantization: integers of 8 and 16 bits that represent floats, value = (integer - zero_point) · scale.

Arithmetic is exact: float64 holds sums of up to 2³⁵ products of 8-bit integers.
https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
"""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.onnx_map import Emitter, OnnxExpansion
from netspec.graph.op import Array, NoGradient, Op, Xp
from netspec.graph.ops.elementwise import Mul, Sub, cast
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import Broadcast, reshape_to
from netspec.graph.ops.shape import Slice
from netspec.graph.types import DType, TensorType, broadcast_shapes
from netspec.graph.value import Value

LIMITS = {
    DType.INT8: (-(2**7), 2**7 - 1), DType.UINT8: (0, 2**8 - 1),
    DType.INT16: (-(2**15), 2**15 - 1), DType.UINT16: (0, 2**16 - 1),
}  # fmt: skip
"""The smallest and largest integer of each type that floats are quantized to."""
BYTES = (DType.INT8, DType.UINT8)


@dataclass(frozen=True)
class QuantizationOp(Op):
    """Base of both ops: how scales and zero points apply to the operand.

    They are scalars (per tensor), vectors along `axis` (per axis), one for each `block` elements along it (blocked), or
    have the operand's shape.
    """

    axis: int | None = None
    block: int = 0

    def check_scales(self, x: TensorType, scale: TensorType, zero_point: TensorType) -> None:
        """Raise `ShapeMismatch` unless scales and zero points match the operand."""
        zero_points_match = zero_point.shape in (scale.shape, ())
        self.check(
            zero_points_match,
            "the zero points do not have the shape of the scales",
            expected=f"{scale.shape}",
            got=zero_point,
        )
        broadcast = self.scale_shape(scale.shape, x.shape)
        fits = broadcast is not None and broadcast_shapes(broadcast, x.shape) == x.shape
        self.check(fits, "the scales do not match the operand", expected=f"scales for {x}", got=scale)

    def scale_shape(self, scale: tuple[int, ...], x: tuple[int, ...]) -> tuple[int, ...] | None:
        """The shape of scales broadcast along the operand, or None if they do not match."""
        if self.axis is not None and len(scale) == 1 != len(x):
            return tuple(scale[0] if axis == self.axis else 1 for axis in range(len(x)))
        if self.block:
            assert self.axis is not None
            fits = len(scale) == len(x) and scale[self.axis] == -(-x[self.axis] // self.block)
            return tuple(x[axis] if axis == self.axis else size for axis, size in enumerate(scale)) if fits else None
        return scale

    def broadcast_scale(self, xp: Xp, scale: Array, x: Array) -> Array:
        """An array of scales or zero points that broadcasts to `x`."""
        if self.axis is not None and scale.ndim == 1 != x.ndim:
            return scale.reshape([-1 if axis == self.axis else 1 for axis in range(x.ndim)])
        if self.block and scale.ndim:
            rows = xp.repeat(scale, self.block, axis=self.axis)
            return rows[
                tuple(slice(x.shape[self.axis]) if axis == self.axis else slice(None) for axis in range(x.ndim))
            ]
        return scale

    def broadcast_scale_value(self, scale: Value, x: Value) -> Value:
        """A value of scales or zero points that broadcasts to `x`."""
        shape = scale.shape
        if self.block and shape:
            axis, size = self.axis, x.shape[self.axis or 0]
            assert axis is not None
            first, last = shape[:axis], shape[axis + 1 :]
            wide = Broadcast((*first, shape[axis], self.block, *last))(
                reshape_to(scale, (*first, shape[axis], 1, *last))
            )
            return Slice(axis, 0, size)(reshape_to(wide, (*first, shape[axis] * self.block, *last)))
        broadcast = self.scale_shape(shape, x.shape)
        assert broadcast is not None
        return reshape_to(scale, broadcast)

    def onnx_attributes(self, x: Value, scale: Value, zero_point: Value) -> dict[str, int] | None:
        """Attributes of the ONNX operator, or None if it does not support such scales."""
        if zero_point.shape != scale.shape or (len(scale.shape) > 0 and self.axis is None):
            return None
        if self.block:
            other_axes_match = all(
                a == b for axis, (a, b) in enumerate(zip(scale.shape, x.shape, strict=True)) if axis != self.axis
            )
            return {"axis": self.axis or 0, "block_size": self.block} if other_axes_match else None
        return {} if scale.shape == () else {"axis": self.axis or 0} if len(scale.shape) == 1 else None

    def broadcast_scale_in_onnx(self, g: Emitter, name: str, scale: Value, x: Value) -> str:
        """The ONNX tensor of scales or zero points, broadcast to x."""
        if self.block and scale.shape:
            blocks = [index // self.block for index in range(x.shape[self.axis or 0])]
            return g.node("Gather", name, g.constant(blocks, "int64"), axis=self.axis)
        return name


def _quantize_to_onnx(g: Emitter, y: Value, x: str, scale: str, zero_point: str) -> str:
    op = y.op
    assert isinstance(op, QuantizeLinear)
    attributes = op.onnx_attributes(*y.inputs)
    if attributes is not None:
        return g.node("QuantizeLinear", x, scale, zero_point, **attributes)
    data, scales, zeros = y.inputs
    quotient = g.node("Round", g.node("Div", x, op.broadcast_scale_in_onnx(g, scale, scales, data)))
    zero_point = g.node("Cast", op.broadcast_scale_in_onnx(g, zero_point, zeros, data), to=data.dtype)
    low, high = (g.constant(limit, str(data.dtype)) for limit in LIMITS[op.dtype])
    return g.node("Cast", g.node("Clip", g.node("Add", quotient, zero_point), low, high), to=op.dtype)


@dataclass(frozen=True)
class QuantizeLinear(QuantizationOp, NoGradient):
    """round(x / scale) + zero_point, rounded half to even and saturated to the type."""

    dtype: DType = DType.UINT8
    onnx = OnnxExpansion(_quantize_to_onnx)

    def infer(self, x: TensorType, scale: TensorType, zero_point: TensorType) -> TensorType:
        """x, scale: floats; zero_point: of the result's type → integers of that type, in x's shape."""
        self.check(x.dtype.is_float, f"{self.name} needs floats", expected="floats", got=x)
        self.check(
            zero_point.dtype == self.dtype, "the zero point has the wrong type", expected=self.dtype, got=zero_point
        )
        self.check_scales(x, scale, zero_point)
        return x.with_dtype(self.dtype)

    def forward(self, xp: Xp, x: Array, scale: Array, zero_point: Array) -> Array:
        y = xp.rint(x / self.broadcast_scale(xp, scale, x))
        y += self.broadcast_scale(xp, zero_point, x)
        y = xp.nan_to_num(y, copy=False)  # integers have no NaN: it becomes 0
        return xp.clip(y, *LIMITS[self.dtype]).astype(str(self.dtype))


def _dequantize_to_onnx(g: Emitter, y: Value, x: str, scale: str, zero_point: str) -> str:
    op = y.op
    assert isinstance(op, DequantizeLinear)
    attributes = op.onnx_attributes(*y.inputs)
    if attributes is not None:
        return g.node("DequantizeLinear", x, scale, zero_point, **attributes)
    data, scales, zeros = y.inputs
    zero_point = g.node("Cast", op.broadcast_scale_in_onnx(g, zero_point, zeros, data), to=y.dtype)
    shifted = g.node("Sub", g.node("Cast", x, to=y.dtype), zero_point)
    return g.node("Mul", shifted, op.broadcast_scale_in_onnx(g, scale, scales, data))


@dataclass(frozen=True)
class DequantizeLinear(QuantizationOp):
    """(x - zero_point) · scale"""

    onnx = OnnxExpansion(_dequantize_to_onnx)

    def infer(self, x: TensorType, scale: TensorType, zero_point: TensorType) -> TensorType:
        """x, zero_point: integers of one type; scale: floats → floats in x's shape."""
        self.check(not x.dtype.is_float, f"{self.name} needs integers", expected="integers", got=x)
        self.check(zero_point.dtype == x.dtype, "the zero point has the wrong type", expected=x.dtype, got=zero_point)
        self.check_scales(x, scale, zero_point)
        return x.with_dtype(scale.dtype)

    def forward(self, xp: Xp, x: Array, scale: Array, zero_point: Array) -> Array:
        y = x.astype(scale.dtype)
        y -= self.broadcast_scale(xp, zero_point, x)
        y *= self.broadcast_scale(xp, scale, x)
        return y

    def decompose(self, x: Value, scale: Value, zero_point: Value) -> Value:
        dtype = scale.dtype
        shifted = Sub()(cast(x, dtype), self.broadcast_scale_value(cast(zero_point, dtype), x))
        return Mul()(shifted, self.broadcast_scale_value(scale, x))


def subtract_zero_point(x: Array, zero_point: Array) -> Array:
    """x - zero_point in float64, in which sums of products of 8-bit integers are exact."""
    return x.astype("float64") - zero_point


def wrap_int32(y: Array) -> Array:
    """Convert integers stored as float64 to int32, wrapping around on overflow."""
    return y.astype("int64").astype("int32")


def _matmul_to_onnx(g: Emitter, y: Value, a: str, b: str, a_zero: str, b_zero: str) -> str:
    if all(zero.shape == () for zero in y.inputs[2:]):
        return g.node("MatMulInteger", a, b, a_zero, b_zero)
    shifted = [g.node("Sub", g.node("Cast", x, to=DType.INT32), g.node("Cast", zero, to=DType.INT32))
            for x, zero in ((a, a_zero), (b, b_zero))]  # fmt: skip
    return g.node("MatMul", *shifted)


class MatMulInteger(NoGradient):
    """(a - a_zero_point) @ (b - b_zero_point) of 8-bit integers, in int32.

    Zero points broadcast to their operands: scalars, or one for each row of a and each column of b.
    """

    onnx = OnnxExpansion(_matmul_to_onnx)

    def infer(self, a: TensorType, b: TensorType, a_zero: TensorType, b_zero: TensorType) -> TensorType:
        """a: (…, M, K), b: (…, K, N) of int8 or uint8, zero points of the same types → (…, M, N), int32."""
        for x, zero in ((a, a_zero), (b, b_zero)):
            self.check(
                x.dtype in BYTES and zero.dtype == x.dtype,
                f"{self.name} needs 8-bit integers",
                expected="int8, uint8",
                got=x,
            )
            fits = broadcast_shapes(x.shape, zero.shape) == x.shape
            self.check(
                fits, "the zero points do not broadcast to their operand", expected=f"zero points for {x}", got=zero
            )
        inferred = MatMul().infer(a.with_dtype(DType.INT32), b.with_dtype(DType.INT32))
        return inferred.with_dtype(DType.INT32)

    def forward(self, xp: Xp, a: Array, b: Array, a_zero: Array, b_zero: Array) -> Array:
        return wrap_int32(xp.matmul(subtract_zero_point(a, a_zero), subtract_zero_point(b, b_zero)))

    def flops(self, a: TensorType, b: TensorType, a_zero: TensorType, b_zero: TensorType) -> int:
        return 2 * a.shape[-1] * self.infer(a, b, a_zero, b_zero).size
