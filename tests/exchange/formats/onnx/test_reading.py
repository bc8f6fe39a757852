"""Features of models from other programs: functions, subgraphs, weights in other files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from netspec.errors import InputError
from netspec.exchange.formats.onnx.importing import import_onnx
from tests.exchange.lift.models.generic import agrees, floats, graph, imported, ints, layers_of, model, node, random

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]


def with_functions(nodes: list[onnx.NodeProto], *functions: onnx.FunctionProto) -> onnx.ModelProto:
    proto = model(nodes, ("N", 3), opset=17)
    proto.opset_import.append(OPSETS[1])
    proto.functions.extend(functions)
    return proto


def function(name: str, nodes: list[onnx.NodeProto], **more: Any) -> onnx.FunctionProto:
    return helper.make_function("mine", name, ["a", "b"], ["c"], nodes, OPSETS, **more)


def inner(op_type: str, inputs: str, output: str, **refs: str) -> onnx.NodeProto:
    """Return a node of a function whose attributes refer to those of the function."""
    inner_node = node(op_type, inputs, output)
    for name, ref in refs.items():
        inner_node.attribute.add(name=name, ref_attr_name=ref, type=onnx.AttributeProto.FLOAT)
    return inner_node


def test_functions_of_the_model_become_their_nodes(tmp_path: Path) -> None:
    leaky = function(
        "Leaky", [inner("LeakyRelu", "a", "t", alpha="slope"), node("Add", "t b", "c")], attributes=["slope"]
    )
    duplicate = function("Twice", [node("Leaky", "a b", "t", domain="mine", slope=0.25), node("Mul", "t t", "c")])
    proto = with_functions(
        [node("Relu", "x", "t"), node("Twice", "t x", "u", domain="mine"), node("Twice", "u t", domain="mine")],
        leaky,
        duplicate,
    )
    text = agrees(proto, tmp_path)
    assert text.count("negative_slope: 0.25") == 2


def test_a_function_that_calls_itself_is_refused(tmp_path: Path) -> None:
    first = function("First", [node("Second", "a b", "c", domain="mine")])
    second = function("Second", [node("First", "a b", "c", domain="mine")])
    with pytest.raises(InputError, match="the function First calls itself"):
        imported(with_functions([node("First", "x x", domain="mine")], first, second), tmp_path)


@pytest.mark.exhaustive
def test_functions_that_grow_without_bounds_are_refused(tmp_path: Path) -> None:
    nest = [function("F0", [node("Add", "a b", "c")])]
    for depth in range(1, 20):
        calls = [
            node(f"F{depth - 1}", "a b", "t0", domain="mine"), node(f"F{depth - 1}", "t0 b", "t1", domain="mine"),
            node(f"F{depth - 1}", "t1 b", "c", domain="mine"),
        ]  # fmt: skip
        nest.append(function(f"F{depth}", calls))
    start = time.process_time()
    with pytest.raises(InputError, match="more than 100,000 nodes"):
        imported(with_functions([node("F19", "x x", domain="mine")], *nest), tmp_path)
    assert time.process_time() - start < 60


@pytest.mark.parametrize(
    "proto",
    [
        model([node("MeanVarianceNormalization", "x", axes=[2, 3])]),
        model([node("ReduceLogSumExp", "x a", keepdims=1)], opset=18, a=ints(1)),
        model([node("CenterCropPad", "x s", axes=[2, 3])], opset=18, s=ints(4, 3)),
    ],
    ids=lambda proto: proto.graph.node[0].op_type,
)
def test_operators_are_decomposed_as_onnx_defines(proto: onnx.ModelProto, tmp_path: Path) -> None:
    agrees(proto, tmp_path)


def test_nodes_in_no_order_are_sorted(tmp_path: Path) -> None:
    agrees_but_for_the_order = model([node("Tanh", "b"), node("Relu", "x", "a"), node("Neg", "a", "b")], ("N", 3))
    net, _ = imported(agrees_but_for_the_order, tmp_path)
    np.testing.assert_allclose(net.predict({"x": np.ones((1, 3), "float32")})["y"], np.tanh(-1), rtol=1e-6)


def beside(folder: Path, **fields: str) -> onnx.ModelProto:
    """Return a model whose weights are in `weights.bin`, at offset 8."""
    w = floats(3, 2)
    (folder / "weights.bin").write_bytes(b"8 others" + w.tobytes())
    proto = model([node("MatMul", "x w")], ("N", 3), w=w)
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in ({"location": "weights.bin", "offset": "8", "length": "24"} | fields).items():
        tensor.external_data.add(key=key, value=value)
    return proto


def test_weights_in_other_files_are_read(tmp_path: Path) -> None:
    proto = beside(tmp_path)
    net, _ = imported(proto, tmp_path)
    expected = np.frombuffer((tmp_path / "weights.bin").read_bytes()[8:], "float32").reshape(3, 2)
    np.testing.assert_array_equal(net.states["y/kernel"], expected)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"location": "/etc/passwd"}, "not below the model's folder"), ({"location": "a/../../b"}, "not below"),
        ({"location": "link"}, "not below"), ({"location": "."}, "not below"), ({"location": ""}, "not below"),
        ({"location": "gone.bin"}, "not there"), ({"length": "25"}, "25 bytes are given"),
        ({"offset": "12"}, "has 32 bytes, not 24 from 12 on"), ({"offset": "-1"}, "has 32 bytes"),
        ({"offset": "x"}, "their offset is 'x', not a number of bytes"),
        ({"length": "1e3"}, "their length is '1e3', not a number of bytes"), ({"location": "a" * 300}, "too long"),
    ],
)  # fmt: skip
def test_external_weights_outside_the_folder_or_too_short_are_refused(
    fields: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match=message):
        imported(beside(tmp_path, **fields), tmp_path)


def test_a_file_without_a_length_is_external_data_in_full(tmp_path: Path) -> None:
    proto = beside(tmp_path)
    entries = proto.graph.initializer[0].external_data
    del entries[2]
    imported(proto, tmp_path)
    with (tmp_path / "weights.bin").open("ab") as file:
        file.write(b"more")
    with pytest.raises(InputError, match="28 bytes are given"):
        imported(proto, tmp_path)


def test_a_git_lfs_pointer_is_rejected(tmp_path: Path) -> None:
    proto = beside(tmp_path, location="pointer.bin")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4d" * 32 + "\nsize 32\n"
    (tmp_path / "pointer.bin").write_text(pointer)
    with pytest.raises(InputError, match=r"pointer.bin is a Git LFS pointer.*git lfs pull"):
        imported(proto, tmp_path)


def test_names_are_unique_in_subgraphs(tmp_path: Path) -> None:
    def branch(*weights: onnx.TensorProto) -> onnx.GraphProto:
        result = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
        return helper.make_graph([node("MatMul", "x w", "z")], "branch", [], [result], weights)

    w = numpy_helper.from_array(floats(3, 2), "w")
    proto = model([node("If", "c", then_branch=branch(w, w), else_branch=branch(w))], ("N", 3), c=np.bool_(True))
    with pytest.raises(InputError, match="in a graph within a node the initializer `w` is there 2 times"):
        imported(proto, tmp_path)


def sparse(values: np.ndarray, indices: np.ndarray, shape: list[int]) -> onnx.ModelProto:
    proto = model([node("MatMul", "x w")], ("N", 3))
    tensor = proto.graph.sparse_initializer.add(dims=shape)
    tensor.values.CopyFrom(numpy_helper.from_array(values, "w"))
    tensor.indices.CopyFrom(numpy_helper.from_array(indices))
    return proto


@pytest.mark.parametrize("indices", [ints(1, 4), np.array([[0, 1], [2, 0]])])
def test_sparse_weights_are_spread(indices: np.ndarray, tmp_path: Path) -> None:
    net, _ = imported(sparse(np.array([7, 9], "float32"), indices, [3, 2]), tmp_path)
    np.testing.assert_array_equal(net.states["y/kernel"], [[0, 7], [0, 0], [9, 0]])


@pytest.mark.parametrize(
    ("indices", "shape", "message"),
    [
        (ints(1, 6), [3, 2], "outside"), (ints(1), [3, 2], r"2 values at \[1\] places"),
        (ints(0, 1), [2**30, 9], "shape"),
        (ints(-1, 2), [3, 2], "outside"),
    ],
)  # fmt: skip
def test_sparse_weights_without_sense_are_refused(
    indices: np.ndarray, shape: list[int], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        imported(sparse(np.array([7, 9], "float32"), indices, shape), tmp_path)


def test_arithmetic_with_shapes_is_folded_away(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "x", "s"), node("Slice", "s one four", "d"), node("ReduceProd", "d", "p", keepdims=1),
        node("Div", "p two", "h"), node("Concat", "minus h", "t", axis=0), node("Reshape", "x t", "r"),
        node("Range", "zero eight one0", "k"), node("NonZero", "k", "n"), node("Cast", "n", "f", to=1),
        node("ReduceMax", "f", "g", keepdims=0), node("Mul", "r g"),
    ]  # fmt: skip
    constants: dict[str, Any] = {
        "one": ints(1),
        "four": ints(4),
        "two": ints(2),
        "minus": ints(-1),
        "zero": np.array(0),
    }
    proto = model(nodes, (2, 2, 6, 5), eight=np.array(8), one0=np.array(1), **constants)
    text = agrees(proto, tmp_path)
    assert [line.partition("type: ")[2].partition(",")[0] for line in layers_of(text)][-1] == "Power"


def test_computing_with_the_batch_size_makes_the_model_a_single_sample(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Cast", "n", "f", to=1), node("Div", "x f"),
    ]  # fmt: skip
    path = tmp_path / "model.onnx"
    path.write_bytes(model(nodes, ("N", 3), zero=np.array(0)).SerializeToString())
    first, *_ = import_onnx(path).notes
    assert first.endswith("(Div, opset 13): its result depends on the batch size")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Tile", "k r", "t"), node("Add", "x t")], "elements exceeds the limit"),
        (
            [node("Range", "zero r0 one", "t"), node("Cast", "t", "c", to=1), node("Add", "x c")],
            "elements exceeds the limit",
        ),
        ([node("Split", "k", "a, b", axis=0), node("Add", "x a")], "not evenly splittable"),
        ([node("Tile", "x r2", "t"), node("Relu", "t")], "too large"),
        ([node("Tile", "x r3", "t"), node("Relu", "t")], "are too large"),
        ([node("Einsum", "k k", "t", equation="a,b,"), node("Add", "x t")], "cannot be computed"),
    ],
    ids=["tiles", "range", "split", "computed tiles", "copies", "nonsense"],
)
def test_constants_that_cannot_be_evaluated_are_reported(
    nodes: list[onnx.NodeProto], message: str, tmp_path: Path
) -> None:
    start = time.process_time()
    constants: dict[str, Any] = {
        "k": floats(3),
        "r": ints(2**40),
        "r0": np.array(2**40),
        "zero": np.array(0),
        "one": np.array(1),
        "r2": ints(1, 2**40),
        "r3": ints(1, 2**20),
    }
    with pytest.raises(InputError, match=message):
        imported(model(nodes, ("N", 3), **constants), tmp_path)
    assert time.process_time() - start < 10


def of_two(nodes: list[onnx.NodeProto], k: Any, dtype: int = TensorProto.INT64, **weights: Any) -> onnx.ModelProto:
    """Return a model with the inputs `x` (N, 3) and `k`."""
    proto = model(nodes, ("N", 3), **weights)
    proto.graph.input.append(helper.make_tensor_value_info("k", dtype, k))
    return proto


@pytest.mark.parametrize(
    ("shape", "value", "factor"),
    [
        ([], (3,), 3),
        ([1], (3,), 3),
        ([3], (2,), 2),
        ([3], (1, 2, 3), [1, 2, 3]),
        (["M"], (1, 2, 3), [1, 2, 3]),
        (None, (4,), 4),
    ],
)
def test_an_input_may_always_have_a_value(shape: Any, value: tuple[float, ...], factor: Any, tmp_path: Path) -> None:
    proto = of_two([node("Cast", "k", "f", to=1), node("Mul", "x f")], shape)
    net, _ = imported(proto, tmp_path, values={"k": value})
    x = random.normal(size=(2, 3)).astype("float32")
    np.testing.assert_allclose(net.predict({"x": x})["y"], x * np.asarray(factor), rtol=1e-6)
    assert list(net.spec.inputs) == ["x"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"l": (1,)}, "a value is given for `l`, which is not an input"), ({"k": (1.5,)}, "the input `k` holds int64"),
        ({"k": (1, 2)}, "2 numbers do not fit the input `k`"), ({}, "`--value k=…` makes it a constant"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_or_are_missing_are_reported(values: Any, message: str, tmp_path: Path) -> None:
    branches = {
        name: graph([node(op, "x", "z")], [], "z") for name, op in (("then_branch", "Sin"), ("else_branch", "Cos"))
    }
    nodes = [node("Cast", "k", "c", to=9), helper.make_node("If", ["c"], ["y"], **branches)]
    with pytest.raises(InputError) as error:
        imported(of_two(nodes, []), tmp_path, values=values)
    assert message in error.value.render()
