"""Small models like those of other programs, each with the last line of the imported net."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tests.exchange.lift.models.generic import RESHAPED, floats, ints, model, node
from tests.exchange.lift.models.shapes import MOVED

W, B = floats(4, 2, 3, 3), floats(4)
BN: dict[str, Any] = {name: floats(2) for name in ("g", "b", "m", "v")}

MODELS: dict[str, tuple[onnx.ModelProto, str]] = {
    **MOVED,
    "conv": (
        model([node("Conv", "x w b", "c", pads=[1, 1, 1, 1], strides=[2, 1]), node("Relu", "c")], w=W, b=B),
        "{name: y, type: Conv2D, filters: 4, kernel_size: 3, strides: [2, 1], padding: 1, activation: relu}",
    ),
    "conv and a bias behind it": (
        model(
            [node("Conv", "x w", "c", auto_pad="SAME_UPPER", strides=[2, 2]), node("Add", "c k")],
            w=W, k=floats(4, 1, 1),
        ),
        "{name: y, type: Conv2D, filters: 4, kernel_size: 3, strides: 2, padding: same}",
    ),
    "bias in front": (
        model([node("Conv", "x w b", "c"), node("Add", "k c")], w=W, b=B, k=floats(1, 4, 1, 1)),
        "{name: y, type: Conv2D, filters: 4, kernel_size: 3}",
    ),
    "same lower": (
        model([node("Conv", "x w", auto_pad="SAME_LOWER", strides=[2, 2])], w=W),
        "{name: y, type: Conv2D, filters: 4, kernel_size: 3, strides: 2, padding: [[1, 0], [1, 1]], use_bias: false}",
    ),
    "groups and dilation": (
        model([node("Conv", "x w", group=2, dilations=[2, 2])], w=floats(4, 1, 3, 2)),
        "{name: y, type: DepthwiseConv2D, kernel_size: [3, 2], dilation_rate: 2, use_bias: false, depth_multiplier: 2}",
    ),
    "max pool": (
        model([node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 0])]),
        "{name: y, type: MaxPooling2D, pool_size: 3, strides: 2, padding: [1, 0]}",
    ),
    "rounded up": (
        model([node("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1)]),
        "{name: y, type: MaxPooling2D, pool_size: [3, 2], strides: 2, ceil_mode: true}",
    ),
    "counted padding": (
        model([node("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)]),
        "{name: y, type: AveragePooling2D, pool_size: 3, strides: 1, padding: 1, count_include_pad: true}",
    ),
    "counted padding, rounded up": (
        model(
            [node("AveragePool", "x", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 0, 1, 0], count_include_pad=1,
                  ceil_mode=1)],
            opset=19,
        ),
        "{name: y, type: AveragePooling2D, padding: [1, 0], ceil_mode: true, count_include_pad: true}",
    ),
    "strides of 1 by default": (
        model([node("AveragePool", "x", kernel_shape=[2, 2], pads=[0, 1, 1, 0])]),
        "{name: y, type: AveragePooling2D, strides: 1, padding: [[0, 1], [1, 0]]}",
    ),
    "global average": (
        model([node("GlobalAveragePool", "x")]), "{name: y, type: GlobalAveragePooling2D, keepdims: true}"
    ),
    "mean of 13": (
        model([node("ReduceMean", "x", axes=[-1, 2], keepdims=0)]), "{name: y, type: GlobalAveragePooling2D}"
    ),
    "mean of 18": (
        model([node("ReduceMean", "x a", keepdims=0)], opset=18, a=ints(2, 3)),
        "{name: y, type: GlobalAveragePooling2D}",
    ),
    "gemm": (
        model([node("Gemm", "x w c", transB=1, alpha=0.5, beta=2.0)], ("N", 3), w=floats(4, 3), c=floats(1, 4)),
        "{name: y, type: Dense, units: 4}",
    ),
    "gemm without bias": (
        model([node("Gemm", "x w")], ("N", 3), w=floats(3, 4)), "{name: y, type: Dense, units: 4, use_bias: false}"
    ),
    "a reshaped kernel": (RESHAPED, "{name: y, type: Dense, units: 3}"),
    "dense and softmax": (
        model([node("MatMul", "x w", "d"), node("Softmax", "d")], ("N", 4, 3), w=floats(3, 2)),
        "{name: y, type: Dense, units: 2, activation: softmax, use_bias: false}",
    ),
    "softmax over channels": (
        model([node("Conv", "x w b", "c"), node("Softmax", "c", axis=1)], w=W, b=B),
        "{name: y, type: Conv2D, filters: 4, kernel_size: 3, activation: softmax}",
    ),
    "softmax over rows": (
        model([node("LogSoftmax", "x", axis=2)]), "{name: y, type: Activation, activation: log_softmax, axis: 2}"
    ),
    "softmax before 13": (
        model([node("Softmax", "x")], ("N", 4), opset=11), "{name: y, type: Activation, activation: softmax}"
    ),
    "arithmetic with numbers": (
        model([node("Mul", "k x", "a"), node("Sub", "a k", "b"), node("Div", "b k", "c"), node("Pow", "c two")],
              k=np.float32(4), two=np.float32(2)),
        "{name: y, type: Power, shift: -1.0, power: 2.0}",
    ),
    "a number less x": (
        model([node("Sub", "k x")], k=np.float32(3)), "{name: y, type: Power, scale: -1.0, shift: 3.0}"
    ),
    "a number over x": (
        model([node("Abs", "x", "a"), node("Add", "a one", "b"), node("Div", "k b")], one=floats(1), k=np.float32(4)),
        "{name: y, type: Power, scale: 0.25, power: -1.0}",
    ),
    "a power of a number": (model([node("Pow", "k x")], k=np.float32(2)), "{name: y, type: Exp, base: 2.0}"),
    "factors of channels": (
        model([node("Mul", "x k", "a"), node("Add", "a b")], k=floats(2, 1, 1), b=floats(1, 2, 1, 1)),
        "{name: y, type: Scale, use_bias: true}",
    ),
    "quotients of rows": (
        model([node("Div", "x k", "a"), node("Sub", "a k")], k=floats(6, 5)),
        "{name: y, type: Scale, axis: 2, num_axes: 2, use_bias: true}",
    ),
    "numbers of columns": (model([node("Sub", "x k")], k=floats(5)), "{name: y, type: Bias, axis: 3}"),
    "limits": (
        model([node("Max", "k x", "a"), node("Min", "a l")], k=np.float32(-0.5), l=np.float32(1)),
        "{name: y, type: Clip, min: -0.5, max: 1.0}",
    ),
    "clip": (
        model([node("Clip", "x k l")], k=np.float32(-0.5), l=np.float32(2)),
        "{name: y, type: Clip, min: -0.5, max: 2.0}",
    ),
    "clip below": (model([node("Clip", "x", min=0.5)], opset=7), "{name: y, type: Clip, min: 0.5}"),
    "sum of 13": (
        model([node("ReduceSum", "x a", keepdims=1)], a=ints(-1)), "{name: y, type: Reduction, axes: 3, keepdims: true}"
    ),
    "squares of all": (
        model([node("ReduceSumSquare", "x", axes=[1, 2, 3], keepdims=0)]), "{name: y, type: Squeeze}"
    ),
    "magnitudes": (
        model([node("ReduceL1", "x", axes=[2, 1], keepdims=0)]),
        "{name: y, type: Reduction, operation: asum, axes: [1, 2]}",
    ),
    "batch normalization": (
        model([node("BatchNormalization", "x g b m v", epsilon=0.01)], **BN),
        "{name: y, type: BatchNormalization, epsilon: 0.01, momentum: 0.9}",
    ),
    "dropout before 12": (model([node("Dropout", "x", ratio=0.25)], opset=10), "{name: y, type: Dropout, rate: 0.25}"),
    "dropout": (
        model([node("Dropout", "x r")], r=np.float32(0.1)), "{name: y, type: Dropout, rate: 0.1}"
    ),
    "relu6": (
        model([node("Clip", "x a b")], a=np.float32(0), b=np.float32(6)),
        "{name: y, type: Activation, activation: relu6}"
    ),
    "relu6 before 11": (
        model([node("Clip", "x", min=0.0, max=6.0)], opset=10), "{name: y, type: Activation, activation: relu6}"
    ),
    "hard sigmoid": (
        model([node("HardSigmoid", "x", alpha=1 / 6)]), "{name: y, type: Activation, activation: hard_sigmoid}"
    ),
    "leaky": (
        model([node("LeakyRelu", "x", alpha=0.2)]), "{name: y, type: Activation, activation: leaky_relu}"
    ),
    "silu from either side": (
        model([node("Sigmoid", "x", "s"), node("Mul", "s x")]), "{name: y, type: Activation, activation: silu}"
    ),
    "identity": (model([node("Identity", "x")]), "{name: y, type: Activation, activation: linear}"),
    "sum": (
        model([node("Relu", "x", "a"), node("Tanh", "x", "b"), node("Sum", "a b x")]),
        "{name: y, type: Add, from: [a, b, x]}",
    ),
    "concat": (
        model([node("Relu", "x", "a"), node("Concat", "x a", axis=-1)]),
        "{name: y, type: Concatenate, from: [x, a], axis: 3}"
    ),
    "embedding": (
        model([node("Gather", "w x")], ("N", 5), dtype=TensorProto.INT64, w=floats(2, 3)),
        "{name: y, type: Embedding, input_dim: 2, output_dim: 3}",
    ),
    "1d convolution": (
        model([node("Conv", "x w b", pads=[2, 0], dilations=[2])], ("N", 2, 9), w=floats(4, 2, 3), b=B),
        "{name: y, type: Conv1D, filters: 4, kernel_size: 3, padding: [2, 0], dilation_rate: 2}",
    ),
    "3d convolution": (
        model([node("Conv", "x w", strides=[1, 2, 1])], ("N", 4, 3, 4, 5), w=floats(2, 4, 3, 2, 1)),
        "{name: y, type: Conv3D, filters: 2, kernel_size: [3, 2, 1], strides: [1, 2, 1], use_bias: false}",
    ),
    "transposed convolution": (
        model([node("ConvTranspose", "x w b", pads=[1, 0, 1, 1], dilations=[2, 2])], w=floats(2, 4, 3, 3), b=B),
        "{name: y, type: Conv2DTranspose, filters: 4, kernel_size: 3, padding: [[1, 1], [0, 1]], dilation_rate: 2}",
    ),
    "transposed convolution with rest": (
        model([node("ConvTranspose", "x w b", strides=[3], group=2, output_padding=[2])], ("N", 2, 4),
              w=floats(2, 2, 2), b=B),
        "{name: y, type: Conv1DTranspose, filters: 4, kernel_size: 2, strides: 3, groups: 2, output_padding: 2}",
    ),
    "transposed convolution with gaps": (
        model([node("ConvTranspose", "x w b", strides=[3])], ("N", 2, 4), w=floats(2, 4, 2), b=B),
        "{name: y, type: Conv1DTranspose, filters: 4, kernel_size: 2, strides: 3, output_padding: 0}",
    ),
    "transposed convolution with gaps, the same": (
        model([node("ConvTranspose", "x w b", strides=[3], auto_pad="SAME_UPPER")], ("N", 2, 4), w=floats(2, 4, 2),
              b=B),
        "{name: y, type: Conv1DTranspose, filters: 4, kernel_size: 2, strides: 3, output_padding: 0}",
    ),
    "repeated pixels": (
        model([node("Resize", "x  k", coordinate_transformation_mode="asymmetric", nearest_mode="floor")],
              k=np.array([1, 1, 2, 3], "float32")),
        "{name: y, type: UpSampling2D, size: [2, 3]}",
    ),
    "repeated elements before 10": (
        model([node("Upsample", "x k")], ("N", 2, 4), 9, k=np.array([1, 1, 3], "float32")),
        "{name: y, type: UpSampling1D, size: 3}",
    ),
    "twice as large": (
        model([node("Resize", "x  k", mode="linear")], k=np.array([1, 1, 2, 2], "float32")),
        "{name: y, type: UpSampling2D, interpolation: bilinear}",
    ),
    "another size": (
        model([node("Resize", "x   s", mode="linear", coordinate_transformation_mode="pytorch_half_pixel")],
              (1, 2, 6, 5), s=ints(1, 2, 4, 7)),
        "{name: y, type: Resizing, height: 4, width: 7}",
    ),
    "the nearest of other sizes": (
        model([node("Resize", "x  k", nearest_mode="round_prefer_ceil")], k=np.array([1, 1, 0.5, 1.4], "float32")),
        "{name: y, type: Resizing, height: 3, width: 7, interpolation: nearest}",
    ),
    "parts of pixels": (
        model([node("Resize", "x  k", mode="linear")], k=np.array([1, 1, 1.3, 1], "float32")),
        "{name: y, type: Resize, scales: [1.3], axes: 2, mode: linear}",
    ),
    "corners aligned": (
        model([node("Resize", "x  k", mode="linear", coordinate_transformation_mode="align_corners")],
              k=np.array([1, 1, 2, 2], "float32")),
        "{name: y, type: Resize, sizes: [12, 10], mode: linear, coordinate_transformation_mode: align_corners}",
    ),
    "a cubic of fewer pixels": (
        model([node("Resize", "x   s", mode="cubic", antialias=1, keep_aspect_ratio_policy="not_larger", axes=[3, 2])],
              opset=18, s=ints(4, 4)),
        "{name: y, type: Resize, sizes: [4, 4], mode: cubic, antialias: true, keep_aspect_ratio_policy: not_larger}",
    ),
    "channels resized": (
        model([node("Resize", "x  k")], k=np.array([1, 2, 1, 1], "float32")),
        "{name: y, type: Resize, sizes: [4], axes: 1}",
    ),
    "a gate": (
        model([node("Tanh", "x", "a"), node("Relu", "x", "b"), node("Mul", "a b")]),
        "{name: y, type: Multiply, from: [a, b]}",
    ),
    "a mean of three": (
        model([node("Tanh", "x", "a"), node("Relu", "x", "b"), node("Mean", "x a b")]),
        "{name: y, type: Average, from: [x, a, b]}",
    ),
    "a difference": (
        model([node("Relu", "x", "a"), node("Sub", "x a")]), "{name: y, type: Subtract, from: [x, a]}"
    ),
    "the greatest": (
        model([node("Tanh", "x", "a"), node("Max", "x a")]), "{name: y, type: Maximum, from: [x, a]}"
    ),
    "zeros around": (
        model([node("Pad", "x p")], p=ints(0, 0, 1, 2, 0, 0, 1, 0)),
        "{name: y, type: ZeroPadding2D, padding: [[1, 1], [2, 0]]}",
    ),
    "zeros around before 11": (
        model([node("Pad", "x", pads=[0, 0, 1, 0, 0, 1])], ("N", 2, 4), 10), "{name: y, type: ZeroPadding1D}"
    ),
    "sides cut off": (
        model([node("Slice", "x s e a")], s=ints(1, -4), e=ints(2**62, -1), a=ints(2, -1)),
        "{name: y, type: Cropping2D, cropping: [[1, 0], [1, 1]]}",
    ),
    "slopes of channels": (
        model([node("PRelu", "x a")], a=floats(2, 1, 1)), "{name: y, type: PReLU, shared_axes: [2, 3]}"
    ),
    "slopes of all places": (model([node("PRelu", "x a")], a=floats(1, 2, 6, 5)), "{name: y, type: PReLU}"),
    "hard swish": (model([node("HardSwish", "x")], opset=14), "{name: y, type: Activation, activation: hard_silu}"),
    "groups of channels": (
        model([node("GroupNormalization", "x g b", num_groups=2, epsilon=1e-3)], g=floats(2), b=floats(2), opset=21),
        "{name: y, type: GroupNormalization, groups: 2}",
    ),
    "slope of negative numbers": (
        model([node("LeakyRelu", "x", alpha=0.3)]),
        "{name: y, type: Activation, activation: {type: leaky_relu, negative_slope: 0.3}}",
    ),
    "1d pooling": (
        model([node("MaxPool", "x", kernel_shape=[2], strides=[2], pads=[1, 0])], ("N", 2, 9)),
        "{name: y, type: MaxPooling1D, padding: [1, 0]}",
    ),
    "3d pooling": (
        model([node("AveragePool", "x", kernel_shape=[1, 2, 2])], ("N", 2, 3, 4, 5)),
        "{name: y, type: AveragePooling3D, pool_size: [1, 2, 2], strides: 1}",
    ),
    "global pooling": (
        model([node("GlobalMaxPool", "x")], ("N", 2, 9)), "{name: y, type: GlobalMaxPooling1D, keepdims: true}"
    ),
    "a maximum over a volume": (
        model([node("ReduceMax", "x", axes=[2, 3, -1], keepdims=0)], ("N", 2, 3, 4, 5)),
        "{name: y, type: GlobalMaxPooling3D}",
    ),
    "layer normalization": (
        model([node("LayerNormalization", "x g b")], ("N", 3, 4), 17, g=floats(4), b=floats(4)),
        "{name: y, type: LayerNormalization, epsilon: 1e-05}",
    ),
    "layer normalization of whole samples": (
        model([node("LayerNormalization", "x g", axis=1, epsilon=0.1)], opset=17, g=floats(2, 6, 5)),
        "{name: y, type: LayerNormalization, epsilon: 0.1, center: false, axis: [1, 2, 3]}",
    ),
    "layer normalization of turned axes": (
        model(
            [
                node("Transpose", "x", "t", perm=[0, 2, 3, 1]),
                node("LayerNormalization", "t g b", "n", axis=2, epsilon=0.001),
                node("Transpose", "n", perm=[0, 3, 1, 2]),
            ],
            opset=17, g=floats(5, 2), b=floats(5, 2),
        ),
        "{name: y, type: LayerNormalization, axis: [1, 3]}",
    ),
    **{
        f"{op_type} of x": (
            model([node("Abs", "x", "a"), node("Add", "a k", "b"), node(op_type, "b")], k=np.float32(0.5)),
            f"{{name: y, type: {line}}}",
        )
        for op_type, line in {
            "Neg": "Power, scale: -1.0", "Reciprocal": "Power, power: -1.0", "Sqrt": "Power, power: 0.5",
            "Sin": 'Expression, expr: "sin(x)"', "Cos": 'Expression, expr: "cos(x)"',
            "Tan": 'Expression, expr: "tan(x)"', "Atan": 'Expression, expr: "atan(x)"',
            "Erf": 'Expression, expr: "erf(x)"', "Sign": 'Expression, expr: "sign(x)"',
        }.items()
    },
    "local response normalization": (
        model([node("LRN", "x", size=3, alpha=0.5)]),
        "{name: y, type: LocalResponseNormalization, size: 3, alpha: 0.5}",
    ),
    "channels last normalization": (
        model(
            [
                node("Transpose", "x", "t", perm=[0, 3, 1, 2]),
                node("BatchNormalization", "t g b m v", "n"),
                node("Transpose", "n", perm=[0, 2, 3, 1]),
            ],
            ("N", 3, 4, 2), **BN,
        ),
        "{name: y, type: BatchNormalization, epsilon: 1e-05, axis: 3, momentum: 0.9}",
    ),
}  # fmt: skip
