"""Quantized models as others write them: ONNX Runtime finds the same whole numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from netspec.exchange.onnx_model import open_session
from tests.exchange.foreign import floats, imported, layers_of, model, node, random
from tests.exchange.nets import Net

SCALES: dict[str, Any] = {
    "xs": np.float32(0.02), "xz": np.uint8(120), "ws": floats(4) / 50, "wz": np.zeros(4, "int8"),
    "ys": np.float32(0.31), "yz": np.uint8(7),
}  # fmt: skip
KERNEL = random.integers(-127, 128, (4, 2, 3, 3)).astype("int8")
MATRIX = random.integers(0, 256, (5, 3)).astype("uint8")


def expected(made: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    y: np.ndarray = open_session(made.SerializeToString()).run(None, {"x": x})[0]
    return y


def same(made: onnx.ModelProto, net: Net, x: np.ndarray) -> None:
    np.testing.assert_array_equal(net.predict({"x": x})["y"], expected(made, x))


QUANTIZE, BACK = node("QuantizeLinear", "x xs xz", "q"), node("DequantizeLinear", "p ys yz")
X = random.normal(size=(3, 2, 6, 5)).astype("float32")


def test_weights_are_made_floats_and_the_rest_is_layers(tmp_path: Path) -> None:
    nodes = [
        QUANTIZE, node("DequantizeLinear", "q xs xz", "f"), node("DequantizeLinear", "w ws wz", "k", axis=0),
        node("Conv", "f k b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"), node("QuantizeLinear", "r ys yz", "p"),
        BACK,
    ]  # fmt: skip
    made = model(nodes, w=KERNEL, b=floats(4), **SCALES)
    net, text = imported(made, tmp_path)
    assert [line.split("type: ")[1].split(",")[0].rstrip("}") for line in layers_of(text)] == [
        "QuantizeLinear", "DequantizeLinear", "Conv2D", "QuantizeLinear", "DequantizeLinear",
    ]  # fmt: skip
    far = np.abs(net.predict({"x": X})["y"] - expected(made, X))
    assert (far > 0).mean() < 0.01  # sums in another order may lie on the other side of the middle of two numbers
    assert far.max() <= 0.32


def test_convolutions_of_8_bits_are_exact(tmp_path: Path) -> None:
    nodes = [QUANTIZE, node("QLinearConv", "q xs xz w ws wz ys yz b", "p", pads=[1, 0, 1, 2], strides=[2, 1]), BACK]
    made = model(nodes, w=KERNEL, b=random.integers(-99, 99, 4).astype("int32"), **SCALES)
    net, text = imported(made, tmp_path)
    assert all(said in text for said in ("type: QLinearConv", "strides: [2, 1]", "padding: [[1, 1], [0, 2]]"))
    same(made, net, X)


def test_products_of_8_bits_are_exact(tmp_path: Path) -> None:
    nodes = [QUANTIZE, node("QLinearMatMul", "q xs xz w k wz ys yz", "p"), BACK]
    weights = {**SCALES, "w": MATRIX, "k": np.float32(0.01), "wz": np.uint8(99)}
    made = model(nodes, ("N", 4, 5), **weights)
    net, text = imported(made, tmp_path)
    assert "type: QLinearMatMul, kernel_dtype: uint8, units: 3" in text
    same(made, net, random.normal(size=(2, 4, 5)).astype("float32"))


@pytest.mark.parametrize("op_type", ["MatMulInteger", "ConvInteger"])
def test_scales_that_are_computed_are_those_of_the_whole_model(op_type: str, tmp_path: Path) -> None:
    nodes = [
        node("DynamicQuantizeLinear", "x", "q, s, z"), node(op_type, "q w z v", "i"), node("Cast", "i", "f", to=1),
        node("Mul", "s k", "t"), node("Mul", "f t"),
    ]  # fmt: skip
    conv = op_type == "ConvInteger"
    shape = (1, 2, 4, 4) if conv else (2, 5)
    kernel = random.integers(0, 256, (4, 2, 3, 3)).astype("uint8") if conv else MATRIX
    made = model(nodes, shape, w=kernel, v=np.uint8(128), k=np.float32(0.01))
    net, text = imported(made, tmp_path)
    assert f"type: {op_type}" in text
    for scale in (1.0, 0.0):
        x = (random.normal(size=shape) * scale).astype("float32")
        y = net.predict({"x": x[None]})["y"]
        np.testing.assert_allclose(y.reshape(expected(made, x).shape), expected(made, x), rtol=1e-6)


def test_what_has_no_type_here_is_told(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="numbers quantized to int32"):
        imported(model([node("QuantizeLinear", "x xs z")], **SCALES, z=np.int32(0)), tmp_path)


@pytest.mark.parametrize(("kind", "numbers"), [("INT4", [-8, -1, 0, 7, 3]), ("UINT2", [0, 3, 1, 2, 3])])
@pytest.mark.parametrize("beside", [False, True])
def test_weights_of_less_than_a_byte_are_unpacked(kind: str, numbers: list[int], beside: bool, tmp_path: Path) -> None:
    nodes = [node("DequantizeLinear", "w s", "k"), node("Mul", "x k")]
    made = model(nodes, ("N", 5), opset=25, s=np.float32(0.5))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(kind))
    held = onnx.numpy_helper.from_array(np.array(numbers).astype(dtype), "w")
    if beside:
        (tmp_path / "w.bin").write_bytes(held.raw_data)
        held.ClearField("raw_data")
        held.data_location = onnx.TensorProto.EXTERNAL
        held.external_data.add(key="location", value="w.bin")
    made.graph.initializer.append(held)
    net, _ = imported(made, tmp_path)
    x = random.normal(size=(2, 5)).astype("float32")
    np.testing.assert_allclose(net.predict({"x": x})["y"], x * np.array(numbers) * 0.5, rtol=1e-6)
