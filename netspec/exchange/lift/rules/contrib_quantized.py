"""onnxruntime's quantized operators (com.microsoft), as ONNX operators that give the same integers.

If onnxruntime multiplies scales before it applies them, so does the importer, so that results round the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.nodes import OPSET_OF_EXPANSIONS, Expansion
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.contrib import MICROSOFT, channels_first, channels_last, embedding
from netspec.exchange.lift.rules.contrib_attention import attend, need_no_state
from netspec.exchange.lift.rules.unrolled_recurrence import Direction, picked, unrolled
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.operator_graph.onnx_protos import defaults
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature

TABLES = {"QLinearSigmoid": "Sigmoid", "QLinearLeakyRelu": "LeakyRelu", "QLinearSoftmax": "Softmax"}


@rule(*TABLES, domain=MICROSOFT)
def function(ctx: LiftContext, node: OperatorNode) -> None:
    """Apply a function to the dequantized values, and quantize the result."""
    steps, have = Expansion(ctx, node), dict(node.attributes)
    x = _floats(ctx, steps, *_three(node, 0))
    if have.pop("opset", 13) < 13 and have.get("axis", -1) not in (-1, ctx.tensors.rank(node.inputs[0]) - 1):
        raise UnsupportedFeature("a quantized softmax over several axes is not supported")
    _quantized(ctx, steps, steps.node(TABLES[node.op_type], x, **have), node, 3)
    steps.lift()


@rule("QLinearAveragePool", domain=MICROSOFT)
def average(ctx: LiftContext, node: OperatorNode) -> None:
    """Apply AveragePool to the dequantized values, and quantize the result."""
    steps, have, rank = Expansion(ctx, node), dict(node.attributes), ctx.tensors.rank(node.inputs[0])
    last = have.pop("channels_last", 0)
    x = _floats(ctx, steps, *_three(node, 0))
    result = steps.node("AveragePool", channels_first(steps, x, rank) if last else x, **have)
    result = steps.node("Div", channels_last(steps, result, rank) if last else result, node.operand(3))
    _rounded(ctx, steps, result, node, 4)
    steps.lift()


@rule("QLinearGlobalAveragePool", domain=MICROSOFT)
def global_average(ctx: LiftContext, node: OperatorNode) -> None:
    """Sum the integers without their zero point, and multiply by one factor, which includes 1 / count."""
    steps, shape = Expansion(ctx, node), ctx.tensors.shape(node.inputs[0])
    axes = list(range(1, len(shape) - 1)) if node.attributes.get("channels_last") else list(range(2, len(shape)))
    count = prod(shape[axis] for axis in axes)
    x, scale, zero = _three(node, 0)
    integers = _without_zero_point(ctx, steps, x, zero)
    total = steps.node("ReduceSum", integers, steps.integers(axes), axes=axes, keepdims=1)
    factor = _number(ctx, scale) / (_number(ctx, node.operand(3)) * count)
    _rounded(ctx, steps, steps.node("Mul", total, steps.number(factor)), node, 4, after=True)
    steps.lift()


@rule("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def of_two(ctx: LiftContext, node: OperatorNode) -> None:
    """Add or multiply integers without their zero points, and scale them by the quotients of the scales."""
    steps, scale = Expansion(ctx, node), _number(ctx, node.operand(6))
    first, second = (_without_zero_point(ctx, steps, *_three(node, at)[::2]) for at in (0, 3))
    first_scale, second_scale = (_number(ctx, node.operand(at)) for at in (1, 4))
    if node.op_type == "QLinearAdd":
        terms = [
            steps.node("Mul", first, steps.number(first_scale / scale)),
            steps.node("Mul", second, steps.number(second_scale / scale)),
        ]
        result = steps.node("Add", *terms)
    else:
        result = steps.node("Mul", steps.node("Mul", first, second), steps.number(first_scale * second_scale / scale))
    _rounded(ctx, steps, result, node, 7)
    steps.lift()


@rule("QLinearConcat", domain=MICROSOFT)
def concatenate(ctx: LiftContext, node: OperatorNode) -> None:
    """Concatenate tensors, each requantized unless its scale and zero point are those of the result."""
    steps, parts = Expansion(ctx, node), []
    for at in range(2, len(node.inputs), 3):
        x, scale, zero = _three(node, at)
        if not _are_equal(ctx, (scale, zero), node.inputs[:2]):
            x = _quantized(ctx, steps, _floats(ctx, steps, x, scale, zero), node, 0)
        parts.append(x)
    steps.node("Concat", *parts, axis=node.attributes["axis"])
    steps.lift()


@rule("QLinearWhere", domain=MICROSOFT)
def where(ctx: LiftContext, node: OperatorNode) -> None:
    """Select dequantized elements of two tensors, and quantize the result."""
    steps = Expansion(ctx, node)
    result = steps.node("Where", node.inputs[0], *(_floats(ctx, steps, *_three(node, at)) for at in (1, 4)))
    _quantized(ctx, steps, result, node, 7)
    steps.lift()


@rule("QLinearConv", "NhwcMaxPool", domain=MICROSOFT)
def of_images(ctx: LiftContext, node: OperatorNode) -> None:
    """Replace the node by ONNX's operator; the images may be channels-last."""
    steps, have, rank = Expansion(ctx, node), dict(node.attributes), ctx.tensors.rank(node.inputs[0])
    pool = node.op_type == "NhwcMaxPool"
    last, (x, *others) = have.pop("channels_last", pool), node.inputs
    result = steps.node(
        "MaxPool" if pool else node.op_type, channels_first(steps, x, rank) if last else x, *others, **have
    )
    if last:
        channels_last(steps, result, rank)
    steps.lift()


