"""Small models that mix samples or join tensors with constants, each with the last line of the imported net."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.exchange.lift.models.generic import floats, ints, model, node

BN: dict[str, Any] = {name: floats(2) for name in ("g", "b", "m", "v")}


def joined(
    nodes: list[onnx.NodeProto], inputs: dict[str, list[int | str]], outputs: str = "y", opset: int = 17, **weights: Any
) -> onnx.ModelProto:
    """Return a model of several inputs and outputs."""
    graph = helper.make_graph(
        nodes,
        "graph of others",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    proto.ir_version = 8
    return proto


IN_BATCHES: dict[str, tuple[onnx.ModelProto, str]] = {
    "steps as samples": (
        joined(
            [
                node("Reshape", "x s", "a"), node("Conv", "a w", "c"), node("Relu", "c", "d"),
                node("GlobalAveragePool", "d", "p"), node("Reshape", "p t"),
            ],
            {"x": ["N", 3, 2, 4, 4]}, s=ints(-1, 2, 4, 4), t=ints(-1, 3, 5), w=floats(5, 2, 3, 3),
        ),
        "{name: y, type: Reshape, target_shape: [3, 5]}",
    ),
    "heads as samples": (
        joined(
            [
                node("Reshape", "x s", "a"), node("Transpose", "a", "h", perm=[1, 0, 2]),
                node("Transpose", "h", "k", perm=[0, 2, 1]), node("MatMul", "h k", "z"), node("Softmax", "z", "p"),
                node("MatMul", "p h", "c"), node("Transpose", "c", "u", perm=[1, 0, 2]), node("Reshape", "u t", "o"),
                node("MatMul", "o w", "q"), node("Transpose", "q", perm=[1, 0, 2]),
            ],
            {"x": [5, "N", 6]}, s=ints(5, -1, 3), t=ints(5, -1, 6), w=floats(6, 4),
        ),
        "{name: y, type: Dense, units: 4, use_bias: false}",
    ),
    "a factor of 0": (model([node("Mul", "x k")], k=np.float32(0)), '{name: y, type: Expression, expr: "x * 0.0"}'),
    "scattered factors": (model([node("Mul", "x k")], k=floats(2, 1, 5)), "{name: y, type: Multiply, from: [x, k]}"),
    "a constant over x": (
        model([node("Div", "k x")], k=floats(5)), '{name: y, type: Expression, from: [k, x], expr: "x / y"}'
    ),
    "a quotient": (
        model([node("Exp", "x", "e"), node("Div", "x e")]), '{name: y, type: Expression, from: [x, e], expr: "x / y"}'
    ),
    "greater of several": (model([node("Max", "x k")], k=floats(5)), "{name: y, type: Maximum, from: [x, k]}"),
    "many constants": (
        model([node("Sum", "x k k l")], k=floats(1), l=floats(6, 1)), "{name: y, type: Add, from: [x, k, k, l]}"
    ),
    "a constant less x": (model([node("Sub", "k x")], k=floats(5)), "{name: y, type: Subtract, from: [k, x]}"),
    "softmax before 13": (
        model([node("Softmax", "x", axis=1)], opset=9), "{name: y, type: Reshape, target_shape: [2, 6, 5]}"
    ),
    "a matrix for each channel": (
        model([node("MatMul", "x w")], w=floats(2, 5, 3)), "{name: y, type: MatMul, from: [x, w]}"
    ),
    "a matrix in front": (
        model([node("MatMul", "w x")], w=floats(1, 2, 6, 6)), "{name: y, type: MatMul, from: [w, x]}"
    ),
    "a vector behind": (model([node("MatMul", "x w")], w=floats(5)), "{name: y, type: Reshape, target_shape: [2, 6]}"),
    "an added token": (
        model(
            [
                node("Shape", "x", "s"), node("Gather", "s zero", "n", axis=0), node("Concat", "n rest", "t", axis=0),
                node("Expand", "token t", "e"), node("Concat", "e x", axis=1),
            ],
            ("N", 4, 3), zero=ints(0), rest=ints(1, 3), token=floats(1, 1, 3),
        ),
        "{name: y, type: Concatenate, from: [e, x]}",
    ),
    "a sigmoid of straight lines": (
        model([node("HardSigmoid", "x", alpha=0.3)]),
        "{name: y, type: Activation, activation: {type: hard_sigmoid, alpha: 0.3}}",
    ),
    "spread over rows": (model([node("Expand", "x s")], (2, 1, 3), s=ints(1, 4, 1)), "{name: y, type: Tile, tiles: 4}"),
    "batch normalization of numbers": (
        model([node("BatchNormalization", "x g b m v")], ("N",), g=floats(1), b=floats(1), m=floats(1), v=floats(1)),
        "{name: y, type: Squeeze}",
    ),
}  # fmt: skip
"""Models whose axis 0 is the batch, by name: the model and the last line of its net."""

WHOLE: dict[str, tuple[onnx.ModelProto, str]] = {
    "sum over samples": (
        model([node("ReduceSum", "x a")], (3, 4), a=ints(0)), "{name: y, type: Reduction, axes: 1, keepdims: true}"
    ),
    "sum of all": (model([node("ReduceSum", "x", keepdims=0)], (3, 4)), "{name: y, type: Squeeze}"),
    "place in the batch": (
        model([node("ArgMax", "x", "a", axis=0), node("Cast", "a", to=1)], (3, 4)),
        "{name: y, type: Cast, dtype: float32}",
    ),
    "the greatest of a batch": (
        model([node("TopK", "x k", "y, i", axis=0)], (3, 4), k=ints(2)),
        "{name: y, type: Activation, from: top_k.values, activation: linear}",
    ),
    "a repeated batch": (model([node("Tile", "x r")], (3, 4), r=ints(2, 1)), "{name: y, type: Tile, tiles: 2}"),
    "chosen samples": (
        model([node("Gather", "x i", axis=0)], (3, 4), i=ints(2, 0)), "{name: y, type: Gather, indices: [2, 0]}"
    ),
    "samples cut off": (
        model([node("Slice", "x s e a")], (3, 4), s=ints(1), e=ints(3), a=ints(0)), "{name: y, type: Slice, start: 1}"
    ),
    "parts of the batch": (
        model([node("Split", "x", "a, b", axis=0), node("Sub", "a b")], (4, 3)),
        "{name: y, type: Subtract, from: [a.0, a.1]}",
    ),
    "over the batch": (
        model([node("Softmax", "x", axis=0)], (3, 4)), "{name: y, type: Activation, activation: softmax, axis: 1}"
    ),
    "mixed samples": (
        model([node("Reshape", "x s")], (3, 4), s=ints(2, 6)), "{name: y, type: Reshape, target_shape: [2, 6]}"
    ),
    "factors of samples": (
        model([node("Mul", "x k")], (2, 3), k=floats(2, 1)), "{name: y, type: Scale}"
    ),
    "added samples": (model([node("Add", "x k")], (2, 3), k=floats(2, 3)), "{name: y, type: Bias, num_axes: 2}"),
    "a product of turned samples": (
        model([node("Transpose", "x", "t", perm=[1, 0]), node("MatMul", "x t")], (2, 3)),
        "{name: y, type: MatMul, from: [x, x], transpose_b: true}",
    ),
    "other axes in front": (
        model([node("Add", "x k")], (2, 3), k=floats(4, 1, 3)), "{name: y, type: Add, from: [x_1, k]}"
    ),
    "an image": (
        model(
            [
                node("Conv", "x w b", "c"), node("BatchNormalization", "c g b m v", "n"), node("Relu", "n", "r"),
                node("Add", "r k", "a"), node("MaxPool", "a", "p", kernel_shape=[2, 2]), node("Reshape", "p s"),
            ],
            (1, 3, 5, 5), w=floats(2, 3, 3, 3), k=floats(2, 1, 1), s=ints(-1), **BN,
        ),
        "{name: y, type: Flatten}",
    ),
    "several images": (
        model([node("Conv", "x w", "c"), node("Relu", "c", "r"), node("ReduceSum", "r a")], (2, 3, 5, 5),
              w=floats(2, 3, 3, 3), a=ints(0)),
        "{name: y, type: Reduction, axes: 1, keepdims: true}",
    ),
    "a dense layer of a vector": (
        model([node("MatMul", "x w")], (3,), w=floats(3, 2)), "{name: y, type: Dense, units: 2, use_bias: false}"
    ),
    "two vectors": (model([node("MatMul", "x x")], (3,)), "{name: y, type: Squeeze}"),
    "turned gemm": (
        model([node("Gemm", "x w c", transA=1, alpha=0.5, beta=2.0)], (3, 2), w=floats(3, 4), c=floats(2, 1)),
        "{name: y, type: Bias}",
    ),
    "normalized samples": (
        model([node("LayerNormalization", "x g", axis=0)], (2, 3), 17, g=floats(2, 3)),
        "{name: y, type: LayerNormalization, epsilon: 1e-05, center: false, axis: [1, 2]}",
    ),
    "a number": (model([node("Mul", "x k")], (), k=np.float32(2)), "{name: y, type: Power, scale: 2.0}"),
    "batch normalization without a batch": (
        model(
            [node("Unsqueeze", "x a", "u"), node("BatchNormalization", "u g b m v", "n"), node("Squeeze", "n a")],
            (2, 5), a=ints(0), **BN,
        ),
        "{name: y, type: Reshape, target_shape: [2, 5]}",
    ),
    "batch normalization with the batch as channels": (
        model([node("Transpose", "x", "t", perm=[1, 0, 2]), node("BatchNormalization", "t g b m v")], (2, 4, 5), **BN),
        "{name: y, type: Permute, dims: [2, 1, 3]}",
    ),
    "instance normalization without a batch": (
        model(
            [node("Unsqueeze", "x a", "u"), node("InstanceNormalization", "u g b", "n"), node("Squeeze", "n a")],
            (2, 5), a=ints(0), g=floats(2), b=floats(2),
        ),
        "{name: y, type: Reshape, target_shape: [2, 5]}",
    ),
}  # fmt: skip
"""Models that are read as one sample."""
