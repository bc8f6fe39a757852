"""Small models that move, slice and transpose their input, each with the last line of the imported net."""

from __future__ import annotations

import numpy as np
import onnx

from tests.exchange.lift.models.generic import floats, ints, model, node

MOVED: dict[str, tuple[onnx.ModelProto, str]] = {
    "channels cut off": (
        model([node("Slice", "x s e a")], s=ints(1), e=ints(2), a=ints(1)), "{name: y, type: Slice, start: 1}"
    ),
    "every second of two axes": (
        model([node("Slice", "x s e a t")], s=ints(0, 1), e=ints(9, -1), a=ints(2, 3), t=ints(2, 1)),
        "{name: y, type: Slice, axis: 3, start: 1, stop: 4}",
    ),
    "nothing cut off": (
        model([node("Slice", "x s e a")], s=ints(0), e=ints(99), a=ints(1)),
        "{name: y, type: Activation, activation: linear}",
    ),
    "places": (
        model([node("Gather", "x i", axis=3)], i=ints(4, 0)), "{name: y, type: Gather, indices: [4, 0], axis: 3}"
    ),
    "one place": (model([node("Gather", "x i", axis=1)], i=np.int64(1)), "{name: y, type: Squeeze, axis: 1}"),
    "tiles": (
        model([node("Tile", "x r")], r=ints(1, 2, 1, 3)), "{name: y, type: Tile, tiles: 3, axis: 3}"
    ),
    "blocks": (
        model([node("SpaceToDepth", "x", "a", blocksize=2), node("DepthToSpace", "a", blocksize=2, mode="CRD")],
              ("N", 1, 4, 2)),
        "{name: y, type: DepthToSpace, block_size: 2}",
    ),
    "products in samples": (
        model([node("Transpose", "x", "t", perm=[0, 1, 3, 2]), node("MatMul", "x t")]),
        "{name: y, type: MatMul, from: [x, x], transpose_b: true}",
    ),
    "equal parts": (
        model([node("Split", "x", "a, b", axis=3), node("Sub", "b a")], ("N", 2, 4, 6)),
        "{name: y, type: Subtract, from: [a.1, a.0]}",
    ),
    "parts of other sizes": (
        model([node("Split", "x s", "a, b", name="cut", axis=2), node("Concat", "b a", axis=2)], s=ints(4, 2)),
        "{name: y, type: Concatenate, from: [cut.1, cut.0], axis: 2}",
    ),
    "greatest numbers": (
        model([node("TopK", "x k", "a, b", axis=-1), node("Mul", "a a")], k=ints(2)),
        "{name: y, type: Multiply, from: [a.values, a.values]}",
    ),
    "places of the greatest": (
        model([node("TopK", "x k", "a, b", axis=1), node("Cast", "b", "c", to=1), node("Add", "a c")], k=ints(1)),
        "{name: y, type: Add, from: [a.values, c]}",
    ),
    "a part that is an output": (
        model([node("Split", "x", "a, y", axis=1, split=[1, 1])], opset=11),
        "{name: y, type: Activation, from: a.1, activation: linear}",
    ),
    "flatten": (model([node("Flatten", "x")]), "{name: y, type: Flatten}"),
    "reshape by -1": (model([node("Reshape", "x s")], s=ints(-1, 60)), "{name: y, type: Flatten}"),
    "reshape": (
        model([node("Reshape", "x s")], s=ints(0, 4, -1)), "{name: y, type: Reshape, target_shape: [4, 15]}"
    ),
    "a computed shape": (
        model(
            [
                node("Shape", "x", "s"), node("Gather", "s zero", "n", axis=0), node("Unsqueeze", "n zeros", "u"),
                node("Concat", "u rest", "t", axis=0), node("Reshape", "x t"),
            ],
            zero=np.array(0), zeros=ints(0), rest=ints(-1),
        ),
        "{name: y, type: Flatten}",
    ),
    "squeeze": (
        model([node("Squeeze", "x a")], ("N", 1, 3, 2), a=ints(1)), "{name: y, type: Reshape, target_shape: [3, 2]}"
    ),
    "unsqueeze": (
        model([node("Unsqueeze", "x", axes=[2])], ("N", 3), opset=11),
        "{name: y, type: Reshape, target_shape: [3, 1]}",
    ),
    "turned axes": (model([node("Transpose", "x", perm=[0, 3, 1, 2])]), "{name: y, type: Permute, dims: [3, 1, 2]}"),
    "a channels-last convolution": (
        model(
            [node("Transpose", "x", "t", perm=[0, 3, 1, 2]), node("Conv", "t w b")], w=floats(4, 5, 1, 1), b=floats(4)
        ),
        "{name: y, type: Conv2D, filters: 4, kernel_size: 1}",
    ),
    "axes turned twice": (
        model([node("Transpose", "x", "t", perm=[0, 3, 1, 2]), node("Transpose", "t", perm=[0, 2, 1, 3])]),
        "{name: y, type: Permute, dims: [1, 3, 2]}",
    ),
}  # fmt: skip
