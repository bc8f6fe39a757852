"""Numbers of 8 and 16 bits that stand for floats, and products of such: a thread for each result.

Sums wrap around as the reference's do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from netspec.backends.cuda.elementwise import bound, value_type
from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.backends.cuda.windows import AXES, geometry, of_three
from netspec.backends.trace import Code
from netspec.graph.kernel import Buffers, Example, Kernel, Thunk, kernel
from netspec.graph.ops.quantization import LIMITS, DequantizeLinear, MatMulInteger, QuantizeLinear, Scaled
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node
from netspec.layers.integer_products import ConvInteger8
from netspec.layers.window import Window


class ScaledKernel(Kernel):
    """Base of both ways: elementwise, in two parts where the last block is a short one."""

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        x, scale, _ = types
        return "floats of two types" if x.dtype.is_float and x.dtype != scale.dtype else None

    def code(self, op: Any, inputs: Sequence[Any]) -> Code:
        """Of one element: of x, its scale and its zero point."""
        raise NotImplementedError  # abstract: subclasses say

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (y,) = node.op, buffers.outputs
        assert isinstance(op, Scaled)
        assert y is not None
        code = self.code(op, buffers.inputs)
        x, scale, zero_point = buffers.inputs
        calls = [bound(code, inputs, [result]) for *inputs, result in _parts(op, x, scale, zero_point, y)]

        def run() -> None:
            for call in calls:
                call()

        return calls[0] if len(calls) == 1 else run


def _parts(op: Scaled, x: Any, scale: Any, zero_point: Any, y: Any) -> Iterator[tuple[Any, ...]]:
    """Views of the four that broadcast to each other: blocks have an axis of their own."""
    if not op.block or not scale.ndim:
        yield (x, *(_spread(op, one, x.ndim) for one in (scale, zero_point)), y)
        return
    assert op.axis is not None
    axis, block = op.axis, op.block
    before = (slice(None),) * axis
    whole = x.shape[axis] // block * block
    for begin, end, length in ((0, whole, block), (whole, x.shape[axis], x.shape[axis] - whole)):
        if begin == end:
            continue
        rows = slice(begin // block, -(-end // block))
        shape = (*x.shape[:axis], (end - begin) // length, length, *x.shape[axis + 1 :])
        parts = [
            one if not one.ndim else one[*before, rows].reshape(*one.shape[:axis], -1, 1, *one.shape[axis + 1 :])
            for one in (scale, zero_point)
        ]
        yield (x[*before, begin:end].reshape(shape), *parts, y[*before, begin:end].reshape(shape))


def _spread(op: Scaled, one: Any, rank: int) -> Any:
    """Scales or zero points along their axis."""
    if op.axis is None or one.ndim != 1 or rank == 1:
        return one
    return one.reshape([-1 if axis == op.axis else 1 for axis in range(rank)])


@kernel(QuantizeLinear, backend="cuda", rank=5)
class QuantizeLinearKernel(ScaledKernel):
    """What is no number becomes 0."""

    def code(self, op: QuantizeLinear, inputs: Sequence[Any]) -> Code:
        kind, (low, high) = value_type(inputs[0]), LIMITS[op.dtype]
        return (
            (
                f"const {kind} wide = rint_{kind}(a0 / a1) + ({kind})a2;",
                f"const {op.dtype} made = wide != wide ? 0 : wide < {low} ? {low} : wide > {high} ? {high} : wide;",
            ),
            ("made",),
        )


@kernel(DequantizeLinear, backend="cuda", rank=5)
class DequantizeLinearKernel(ScaledKernel):
    """(x - zero point) · scale."""

    def samples(self) -> tuple[Example, ...]:
        x, scale = TensorType((2, 7, 3), DType.INT8), TensorType((2, 4, 3), DType.FLOAT32)
        return ((DequantizeLinear(1, 2), (x, scale, scale.with_dtype(DType.INT8))),)

    def code(self, op: DequantizeLinear, inputs: Sequence[Any]) -> Code:
        kind = value_type(inputs[1])
        return (f"const {kind} made = (({kind})a0 - ({kind})a2) * a1;",), ("made",)


PRODUCT = """
UNITS(unit, count) {
    PLACES
    uint32 total = 0;
    for (Index k = 0; k < depth; ++k) {
        total += (uint32)(((int32)a[AT_A] - (int32)a_zero[AT_A_ZERO]) * ((int32)b[AT_B] - (int32)b_zero[AT_B_ZERO]));
    }
    y[unit] = (int32)total;
}
"""


@kernel(MatMulInteger, backend="cuda", rank=5)
class MatMulIntegerKernel(Kernel):
    """Each sum is a thread's."""

    def samples(self) -> tuple[Example, ...]:
        a, b = TensorType((2, 1, 3, 5), DType.UINT8), TensorType((4, 5, 2), DType.INT8)
        zeros = TensorType((2, 1, 3, 1), DType.UINT8), TensorType((2,), DType.INT8)
        return ((MatMulInteger(), (a, b, *zeros)),)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (a, b, a_zero, b_zero), (y,) = buffers.inputs, buffers.outputs
        assert y is not None
        *outer, rows, columns = y.shape
        names = [f"o{axis}" for axis in range(len(outer))]
        lines = [f"const Index column = unit % {columns}, row = unit / {columns} % {rows};"]
        for axis, name in enumerate(names):
            behind = prod(outer[axis + 1 :]) * rows * columns
            lines.append(f"const Index {name} = unit / {behind} % {outer[axis]};")
        left, right = [*names, "row", "k"], [*names, "k", "column"]
        words = {
            "PLACES": "\n    ".join(lines), "AT_A_ZERO": _at(left, a_zero.shape), "AT_B_ZERO": _at(right, b_zero.shape),
            "AT_A": _at(left, a.shape), "AT_B": _at(right, b.shape),
        }  # fmt: skip
        arrays = {"a": a, "b": b, "a_zero": a_zero, "b_zero": b_zero}
        return _bound(PRODUCT, words, arrays, y, depth=a.shape[-1])