@rule("QGemm", domain=MICROSOFT)
def product(ctx: LiftContext, node: OperatorNode) -> None:
    """Compute alpha · A · B + C in integers; the result is float or quantized."""
    steps, have = Expansion(ctx, node), node.attributes
    (a, a_scale, a_zero), (b, b_scale, b_zero) = _three(node, 0), _three(node, 3)
    a, b = (
        steps.node("Transpose", x, perm=[1, 0]) if have.get(key) else x for x, key in ((a, "transA"), (b, "transB"))
    )
    total = steps.node("MatMulInteger", a, b, a_zero, b_zero)
    if node.operand(6):
        total = steps.node("Add", total, node.operand(6))
    factor = _number(ctx, a_scale) * ctx.tensors.constant(b_scale, "scale") * have.get("alpha", 1.0)
    result = steps.node("Cast", total, to=1)
    if node.operand(7):
        factor = factor / _number(ctx, node.operand(7))
        _rounded(ctx, steps, steps.node("Mul", result, steps.constant(factor.astype("float32"))), node, 8, after=True)
    else:
        steps.node("Mul", result, steps.constant(factor.astype("float32")))
    steps.lift()


@rule("DynamicQuantizeMatMul", "MatMulIntegerToFloat", domain=MICROSOFT)
def product_as_floats(ctx: LiftContext, node: OperatorNode) -> None:
    """Compute A · B + bias in integers, with a float result; A may be quantized dynamically."""
    steps, operands = Expansion(ctx, node), [node.operand(index) for index in range(7)]
    if node.op_type == "MatMulIntegerToFloat":
        a, b, a_scale, b_scale, a_zero, b_zero, bias = operands
    else:
        _require_single_sample(ctx)
        b, b_scale, b_zero, bias = operands[1:5]
        a, a_scale, a_zero = steps.node_with_results(3, "DynamicQuantizeLinear", operands[0])
    _multiplied(steps, (a, a_scale, a_zero), (b, b_scale, b_zero), bias)
    steps.lift()


@rule("QAttention", domain=MICROSOFT, uses_all_results=True)
def attention(ctx: LiftContext, node: OperatorNode) -> None:
    """Attention whose projections are integer matrix products."""
    steps = Expansion(ctx, node)
    x, weights, bias, x_scale, scale, mask, x_zero, zero, _ = (node.operand(index) for index in range(9))
    need_no_state(ctx, node, past=(8,))
    projected = _multiplied(steps, (x, x_scale, x_zero), (weights, scale, zero), bias)
    width = ctx.tensors.shape(weights)[1] // 3
    parts = steps.node_with_results(3, "Split", projected, steps.integers([width] * 3), axis=-1)
    attend(ctx, steps, node, parts, query_width=width, mask=mask, bias="")
    steps.lift()


