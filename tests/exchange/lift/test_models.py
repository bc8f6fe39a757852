"""Models of other programs become nets that compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from netspec.errors import InputError
from netspec.exchange.formats.onnx.importing import import_onnx
from netspec.exchange.formats.onnx.messages import open_session
from tests.exchange.lift.models.generic import agrees, floats, imported, layers_of, model, node, random
from tests.exchange.lift.models.nets import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_it_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    proto, line = MODELS[name]
    net, text = imported(proto, tmp_path)
    assert layers_of(text)[-1] == line
    (spec,) = net.spec.inputs.values()
    size = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value or 3
    x = (
        random.normal(size=(size, *spec.shape))
        if spec.dtype == "float32"
        else random.integers(0, 2, (size, *spec.shape))
    )
    x = x.astype(spec.dtype)
    (expected,) = open_session(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(net.predict({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)


def test_layers_go_by_the_names_of_nodes_and_outputs(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "1", name="block 1/relu"), node("Tanh", "1", "true"), node("Sigmoid", "true", "σ"),
        node("Sqrt", "four", "two"), node("Relu", "σ", name="true"),
    ]  # fmt: skip
    _, text = imported(model(nodes, ("N", 3), four=np.float32(4)), tmp_path)
    assert layers_of(text) == [
        "{name: block_1/relu, type: Activation, activation: relu}",
        '{name: "true", type: Activation, activation: tanh}',
        "{name: _, type: Activation, activation: sigmoid}",
        "{name: y, type: Activation, activation: relu}",
    ]


def test_layers_are_named_after_the_modules_that_the_exporter_records(tmp_path: Path) -> None:
    scopes = {
        "node_relu": "['', 'encoder', 'encoder.layers.0', 'encoder.layers.0.act', 'relu']",
        "node_tanh": "['', 'encoder.layers.0', 'tanh']",
        "node_sigmoid": "['', 'sigmoid']",
        "node_abs": "nothing [that is a list",
    }
    nodes = [
        node("Relu", "x", "a", name="node_relu"), node("Tanh", "a", "b", name="node_tanh"),
        node("Sigmoid", "b", "c", name="node_sigmoid"), node("Abs", "c", "d", name="node_abs"), node("Relu", "d"),
    ]  # fmt: skip
    for proto in nodes[:4]:
        proto.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes[proto.name])
    _, text = imported(model(nodes), tmp_path)
    assert [line.split(",")[0] for line in layers_of(text)] == [
        "{name: encoder/layers.0/act/Relu", "{name: encoder.layers.0/Tanh", "{name: node_sigmoid", "{name: node_abs",
        "{name: y",
    ]  # fmt: skip


def test_an_open_size_can_be_passed(tmp_path: Path) -> None:
    net, _ = imported(model([node("Relu", "x")], ("N", 2, "H", "W")), tmp_path, shapes={"x": (2, 3, 4)})
    assert net.spec.inputs["x"].shape == (2, 3, 4)
    with pytest.raises(InputError, match="a shape is given for `image`, which is not an input"):
        imported(model([node("Relu", "x")]), tmp_path, shapes={"image": (1,)})


@pytest.mark.parametrize(
    ("dtype", "nodes", "notes"),
    [
        (TensorProto.DOUBLE, [node("Relu", "x")], ["the output `y` of float64 becomes float32"]),
        (TensorProto.FLOAT16, [node("Relu", "x")], ["the output `y` of float16 becomes float32"]),
        (TensorProto.INT64, [node("ArgMax", "x", axis=1)], []),
        (TensorProto.FLOAT, [node("Relu", "x")], []),
    ],
)
def test_an_output_of_another_element_type_is_noted(dtype: int, nodes: Any, notes: list[str], tmp_path: Path) -> None:
    proto = model(nodes, ("N", 3), dtype=TensorProto.FLOAT if dtype == TensorProto.INT64 else dtype)
    proto.graph.output[0].type.tensor_type.elem_type = dtype
    (tmp_path / "m").write_bytes(proto.SerializeToString())
    assert [note for note in import_onnx(tmp_path / "m").notes if "output" in note] == notes


def test_notes_of_an_import(tmp_path: Path) -> None:
    weights = floats(3, 2).astype("float64")
    weights[0, 0] = np.nan
    proto = model([node("MatMul", "x my_w", "z"), node("Relu", "z", "a b")], (8, 3), output="a b", my_w=weights)
    proto.graph.input.append(helper.make_tensor_value_info("unused", TensorProto.FLOAT, ["N", 1]))
    (tmp_path / "m").write_bytes(proto.SerializeToString())
    assert import_onnx(tmp_path / "m").notes == (
        "the input `unused` is left out: nothing reads it",
        "weights of float64 become float32",
        "the weights `a_b/kernel` hold values that are not finite",
        "the model is for batches of 8; the net takes any batch size",
        "`a b` becomes `a_b`",
    )


def test_notes_on_an_output_that_is_an_input_and_a_name_of_two_lines(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a\nb"]), helper.make_node("Neg", ["a\nb"], ["y"])]
    proto = model(nodes, ("N", 3))
    for name in ("x", "a\nb"):
        proto.graph.output.add().CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]))
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    notes = import_onnx(tmp_path / "m.onnx").notes
    assert "the output `x` is called `x_1` here, since an input has its name" in notes
    assert not [note for note in notes if "\n" in note]


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ({"strides": [3, 2], "auto_pad": "SAME_UPPER", "group": 2, "dilations": [1, 2]}, (4, 3)),
        ({"strides": [2, 3], "auto_pad": "SAME_LOWER", "output_padding": [1, 2]}, (3, 2)),
        ({"strides": [3, 2], "auto_pad": "SAME_LOWER", "output_shape": [11, 6], "output_padding": [1, 0]}, (3, 3)),
        ({"strides": [3, 3], "output_shape": [10, 9], "dilations": [2, 1]}, (3, 4)),
        ({"strides": [3, 1], "auto_pad": "VALID", "output_padding": [2, 0]}, (2, 2)),
    ],
)
def test_a_transposed_convolution_has_the_size_of_onnxruntime(
    attributes: dict[str, Any], size: tuple[int, int], tmp_path: Path
) -> None:
    proto = model(
        [node("ConvTranspose", "x w b", **attributes)],
        ("N", 2, 4, 3),
        w=floats(2, 2, *size),
        b=floats(2 * attributes.get("group", 1)),
    )
    agrees(proto, tmp_path)
