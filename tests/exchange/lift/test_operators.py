"""Elementwise operators, indexing and sorting: each small model against ONNX Runtime, with its last line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from netspec.errors import InputError
from netspec.exchange.formats.onnx.importing import import_onnx
from tests.exchange.lift.models.generic import floats, imported, ints, layers_of, model, node
from tests.exchange.lift.models.operators import case, computes_as_onnxruntime

CASES: dict[str, Any] = {
    "a comparison": case(
        node("Less", "x z"),
        '{name: y, type: Expression, from: [x, z], expr: "x < y", keep_types: true}',
        result="b",
        x="f N 3",
        z="f N 3",
    ),
    "with a number": case(
        node("GreaterOrEqual", "x c"),
        '{name: y, type: Expression, expr: "x >= 0.25", keep_types: true}',
        result="b",
        x="f N 3",
        c=np.float32(0.25),
    ),
    "a mask": case(
        [node("Greater", "x c", "m"), node("Not", "m", "n"), node("Where", "n x z")],
        '{name: y, type: Expression, from: [n, x, z], expr: "where(x, y, z)", keep_types: true}',
        x="f N 3",
        z="f N 3",
        c=np.float32(0),
    ),
    "a mask of a number": case(
        [node("Cast", "x", "m", to=9), node("Where", "m x c")],
        '{name: y, type: Expression, from: [m, x], expr: "where(x, y, -3.5)", keep_types: true}',
        x="f N 3",
        c=np.float32(-3.5),
    ),
    "equal truths": case(
        node("Equal", "x z"),
        '{name: y, type: Expression, from: [x, z], expr: "not xor(x, y)", keep_types: true}',
        result="b",
        x="b N 3",
        z="b N 3",
    ),
    "whole numbers": case(
        [node("Sub", "x c", "a"), node("Div", "a z")],
        '{name: y, type: Expression, from: [a, z], expr: "quotient(x, y)", keep_types: true}',
        result="i",
        x="i N 3",
        z="i N 3",
        c=ints(2),
    ),
    "a remainder": case(
        [node("Add", "z o", "p"), node("Mod", "x p")],
        '{name: y, type: Expression, from: [x, p], expr: "x % y", keep_types: true}',
        result="s",
        x="s N 3",
        z="s N 3",
        o=np.int32(1),
    ),
    "bytes": case(
        node("BitShift", "x c", direction="LEFT"),
        '{name: y, type: Expression, expr: "shift_left(x, 2)", keep_types: true}',
        result="u",
        x="u N 3",
        c=np.uint8(2),
    ),
    "rounded down": case(node("Floor", "x"), '{name: y, type: Expression, expr: "floor(x)"}', x="f N 3"),
    "any power": case(
        [node("Abs", "x", "a"), node("Pow", "a z")],
        '{name: y, type: Expression, from: [a, z], expr: "x ** y"}',
        x="f N 3",
        z="f N 3",
    ),
    "no room": case(
        node("Clip", "x l h"),
        '{name: y, type: Expression, expr: "min(max(x, 2.0), 1.0)"}',
        x="f N 3",
        l=np.float32(2),
        h=np.float32(1),
    ),
    "elements": case(
        node("GatherElements", "x i", axis=-1),
        "{name: y, type: GatherElements, from: [x, i], axis: 2}",
        x="f N 2 4",
        i="i N 2 3",
    ),
    "elements put": case(
        node("ScatterElements", "x i z", axis=1, reduction="add"),
        "{name: y, type: ScatterElements, from: [x, i, z], reduction: add}",
        x="f N 4",
        i="i N 3",
        z="f N 3",
    ),
    "parts of samples": case(
        node("GatherND", "x i", batch_dims=1), "{name: y, type: GatherND, from: [x, i]}", x="f N 3 4", i="i N 5 1"
    ),
    "vectors": case(
        node("OneHot", "x d v", axis=1),
        "{name: y, type: OneHot, depth: 3, axis: 1}",
        x="i N 2",
        d=ints(3),
        v=np.array([0, 1], "float32"),
    ),
    "vectors of other numbers": case(
        node("OneHot", "x d v"),
        "{name: y, type: OneHot, depth: 2, on_value: 5.0, off_value: -1.0, dtype: int64}",
        result="i",
        x="i N 2",
        d=ints(2),
        v=ints(-1, 5),
    ),
    "left out": case(
        node("Compress", "x c", axis=1),
        "{name: y, type: Gather, indices: [0, 2]}",
        x="f N 3",
        c=np.array([True, False, True]),
    ),
    "a triangle": case(
        node("Trilu", "x k", upper=0), "{name: y, type: Trilu, upper: false, k: 1}", x="f N 3 3", k=np.int64(1)
    ),
    "sums": case(
        node("CumSum", "x a", reverse=1), "{name: y, type: CumSum, axis: 2, reverse: true}", x="f N 3 4", a=np.int64(-1)
    ),
    "sums in letters": case(
        node("Einsum", "x z", equation="bij, bjk -> bki"),
        '{name: y, type: Einsum, from: [x, z], equation: "bij,bjk->bki"}',
        x="f N 3 4",
        z="f N 4 2",
    ),
    "sums in letters and dots": case(
        node("Einsum", "x z", equation="...ij,...jk->...ik"),
        '{name: y, type: Einsum, from: [x, z], equation: "abij,abjk->abik"}',
        x="f N 2 3 4",
        z="f N 1 4 2",
    ),
    "sums with a matrix and dots": case(
        node("Einsum", "x w", equation="...w,wk->...k"),
        '{name: y, type: EinsumDense, equation: "abw,wk->abk", output_shape: [3, 2]}',
        x="f N 3 4",
        w=floats(4, 2),
    ),
    "sums with a matrix": case(
        node("Einsum", "x w", equation="bij,jk"),
        '{name: y, type: EinsumDense, equation: "bij,jk->bik", output_shape: [3, 2]}',
        x="f N 3 4",
        w=floats(4, 2),
    ),
    "a length": case(
        node("ReduceL2", "x", axes=[-1], keepdims=0),
        "{name: y, type: Reduction, operation: l2, axes: 2}",
        opset=13,
        x="f N 3 4",
    ),
    "the last place": case(
        node("ArgMin", "x", axis=1, select_last_index=1, keepdims=0),
        "{name: y, type: ArgMin, select_last_index: true}",
        result="i",
        x="f N 5",
    ),
    "the least": case(
        [node("TopK", "x k", "a, i", largest=0), node("Neg", "a")],
        "{name: y, type: Power, from: a.values, scale: -1.0}",
        x="f N 5",
        k=ints(2),
    ),
    "a mean of images, channels last": case(
        [
            node("Relu", "x", "a"),
            node("Transpose", "a", "b", perm=[0, 2, 3, 1]),
            node("ReduceMean", "b", axes=[1, 2], keepdims=0),
        ],
        "{name: y, type: GlobalAveragePooling2D}",
        opset=17,
        x="f N 3 4 5",
    ),
    "a part of images, channels last": case(
        [
            node("Relu", "x", "a"),
            node("Transpose", "a", "b", perm=[0, 2, 3, 1]),
            node("Slice", "b s e a2", "c"),
            node("ReduceSum", "c a3", keepdims=0),
        ],
        "{name: y, type: Reduction, axes: 1}",
        x="f N 3 4 5",
        s=ints(1),
        e=ints(3),
        a2=ints(1),
        a3=ints(3),
    ),
    "a padded image, channels last": case(
        [
            node("Transpose", "x", "b", perm=[0, 2, 3, 1]),
            node("Pad", "b p", "c"),
            node("Transpose", "c", perm=[0, 3, 1, 2]),
        ],
        "{name: y, type: Pad, padding: [[0, 0], [1, 1], [0, 2]]}",
        x="f N 3 4 5",
        p=ints(0, 1, 0, 0, 0, 1, 2, 0),
    ),
    "a factor of images, channels last": case(
        [
            node("Transpose", "x", "b", perm=[0, 2, 3, 1]),
            node("Max", "b c", "d"),
            node("Transpose", "d", perm=[0, 3, 1, 2]),
        ],
        "{name: y, type: Maximum, from: [x, c]}",
        x="f N 3 4 5",
        c=np.linspace(-1, 1, 60, dtype="float32").reshape(1, 4, 5, 3),
    ),
    "absolute whole numbers": case(
        node("Abs", "x"), '{name: y, type: Expression, expr: "max(x, -x)", keep_types: true}', result="i", x="i N 3"
    ),
    "a table of whole numbers": case(
        node("Gather", "t x"),
        "{name: y, type: Gather, from: [t, x]}",
        result="i",
        t=np.arange(40).reshape(20, 2),
        x="i N 3",
    ),
    "backwards": case(
        node("Slice", "x s e a t"), "{name: y, type: Flip}", x="f N 5 2", s=ints(-2), e=ints(-9), a=ints(1), t=ints(-2)
    ),
    "every third backwards": case(
        node("Slice", "x s e a t"),
        "{name: y, type: Flip}",
        x="f N 11 2",
        s=ints(9),
        e=ints(-20),
        a=ints(1),
        t=ints(-3),
    ),
    "nothing beside it": case(
        [node("Split", "x s", "a, b", axis=1), node("Slice", "a t t u", "c"), node("Concat", "b c a", axis=1)],
        "{name: y, type: Activation, activation: linear}",
        x="f N 4",
        s=ints(4, 0),
        t=ints(1),
        u=ints(1),
    ),
    "hidden by the least": case(
        node("Pad", "x p v"),
        "{name: y, type: Pad, padding: [[0, 1]], value: -.inf}",
        x="f N 3",
        p=ints(0, 0, 0, 1),
        v=np.float32(-np.inf),
    ),
    "mirrored": case(
        node("Pad", "x p", mode="reflect"),
        "{name: y, type: Pad, padding: [[0, 0], [2, 1]], mode: reflect}",
        x="f N 2 4",
        p=ints(0, 0, 2, 0, 0, 1),
    ),
    "numbers around": case(
        node("Pad", "x p v"),
        "{name: y, type: Pad, padding: [[1, -1]], value: 0.5}",
        x="f N 3",
        p=ints(0, 1, 0, -1),
        v=np.float32(0.5),
    ),
    "the middle": case(
        node("CenterCropPad", "x s", axes=[2]),
        "{name: y, type: Pad, padding: [[0, 0], [-1, -2]]}",
        x="f N 2 6",
        s=ints(3),
    ),
    "turned sequences": case(
        node("ReverseSequence", "x n", batch_axis=0, time_axis=1),
        "{name: y, type: ReverseSequence, from: [x, n]}",
        x="f N 3 2",
        n="i N",
    ),
    "windows": case(
        node("Col2Im", "x s b", pads=[0, 1, 0, 1]),
        "{name: y, type: Col2Im, output_size: [3, 2], kernel_size: 2, padding: [0, 1, 0, 1]}",
        x="f N 8 6",
        s=ints(3, 2),
        b=ints(2, 2),
    ),
    "a determinant": case(node("Det", "x"), "{name: y, type: Det}", x="f N 3 3"),
    "the largest": case(node("Hardmax", "x", axis=1), "{name: y, type: Hardmax, axis: 1}", x="f N 3 2"),
    "lengths of 1": case(
        node("LpNormalization", "x", axis=1, p=1),
        '{name: y, type: Expression, from: [x, y_1], expr: "x / y if y != 0 else x"}',
        x="f N 3",
    ),
    "like another": case(
        node("CastLike", "x z"), "{name: y, type: Cast, dtype: int64}", result="i", x="f N 3", z="i N 2"
    ),
    "places in a table": case(
        [node("Gather", "x i", axis=1)],
        "{name: y, type: Reshape, target_shape: [2, 2, 4]}",
        x="f N 3 4",
        i=np.array([[0, 2], [1, 1]]),
    ),
    "rows of several axes": case(
        node("Gather", "t x"), "{name: y, type: Reshape, target_shape: [2, 3, 4]}", x="i N 2", t=floats(5, 3, 4)
    ),
    "parts put": case(
        node("ScatterND", "x i z"), "{name: y, type: ScatterND, from: [x, i, z]}", x="f 4 3", i="i 1 1", z="f 1 3"
    ),
    "computed places": case(
        node("Gather", "x i", axis=1), "{name: y, type: Gather, from: [x, i], axis: 2}", x="f 2 3", i="i 2 2"
    ),
    "a norm of each channel": case(
        node("GlobalLpPool", "x", p=3), "{name: y, type: Power, scale: 12.0, power: 0.33333334}", x="f N 2 3 4"
    ),
    "a mean of all": case(
        node("MeanVarianceNormalization", "x"),
        '{name: y, type: Expression, from: [y_2, y_6], expr: "x / y"}',
        x="f 2 3 4 2",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    computes_as_onnxruntime(CASES[name], tmp_path)


def test_classes_are_drawn_by_their_probabilities(tmp_path: Path) -> None:
    proto, _, _ = case(node("Multinomial", "x", sample_size=4000, seed=2.0, dtype=TensorProto.INT64), "", x="f 2 3")
    net, _ = imported(proto, tmp_path)
    shares = np.array([[0.5, 0.3, 0.2], [0.0, 0.1, 0.9]])
    with np.errstate(divide="ignore"):
        (drawn,) = net.predict({"x": np.log(shares).astype("float32")[np.newaxis]})["y"]
    assert drawn.shape == (2, 4000)
    frequencies = np.stack([np.bincount(row.astype("int64"), minlength=3) for row in drawn]) / 4000
    np.testing.assert_allclose(frequencies, shares, atol=0.04)  # five standard deviations of √(0.5 · 0.5 / 4000)
    assert frequencies[1, 0] == 0


def test_a_window_of_even_size_has_one_more_channel_after_than_before(tmp_path: Path) -> None:
    # ONNX's window reaches from c - floor((size - 1) / 2) to c + ceil((size - 1) / 2). ONNX Runtime refuses even sizes.
    proto = model([node("LRN", "x", size=4, alpha=0.7, beta=0.6, bias=2.0)])
    net, _ = imported(proto, tmp_path)
    x = floats(3, 2, 6, 5)
    squares = np.pad(x * x, [(0, 0), (1, 2), (0, 0), (0, 0)])
    sums = sum(squares[:, k : k + 2] for k in range(4))
    (y,) = net.predict({"x": x}).values()
    np.testing.assert_allclose(y, x / (2 + 0.7 / 4 * sums) ** 0.6, rtol=1e-5)


@pytest.mark.parametrize("operator", ["RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike"])
def test_random_numbers_are_drawn_once_and_that_is_noted(operator: str, tmp_path: Path) -> None:
    uniform, like = "Uniform" in operator, operator.endswith("Like")
    fields: dict[str, Any] = {"low": 2.0, "high": 3.0} if uniform else {"mean": 2.5, "scale": 0.01}
    fields |= {} if like else {"shape": [2, 3]}
    random_node = helper.make_node(operator, ["x"] if like else [], ["r"], seed=7.0, **fields)
    model, _, _ = case([random_node, node("Add", "x r")], "", x="f 2 3")
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    imported, reread = (import_onnx(tmp_path / "model.onnx") for _ in range(2))
    assert any("were drawn once" in note for note in imported.notes)
    (array,), (array_again,) = imported.arrays.values(), reread.arrays.values()
    np.testing.assert_array_equal(array, array_again)
    assert array.min() >= 2
    assert array.max() < 3


def test_a_bernoulli_keeps_probabilities_of_0_and_1(tmp_path: Path) -> None:
    proto, _, _ = case(helper.make_node("Bernoulli", ["x"], ["y"], seed=7.0), "", x="f 2 3")
    net, _ = imported(proto, tmp_path)
    x = np.array([[[0, 1, 1], [1, 0, 0]]], "float32")
    (y,) = net.predict({"x": x}).values()
    np.testing.assert_array_equal(y, x)


HUGE: dict[str, Any] = {
    "padding": case(node("Pad", "x p", mode="wrap"), "too many elements", x="f N 3", p=ints(0, 10**12, 0, 0)),
    "a matrix": case(node("EyeLike", "x"), "is too large", x=f"f {10**6} {10**6}"),
    "sequences": case(
        node("ReverseSequence", "x n", batch_axis=0, time_axis=1), "too large", x=f"f N {10**10}", n="i N"
    ),
    "vectors": case(node("RandomNormalLike", "x"), "too large", x=f"f {10**6} {10**6}"),
    "windows": case(
        node("Conv", "x w", pads=[2**40] * 4), "too large", x="f N 1 5 5", w=np.ones((1, 1, 3, 3), "float32")
    ),
    "parts": case(
        node("RoiAlign", "x r i", output_height=2**40, sampling_ratio=2), "too many elements",
        x="f 1 2 5 5", r="f 3 4", i="i 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HUGE)
def test_operators_that_would_fill_memory_are_refused(name: str, tmp_path: Path) -> None:
    model, message, _ = HUGE[name]
    with pytest.raises(InputError, match=message):
        imported(model, tmp_path)


def test_outputs_that_are_parts_have_plain_names(tmp_path: Path) -> None:
    proto, _, _ = case(helper.make_node("TopK", ["x", "k"], ["y", "z"]), "", x="f N 5", k=ints(2))
    _, text = imported(proto, tmp_path)
    assert layers_of(text) == [
        "{name: top_k, type: TopK, k: 2}", "{name: y, type: Activation, from: top_k.values, activation: linear}"
    ]  # fmt: skip