@rule("QEmbedLayerNormalization", domain=MICROSOFT, uses_all_results=True)
def quantized_embedding(ctx: LiftContext, node: OperatorNode) -> None:
    """EmbedLayerNormalization with quantized embedding tables."""
    words, segments, *tables, mask = (node.operand(index) for index in range(8))
    floats = []
    for index, table in enumerate(tables):
        name = ctx.tensors.fresh_name(node.outputs[0], reads=0) if table else ""
        if table:
            scale, zero = (ctx.tensors.constant(node.operand(at + index), "scale or zero point") for at in (8, 13))
            ctx.tensors.constants[name] = (
                (ctx.tensors.constant(table, "table").astype("float32") - zero) * scale
            ).astype("float32")
        floats.append(name)
    embedding(ctx, replace(node, op_type="EmbedLayerNormalization", inputs=(words, segments, *floats, mask)))


@rule("MatMulNBits", domain=MICROSOFT)
def product_with_few_bits(ctx: LiftContext, node: OperatorNode) -> None:
    """Multiply by a matrix of 2-, 4- or 8-bit integers with a scale for each block of a column."""
    steps, have = Expansion(ctx, node), node.attributes
    if node.operand(4):
        raise UnsupportedFeature("a group index (`g_idx`) is not supported")
    kernel = _dequantized_matrix(ctx, node, have.get("bits", 4), have["block_size"], (have["N"], have["K"]))
    result = steps.node("MatMul", node.inputs[0], steps.constant(kernel))
    if node.operand(5):
        steps.node("Add", result, node.operand(5))
    steps.lift()


@rule("DynamicQuantizeLSTM", domain=MICROSOFT, uses_all_results=True)
def lstm(ctx: LiftContext, node: OperatorNode) -> None:
    """Unroll an LSTM into integer products: the sequence is quantized as a whole, the state at each step."""
    _require_single_sample(ctx)
    operands = [*node.inputs, *[""] * (12 - len(node.inputs))]
    for index in (1, 2):
        operands[index] = ctx.tensors.fresh_name(node.inputs[index])
        ctx.tensors.constants[operands[index]] = ctx.tensors.constant(node.inputs[index], "kernel").transpose(0, 2, 1)
    count = ctx.tensors.shape(node.inputs[0])[1]
    if count > 1:
        ctx.report.remarks.add(
            f"{node.describe()} quantizes the states of all {count} sequences together, as onnxruntime on one thread",
            "{count} nodes quantize the states of all sequences together, as onnxruntime on one thread",
            f"`{node.label}`",
        )
    attributes = {**defaults("LSTM", OPSET_OF_EXPANSIONS), **node.attributes}
    unrolled(ctx, replace(node, op_type="LSTM", inputs=tuple(operands), attributes=attributes), QuantizedDirection)


@dataclass
class QuantizedDirection(Direction):
    """One direction of an LSTM with quantized kernels."""

    products: dict[str, str] = field(default_factory=dict)
    """Products for all gates by the name of the left operand, and the part for each gate."""

    def element(self, at: int) -> str:
        """The product of one step with the kernel; the sequence is quantized as a whole."""
        return picked(self.steps, self._multiplied(self.node.inputs[0], "kernel", 8), at, 0)

    def product(self, x: str, name: str, gate: int) -> str:
        """The part of a product for one gate."""
        if not x:
            return ""
        integers = x if name == "kernel" else self._multiplied(x, name, 10)
        key = f"{gate} of {integers}"
        if key not in self.products:
            parts = self.steps.node_with_results(self.gates, "Split", integers, axis=-1)
            self.products |= {f"{index} of {integers}": part for index, part in enumerate(parts)}
        return self.products[key]

    def _multiplied(self, x: str, name: str, index: int) -> str:
        """x, quantized dynamically, times an integer kernel whose scales are operand `index`."""
        if x not in self.products:
            constant = self.steps.constant
            scale, zero = (
                constant(self.ctx.tensors.constant(self.node.operand(at), "scale or zero point")[self.number])
                for at in (index, index + 1)
            )
            quantized = self.steps.node_with_results(3, "DynamicQuantizeLinear", x)
            self.products[x] = _multiplied(self.steps, quantized, (constant(self.weights[name]), scale, zero), "")
        return self.products[x]


