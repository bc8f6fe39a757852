"""Numbers of 8 and 16 bits that stand for floats: value = (number - zero_point) · scale; and sums of their products.

Arithmetic is exact: sums of products of 8 bits are whole numbers that float64 holds, up to 2³⁵ of them.
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
"""The least and the greatest number of each type that floats are quantized to."""
BYTES = (DType.INT8, DType.UINT8)


@dataclass(frozen=True)
class Scaled(Op):
    """Base of both: how scales and zero points lie along the operand.

    They are one number; or with `axis` one for each place along it; or with `block` one for so many places each; or
    already broadcast to the operand.
    """

    axis: int | None = None
    block: int = 0

    def check_scales(self, x: TensorType, scale: TensorType, zero_point: TensorType) -> None:
        """Raise unless scales and zero points fit the operand."""
        alike = zero_point.shape in (scale.shape, ())
        self.check(alike, "there is not one zero point for each scale", expected=f"{scale.shape}", got=zero_point)
        spread = self.shape_of(scale.shape, x.shape)
        fits = spread is not None and broadcast_shapes(spread, x.shape) == x.shape
        self.check(fits, "the scales do not fit", expected=f"scales for {x}", got=scale)

    def shape_of(self, scale: tuple[int, ...], x: tuple[int, ...]) -> tuple[int, ...] | None:
        """The shape of scales spread along the operand, or None where they do not fit."""
        if self.axis is not None and len(scale) == 1 != len(x):
            return tuple(scale[0] if axis == self.axis else 1 for axis in range(len(x)))
        if self.block:
            assert self.axis is not None
            fits = len(scale) == len(x) and scale[self.axis] == -(-x[self.axis] // self.block)
            return tuple(x[axis] if axis == self.axis else size for axis, size in enumerate(scale)) if fits else None
        return scale

    def spread(self, xp: Xp, scale: Array, x: Array) -> Array:
        """An array of scales, or zero points, so that it broadcasts to `x`."""
        if self.axis is not None and scale.ndim == 1 != x.ndim:
            return scale.reshape([-1 if axis == self.axis else 1 for axis in range(x.ndim)])
        if self.block and scale.ndim:
            rows = xp.repeat(scale, self.block, axis=self.axis)
            return rows[
                tuple(slice(x.shape[self.axis]) if axis == self.axis else slice(None) for axis in range(x.ndim))
            ]
        return scale

    def spread_value(self, scale: Value, x: Value) -> Value:
        """As `spread`, of values of the graph."""
        shape = scale.shape
        if self.block and shape:
            axis, size = self.axis, x.shape[self.axis or 0]
            assert axis is not None
            first, last = shape[:axis], shape[axis + 1 :]
            wide = Broadcast((*first, shape[axis], self.block, *last))(
                reshape_to(scale, (*first, shape[axis], 1, *last))
            )
            return Slice(axis, 0, size)(reshape_to(wide, (*first, shape[axis] * self.block, *last)))
        spread = self.shape_of(shape, x.shape)
        assert spread is not None
        return reshape_to(scale, spread)

    def as_node(self, x: Value, scale: Value, zero_point: Value) -> dict[str, int] | None:
        """Attributes of the ONNX operator, or None where it does not take such scales."""
        if zero_point.shape != scale.shape or (len(scale.shape) > 0 and self.axis is None):
            return None
        if self.block:
            others = all(
                a == b for axis, (a, b) in enumerate(zip(scale.shape, x.shape, strict=True)) if axis != self.axis
            )
            return {"axis": self.axis or 0, "block_size": self.block} if others else None
        return {} if scale.shape == () else {"axis": self.axis or 0} if len(scale.shape) == 1 else None

    def spread_in_onnx(self, g: Emitter, name: str, scale: Value, x: Value) -> str:
        """The tensor of scales, or of zero points, so that it broadcasts to x."""
        if self.block and scale.shape:
            places = [place // self.block for place in range(x.shape[self.axis or 0])]
            return g.node("Gather", name, g.constant(places, "int64"), axis=self.axis)
        return name


def _quantize_to_onnx(g: Emitter, y: Value, x: str, scale: str, zero_point: str) -> str:
    op = y.op
    assert isinstance(op, QuantizeLinear)
    attributes = op.as_node(*y.inputs)
    if attributes is not None:
        return g.node("QuantizeLinear", x, scale, zero_point, **attributes)
    data, scales, zeros = y.inputs
    quotient = g.node("Round", g.node("Div", x, op.spread_in_onnx(g, scale, scales, data)))
    zero_point = g.node("Cast", op.spread_in_onnx(g, zero_point, zeros, data), to=data.dtype)
    low, high = (g.constant(limit, str(data.dtype)) for limit in LIMITS[op.dtype])
    return g.node("Cast", g.node("Clip", g.node("Add", quotient, zero_point), low, high), to=op.dtype)


@dataclass(frozen=True)
class QuantizeLinear(Scaled, NoGradient):
    """round(x / scale) + zero_point, of two numbers as near the even one, cut off where the type ends."""

    dtype: DType = DType.UINT8
    onnx = OnnxExpansion(_quantize_to_onnx)

    def infer(self, x: TensorType, scale: TensorType, zero_point: TensorType) -> TensorType:
        """x, scale: floats, zero_point: of the result's type → the result's type, x's shape."""
        self.check(x.dtype.is_float, f"{self.name} of whole numbers", expected="floats", got=x)
        self.check(
            zero_point.dtype == self.dtype, "the zero point is of another type", expected=self.dtype, got=zero_point
        )
        self.check_scales(x, scale, zero_point)
        return x.with_dtype(self.dtype)

    def forward(self, xp: Xp, x: Array, scale: Array, zero_point: Array) -> Array:
        y = xp.rint(x / self.spread(xp, scale, x))
        y += self.spread(xp, zero_point, x)
        y = xp.nan_to_num(y, copy=False)  # whole numbers have none that is no number: it becomes 0
        return xp.clip(y, *LIMITS[self.dtype]).astype(str(self.dtype))


