"""Small models with onnxruntime's quantized operators (com.microsoft), and inputs for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from tests.exchange.lift.models.contrib import WORDS, Arrays, contributed, own
from tests.exchange.lift.models.generic import node

random = np.random.default_rng(11)
"""Draws the values in the order of the cases. Add new ones at the end: a value that is a tie may round differently."""


def drawn(*shape: int) -> np.ndarray:
    return random.normal(size=shape).astype("float32")


def whole(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max + 1, shape).astype(dtype)


def positive(*shape: int) -> np.ndarray:
    return random.uniform(0.005, 0.01, shape).astype("float32")


STEPS: dict[str, Any] = {
    "s": np.float32(0.02), "o": np.uint8(120), "t": np.float32(0.03), "u": np.uint8(131),
    "p": np.float32(0.04), "q": np.uint8(99), "r": np.float32(1 / 256), "v": np.uint8(0),
}  # fmt: skip
"""Scales and zero points, with quotients 1/2 and 3/4, so that many values are ties in rounding."""
OF_INT8 = {"o": np.int8(3), "u": np.int8(-5), "q": np.int8(9)}
ROWS = {"x": whole("uint8", 2, 8)}
IMAGE = {"x": whole("uint8", 2, 3, 6, 5)}
LAST = {"x": whole("uint8", 2, 6, 5, 3)}
BOTH = {"x": whole("uint8", 2, 3, 8), "z": whole("uint8", 2, 3, 8)}
BIAS = random.integers(-500, 500, 4).astype("int32")
ONE = {"x": drawn(1, 5, 8)}


def quantized(quantized_node: onnx.NodeProto, arrays: Arrays, weights: Mapping[str, Any] | None = None) -> Any:
    return contributed([quantized_node], arrays, **{**STEPS, **(weights or {})})


def dynamic(dynamic_node: onnx.NodeProto, arrays: Arrays = ONE, **weights: Any) -> Any:
    """Return a model of a single sample, quantized with one scale."""
    first = [node("DynamicQuantizeLinear", "x", "a, i, j")] if "a" in dynamic_node.input else []
    return contributed([*first, dynamic_node], arrays, batch=len(next(iter(arrays.values()))), **weights)


QUANTIZED: dict[str, tuple[onnx.ModelProto, Arrays]] = {
    "a sum": quantized(own("QLinearAdd", "x s o z t u p q"), BOTH),
    "a sum with a constant": quantized(own("QLinearAdd", "x s o k t u p q"), ROWS, {"k": whole("uint8", 8)}),
    "a sum of int8": quantized(
        own("QLinearAdd", "x s o z t u p q"), {name: array.astype("int8") for name, array in BOTH.items()}, OF_INT8
    ),
    "a product": quantized(own("QLinearMul", "x s o z t u p q"), BOTH),
    "one after another": quantized(own("QLinearConcat", "p q x s o z p q", axis=1), BOTH),
    "one or another": quantized(
        own("QLinearWhere", "c x s o z t u p q"), {**BOTH, "c": random.integers(0, 2, (2, 3, 8)).astype(bool)}
    ),
    "sigmoid": quantized(own("QLinearSigmoid", "x s o r v"), ROWS),
    "leaky relu": quantized(own("QLinearLeakyRelu", "x s o p q", alpha=0.2), ROWS),
    "softmax": quantized(own("QLinearSoftmax", "x s o r v", axis=-1, opset=13), ROWS),
    "means": quantized(own("QLinearAveragePool", "x s o p q", kernel_shape=[2, 2]), IMAGE),
    "means of channels that are last": quantized(
        own("QLinearAveragePool", "x s o p q", kernel_shape=[2, 2], strides=[2, 2], channels_last=1), LAST
    ),
    "one mean": quantized(own("QLinearGlobalAveragePool", "x s o p q"), IMAGE),
    "one mean of channels that are last": quantized(
        own("QLinearGlobalAveragePool", "x s o s o", channels_last=1), LAST
    ),
    "greatest of channels that are last": quantized(own("NhwcMaxPool", "x", kernel_shape=[2, 2]), LAST),
    "a convolution of channels that are last": quantized(
        own("QLinearConv", "x s o w t u p q", channels_last=1), LAST, {"w": whole("uint8", 4, 3, 2, 2)}
    ),
    "a matrix": quantized(
        own("QGemm", "x s o w t u b p q", transB=1), ROWS, {"w": whole("uint8", 4, 8), "b": BIAS, "p": np.float32(1.4)}
    ),
    "a matrix of scaled columns": quantized(
        own("QGemm", "x s o w t u b p q"), ROWS,
        {"w": whole("int8", 8, 4), "b": BIAS, "t": positive(4), "u": np.zeros(4, "int8")},
    ),
    "a matrix, as floats": quantized(own("QGemm", "x s o w t u b"), ROWS, {"w": whole("uint8", 8, 4), "b": BIAS}),
    "floats by a matrix": dynamic(
        own("DynamicQuantizeMatMul", "x w t u b"), w=whole("uint8", 8, 4), t=np.float32(0.03), u=np.uint8(131),
        b=drawn(4),
    ),
    "floats by a matrix of scaled columns": dynamic(
        own("DynamicQuantizeMatMul", "x w t"), {"x": drawn(3, 8)}, w=whole("int8", 8, 4), t=positive(4)
    ),
    "a matrix by a computed scale": dynamic(
        own("MatMulIntegerToFloat", "a w i t j u b"), w=whole("int8", 8, 4), t=np.float32(0.01), u=np.int8(3),
        b=drawn(4),
    ),
    "4 bits": contributed(
        [own("MatMulNBits", "x w s z", K=48, N=3, bits=4, block_size=16)], {"x": drawn(2, 48)},
        w=whole("uint8", 3, 3, 8), s=positive(9), z=whole("uint8", 6),
    ),
    "8 bits": contributed(
        [own("MatMulNBits", "x w s", K=32, N=3, bits=8, block_size=16)], {"x": drawn(2, 32)},
        w=whole("uint8", 3, 2, 16), s=positive(6),
    ),
    "attention": dynamic(
        own("QAttention", "a w b i t  j u", num_heads=2), w=whole("int8", 8, 24), t=np.float32(0.01), u=np.int8(0),
        b=drawn(24),
    ),
    "words": contributed(
        [own("QEmbedLayerNormalization", "i s w p t g b  c c c c c z z z z z", "y, l")], WORDS,
        w=whole("uint8", 9, 8), p=whole("uint8", 6, 8), t=whole("uint8", 2, 8), g=whole("uint8", 8),
        b=whole("uint8", 8), c=np.float32(0.02), z=np.uint8(9),
    ),
}  # fmt: skip


def lstm(
    steps: int = 5, count: int = 1, dtype: str = "uint8", columns: int = 0, states: bool = True, **fields: Any
) -> Any:
    """Return a model (T, N, 4) → (T, directions, N, 3)."""
    direction_count = 1 + (fields.get("direction") == "bidirectional")
    sizes = (direction_count, columns) if columns else (direction_count,)
    zero = np.full(sizes, 125 if dtype == "uint8" else 0, dtype)
    weights: dict[str, Any] = {
        "w": whole(dtype, direction_count, 4, 12),
        "r": whole(dtype, direction_count, 3, 12),
        "b": drawn(direction_count, 24),
    }
    weights |= {"ws": positive(*sizes), "wz": zero, "rs": positive(*sizes), "rz": zero}
    if states:
        weights |= {"h0": drawn(direction_count, count, 3), "c0": drawn(direction_count, count, 3)}
    begin = "h0 c0" if states else " "
    lstm_node = own("DynamicQuantizeLSTM", f"x w r b  {begin}  ws wz rs rz", "y, h, c", hidden_size=3, **fields)
    return contributed([lstm_node], {"x": drawn(steps, count, 4)}, "y h c", batch=steps, **weights)


LSTMS: dict[str, tuple[onnx.ModelProto, Arrays]] = {
    "forward": lstm(),
    "from zeros": lstm(states=False),
    "backward": lstm(direction="reverse"),
    "in both directions": lstm(direction="bidirectional"),
    "several sequences": lstm(count=3),
    "signed": lstm(dtype="int8"),
    "scaled columns": lstm(dtype="int8", columns=12),
    "a long sequence": lstm(40),
    "limits": lstm(clip=0.4, activations=["Sigmoid", "Relu", "Tanh"]),
    "coupled gates": lstm(input_forget=1),
}