def _dequantized_matrix(
    ctx: LiftContext, node: OperatorNode, bits: int, block: int, shape: tuple[int, int]
) -> NDArray[Any]:
    """Dequantize a matrix of 2-, 4- or 8-bit integers to floats (K, N)."""
    columns, rows = shape
    if bits not in (2, 4, 8):
        raise UnsupportedFeature(f"integers of {bits} bits are not supported, only of 2, 4 or 8")
    blocks = -(-rows // block)
    packed = ctx.tensors.constant(node.inputs[1], "kernel").reshape(columns, blocks, -1)
    scales = ctx.tensors.constant(node.inputs[2], "scales").reshape(columns, blocks, 1)
    zeros: NDArray[Any] = np.asarray(2 ** (bits - 1), "float32")
    if node.operand(3):
        zero_points = ctx.tensors.constant(node.inputs[3], "zero points")
        zeros = (
            _unpacked(zero_points.reshape(columns, -1), bits)[:, :blocks]
            if zero_points.dtype == np.uint8
            else zero_points
        )
        zeros = zeros.reshape(columns, blocks, 1)
    wide = (_unpacked(packed, bits) - zeros.astype("float32")) * scales.astype("float32")
    return np.ascontiguousarray(wide.reshape(columns, -1)[:, :rows].T, "float32")


def _unpacked(packed: NDArray[Any], bits: int) -> NDArray[Any]:
    """Unpack integers of a few bits, from the lowest bits of each byte up."""
    parts = [packed >> shift & (2**bits - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*packed.shape[:-1], -1)


def _three(node: OperatorNode, at: int) -> tuple[str, str, str]:
    """A quantized operand, its scale and its zero point."""
    return node.operand(at), node.operand(at + 1), node.operand(at + 2)


def _number(ctx: LiftContext, name: str) -> Any:
    array = ctx.tensors.constant(name, "scale").reshape(())
    if not 0 < array < inf:
        raise UnsupportedFeature(f"its scale must be positive and finite, got {array}")
    return array


def _are_equal(ctx: LiftContext, first: Sequence[str], second: Sequence[str]) -> bool:
    constants = [[ctx.tensors.constant(name, "scale or zero point") for name in names] for names in (first, second)]
    return all((a == b).all() for a, b in zip(*constants, strict=True))


def _floats(ctx: LiftContext, steps: Expansion, x: str, scale: str, zero: str) -> str:
    _number(ctx, scale)
    return steps.node("DequantizeLinear", x, scale, *filter(None, [zero]))


def _zero(ctx: LiftContext, steps: Expansion, node: OperatorNode, name: str) -> str:
    """The zero point of a result; by default a zero of the first operand's type."""
    return name or steps.constant(np.zeros((), ctx.tensors.dtype_name(node.inputs[0])))


def _quantized(ctx: LiftContext, steps: Expansion, x: str, node: OperatorNode, at: int) -> str:
    """Quantize floats with the scale and zero point in operands `at` and `at + 1`."""
    return steps.node("QuantizeLinear", x, node.operand(at), _zero(ctx, steps, node, node.operand(at + 1)))


def _rounded(ctx: LiftContext, steps: Expansion, x: str, node: OperatorNode, at: int, after: bool = False) -> str:
    """Round floats in units of the result's scale to integers, with the zero point in operand `at`.

    The zero point is added before rounding, or afterwards if `after`: ties round to even, so the results may differ.
    """
    zero = _zero(ctx, steps, node, node.operand(at))
    if not after:
        array = ctx.tensors.constant(zero, "zero point")
        x = steps.node("Add", x, steps.number(float(array.reshape(()))))
        zero = steps.constant(np.zeros_like(array))
    return steps.node("QuantizeLinear", x, steps.number(1.0), zero)


def _without_zero_point(ctx: LiftContext, steps: Expansion, x: str, zero: str) -> str:
    """Subtract the zero point from integers; the result is float."""
    result = steps.node("Cast", x, to=1)
    shift = float(ctx.tensors.constant(zero, "zero point").reshape(())) if zero else 0.0
    return steps.node("Sub", result, steps.number(shift)) if shift else result


def _require_single_sample(ctx: LiftContext) -> None:
    if not ctx.tensors.single_sample:
        raise MixesSamples("all samples of a batch share one scale, which is computed from their values")


def _multiplied(steps: Expansion, a: Sequence[str], b: Sequence[str], bias: str) -> str:
    """An integer product, scaled to floats by the product of both scales."""
    (x, x_scale, x_zero), (kernel, scale, zero) = a, b
    zeros = [x_zero or (steps.constant(np.zeros((), "uint8")) if zero else "")] + [zero] * bool(zero)
    total = steps.node("Cast", steps.node("MatMulInteger", x, kernel, *filter(None, zeros)), to=1)
    result = steps.node("Mul", total, steps.node("Mul", scale, x_scale))
    return steps.node("Add", result, bias) if bias else result