def _dequantize_to_onnx(g: Emitter, y: Value, x: str, scale: str, zero_point: str) -> str:
    op = y.op
    assert isinstance(op, DequantizeLinear)
    attributes = op.as_node(*y.inputs)
    if attributes is not None:
        return g.node("DequantizeLinear", x, scale, zero_point, **attributes)
    data, scales, zeros = y.inputs
    zero_point = g.node("Cast", op.spread_in_onnx(g, zero_point, zeros, data), to=y.dtype)
    shifted = g.node("Sub", g.node("Cast", x, to=y.dtype), zero_point)
    return g.node("Mul", shifted, op.spread_in_onnx(g, scale, scales, data))


@dataclass(frozen=True)
class DequantizeLinear(Scaled):
    """(x - zero_point) · scale"""

    onnx = OnnxExpansion(_dequantize_to_onnx)

    def infer(self, x: TensorType, scale: TensorType, zero_point: TensorType) -> TensorType:
        """x, zero_point: whole numbers of one type, scale: floats → floats of x's shape."""
        self.check(not x.dtype.is_float, f"{self.name} of floats", expected="whole numbers", got=x)
        self.check(zero_point.dtype == x.dtype, "the zero point is of another type", expected=x.dtype, got=zero_point)
        self.check_scales(x, scale, zero_point)
        return x.with_dtype(scale.dtype)

    def forward(self, xp: Xp, x: Array, scale: Array, zero_point: Array) -> Array:
        y = x.astype(scale.dtype)
        y -= self.spread(xp, zero_point, x)
        y *= self.spread(xp, scale, x)
        return y

    def decompose(self, x: Value, scale: Value, zero_point: Value) -> Value:
        wide = scale.dtype
        shifted = Sub()(cast(x, wide), self.spread_value(cast(zero_point, wide), x))
        return Mul()(shifted, self.spread_value(scale, x))


def exact(x: Array, zero_point: Array) -> Array:
    """x - zero_point in float64, in which sums of products of such numbers are exact."""
    return x.astype("float64") - zero_point


def wrapped(y: Array) -> Array:
    """Whole numbers in float64 as int32, of which the lower bits remain where they are larger."""
    return y.astype("int64").astype("int32")


def _matmul_to_onnx(g: Emitter, y: Value, a: str, b: str, a_zero: str, b_zero: str) -> str:
    if all(zero.shape == () for zero in y.inputs[2:]):
        return g.node("MatMulInteger", a, b, a_zero, b_zero)
    wide = [g.node("Sub", g.node("Cast", x, to=DType.INT32), g.node("Cast", zero, to=DType.INT32))
            for x, zero in ((a, a_zero), (b, b_zero))]  # fmt: skip
    return g.node("MatMul", *wide)


class MatMulInteger(NoGradient):
    """(a - a_zero_point) @ (b - b_zero_point) of numbers of 8 bits, in int32.

    Zero points broadcast to their operands: a number, or one for each row of a and each column of b.
    """

    onnx = OnnxExpansion(_matmul_to_onnx)

    def infer(self, a: TensorType, b: TensorType, a_zero: TensorType, b_zero: TensorType) -> TensorType:
        """a: (…, M, K), b: (…, K, N) of int8 or uint8, zero points of the same types → (…, M, N), int32."""
        for x, zero in ((a, a_zero), (b, b_zero)):
            self.check(
                x.dtype in BYTES and zero.dtype == x.dtype,
                f"{self.name} of other numbers",
                expected="int8, uint8",
                got=x,
            )
            fits = broadcast_shapes(x.shape, zero.shape) == x.shape
            self.check(fits, "the zero points do not fit", expected=f"some for {x}", got=zero)
        inferred = MatMul().infer(a.with_dtype(DType.INT32), b.with_dtype(DType.INT32))
        return inferred.with_dtype(DType.INT32)

    def forward(self, xp: Xp, a: Array, b: Array, a_zero: Array, b_zero: Array) -> Array:
        return wrapped(xp.matmul(exact(a, a_zero), exact(b, b_zero)))

    def flops(self, a: TensorType, b: TensorType, a_zero: TensorType, b_zero: TensorType) -> int:
        return 2 * a.shape[-1] * self.infer(a, b, a_zero, b_zero).size
