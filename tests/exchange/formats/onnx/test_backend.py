"""netspec as a backend of ONNX: compiled nets, their reuse, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import netspec
from netspec.errors import InputError
from netspec.exchange.interface import Imported
from tests.exchange.lift.models.generic import node

random = np.random.default_rng(11)


class Counted(netspec.OnnxBackend):
    """The reference kernels; records the compiled nets."""

    devices: ClassVar[Mapping[str, str]] = {"CPU": "reference"}
    nets: ClassVar[list[str]] = []

    @classmethod
    def compiled(cls, net: Imported, device: str) -> Any:
        cls.nets.append(net.net)
        return super().compiled(net, device)


@pytest.fixture(autouse=True)
def _none_yet() -> None:
    Counted.nets.clear()


def model(
    nodes: list[onnx.NodeProto], inputs: Mapping[str, tuple[int, list[Any]]], output: int = TensorProto.FLOAT,
    **constants: Any,
) -> onnx.ModelProto:  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


RELU = model([node("Relu", "x")], {"x": (TensorProto.FLOAT, ["N", "H", 3])})
RESHAPE = model([node("Reshape", "x s")], {"x": (TensorProto.FLOAT, [2, 6]), "s": (TensorProto.INT64, ["K"])})


def test_a_model_is_compiled_once_for_each_set_of_shapes() -> None:
    prepared = Counted.prepare(RELU)
    for height in (4, 2, 4):
        x = random.normal(size=(2, height, 3)).astype("float32")
        (y,) = prepared.run([x])
        np.testing.assert_array_equal(y, np.maximum(x, 0))
    assert len(Counted.nets) == 2


def test_inputs_that_shapes_depend_on_are_constants_by_value() -> None:
    prepared = Counted.prepare(RESHAPE)
    x = np.arange(12, dtype="float32").reshape(2, 6)
    for shape in ([2, 3, 2], [2, 2, 3], [2, 3, 2]):
        (y,) = prepared.run([x, np.array(shape)])
        assert y.shape == tuple(shape)
    assert len(Counted.nets) == 2


def test_inputs_are_passed_in_order_by_name_or_as_one_array() -> None:
    prepared, x = Counted.prepare(RELU), np.ones((1, 2, 3), "float32")
    for inputs in ([x], (x,), {"x": x}, x):
        outputs: Any = prepared.run(inputs)
        assert outputs.y is outputs["y"] is outputs[0]
        np.testing.assert_array_equal(outputs.y, x)


@pytest.mark.parametrize("kind", [TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_outputs_are_of_their_declared_type(kind: int) -> None:
    x = np.ones((2, 3), helper.tensor_dtype_to_np_dtype(kind))
    (y,) = Counted.run_model(model([node("Neg", "x")], {"x": (kind, [2, 3])}, kind), [x])
    assert y.dtype == x.dtype


@pytest.mark.parametrize("message", [None, [(np.dtype("float32"), (2, 3, 2))]])
def test_a_single_node(message: Any) -> None:
    x = random.normal(size=(2, 6)).astype("float32")
    (y,) = Counted.run_node(node("Reshape", "x s"), [x, np.array([2, 3, 2])], outputs_info=message, opset_version=13)
    np.testing.assert_array_equal(y, x.reshape(2, 3, 2))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "the input `x` is missing"),
        ({"x": np.ones((1, 2, 3)), "z": np.ones(1)}, "the model has no input `z`"),
        ([np.ones((1, 2, 3)), np.ones(1)], "the model has 1 inputs"),
        ([["text"]], "the input `x` must be a numeric array"),
    ],
)
def test_wrong_inputs_are_rejected(inputs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Counted.prepare(RELU).run(inputs)


def test_a_node_without_a_layer_is_reported() -> None:
    prepared = Counted.prepare(model([node("TfIdfVectorizer", "x")], {"x": (TensorProto.FLOAT, [2, 3, 3])}))
    with pytest.raises(InputError, match="no layer for the operator TfIdfVectorizer"):
        prepared.run([np.ones((2, 3, 3), "float32")])


def test_devices() -> None:
    assert netspec.OnnxBackend.supports_device("CPU")
    assert netspec.OnnxBackend.supports_device("CPU:0")
    assert not netspec.OnnxBackend.supports_device("CPU:1")
    assert not netspec.OnnxBackend.supports_device("TPU")
    with pytest.raises(InputError, match="no device `TPU`"):
        netspec.OnnxBackend.prepare(RELU, "TPU")
