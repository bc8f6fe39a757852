"""Helpers to build ONNX models like those of other programs, and to import them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from netspec.exchange.formats.onnx.importing import import_onnx, read_model
from netspec.exchange.formats.onnx.messages import open_session
from netspec.exchange.interface import ImportOptions
from netspec.exchange.lift.model import lift_model
from netspec.schema.load import load_net
from tests.exchange.nets import Net

random = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return random.uniform(0.1, 1.0, shape).astype("float32")


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def node(op_type: str, inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    """Return a node; operand names are separated by spaces, results by commas."""
    return helper.make_node(
        op_type, inputs.split(" "), output.split(", "), name=attributes.pop("name", ""), **attributes
    )


def chain(*steps: str, **attributes: Any) -> list[onnx.NodeProto]:
    """Return nodes for texts `result = Operator operands`."""
    nodes = []
    for step in steps:
        result, _, expression = step.partition(" = ")
        op_type, _, operands = expression.partition(" ")
        nodes.append(node(op_type, operands, result, **attributes.get(op_type, {})))
    return nodes


def model(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int | str] = ("N", 2, 6, 5),
    opset: int = 13,
    output: str = "y",
    dtype: int = TensorProto.FLOAT,
    **weights: Any,
) -> onnx.ModelProto:
    """Return a model that reads `x` and computes `output`."""
    graph = helper.make_graph(
        list(nodes),
        "graph of others",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    proto.ir_version = 8
    return proto


def imported(proto: onnx.ModelProto, folder: Path, **options: Any) -> tuple[Net, str]:
    """Return the net of a model, and its YAML."""
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    imported_net = import_onnx(path, ImportOptions(**options))
    (folder / "net.yaml").write_text(imported_net.net)
    return Net(load_net(folder / "net.yaml"), imported_net.arrays), imported_net.net


def agrees(proto: onnx.ModelProto, folder: Path, **options: Any) -> str:
    """Check that the net agrees with onnxruntime; return its YAML."""
    net, text = imported(proto, folder, **options)
    lifted = lift_model(read_model(folder / "model.onnx"), ImportOptions(**options), "model")
    sizes = [size.dim_value for size in proto.graph.input[0].type.tensor_type.shape.dim]
    x = random.normal(size=[size or 3 for size in sizes]).astype("float32")
    expected = open_session(proto.SerializeToString()).run(None, {"x": x})
    results = net.predict({"x": lifted.inputs["x"].to_net(x)})
    for expected_array, output in zip(expected, lifted.outputs.values(), strict=True):
        np.testing.assert_allclose(output.from_net(results[output.name]), expected_array, rtol=1e-5, atol=1e-5)
    return text


def graph(nodes: list[onnx.NodeProto], inputs: list[Any], outputs: str, **weights: Any) -> onnx.GraphProto:
    """Return a subgraph of a node."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split()]
    return helper.make_graph(
        nodes,
        "inner",
        inputs,
        infos,
        [numpy_helper.from_array(np.asarray(weight), name) for name, weight in weights.items()],
    )


def layers_of(text: str) -> list[str]:
    return [line.strip(" -") for line in text.splitlines() if line.startswith("  - ")]


RESHAPED = model(
    [node("Reshape", "w s", "k"), node("Reshape", "x t", "f"), node("MatMul", "f k", "d"), node("Add", "d b")],
    (1, 2, 6, 5), opset=8, w=floats(2, 6, 5, 3), s=ints(60, 3), t=ints(1, 60), b=floats(1, 3),
)  # fmt: skip
"""A dense layer whose kernel is reshaped first; the importer must compute the reshape."""