def _at(places: Sequence[str], shape: Sequence[int]) -> str:
    """Where an element lies in an array of this shape, which broadcasts to one with these places."""
    terms = [
        f"{place} * {prod(shape[axis + 1 :])}"
        for axis, place in enumerate(places[len(places) - len(shape) :])
        if shape[axis] > 1
    ]
    return " + ".join(terms) or "0"


def _bound(body: str, words: dict[str, str], arrays: dict[str, Any], y: Any, **numbers: int) -> Thunk:
    for word, meaning in words.items():
        body = body.replace(word, meaning)
    parameters = [
        *(pointer(name, array) for name, array in arrays.items()), pointer("y", y, written=True),
        *sizes(max(y.size, *(one.size for one in arrays.values())), count=y.size, **numbers),
    ]  # fmt: skip
    return Launch(parameters, body, y.size).bind()


CONVOLUTION = """
UNITS(unit, count) {
    const Index j = unit % OUT_W, i = unit / OUT_W % OUT_H, o = unit / OUT_W / OUT_H % OUT_D;
    const Index filter = unit / (OUT_W * OUT_H * OUT_D) % filters, n = unit / (OUT_W * OUT_H * OUT_D) / filters;
    const Index first = filter / (filters / groups) * own;
    const int32 zero = x_zero[X_ZERO], w_from = w_zero[W_ZERO];
    uint32 total = 0;
    for (Index c = 0; c < own; ++c)
    for (int e = 0; e < KERNEL_D; ++e)
    for (int k = 0; k < KERNEL_H; ++k)
    for (int l = 0; l < KERNEL_W; ++l) {
        const Index d = o * STRIDE_D - PAD_D + e * DILATION_D, h = i * STRIDE_H - PAD_H + k * DILATION_H;
        const Index g = j * STRIDE_W - PAD_W + l * DILATION_W;
        if (d < 0 || h < 0 || g < 0 || d >= IN_D || h >= IN_H || g >= IN_W) continue; // it counts as the zero point
        const int32 one = x[(((n * channels + first + c) * IN_D + d) * IN_H + h) * IN_W + g];
        const int32 other = w[(((filter * own + c) * KERNEL_D + e) * KERNEL_H + k) * KERNEL_W + l];
        total += (uint32)((one - zero) * (other - w_from));
    }
    y[unit] = (int32)total;
}
"""


@kernel(ConvInteger8, backend="cuda", rank=5)
class ConvInteger8Kernel(Kernel):
    """Each sum is a thread's."""

    def samples(self) -> tuple[Example, ...]:
        window = Window((3, 2), (2, 1), ((1, 0), (0, 1)), (1, 2))
        x, w = TensorType((2, 4, 7, 5), DType.UINT8), TensorType((6, 2, 3, 2), DType.INT8)
        zeros = TensorType((2, 1, 1, 1), DType.UINT8), TensorType((6,), DType.INT8)
        return ((ConvInteger8(window, 2), (x, w, *zeros)),)

    def why_not(self, op: ConvInteger8, *types: TensorType) -> str | None:
        spatial = types[0].rank - 2
        return None if spatial <= len(AXES) else f"{spatial} spatial axes"

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x, w, x_zero, w_zero), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, ConvInteger8)
        assert y is not None
        found = geometry(op.window) | {"IN": of_three(x.shape[2:], 1), "OUT": of_three(y.shape[2:], 1)}
        words = {"X_ZERO": "n" if x_zero.ndim else "0", "W_ZERO": "filter" if w_zero.ndim else "0"} | {
            f"{word}_{axis.upper()}": str(one)
            for word, values in found.items()
            for axis, one in zip(AXES, values, strict=True)
        }
        arrays = {"x": x, "w": w, "x_zero": x_zero, "w_zero": w_zero}
        numbers = {"channels": x.shape[1], "own": w.shape[1], "filters": w.shape[0], "groups": op.groups}
        return _bound(CONVOLUTION, words, arrays, y, **numbers)
