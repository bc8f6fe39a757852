"""Quantized models of other programs give the integers of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from netspec.exchange.formats.onnx.messages import open_session
from tests.exchange.integer_products import skip_if_they_saturate
from tests.exchange.lift.models.generic import floats, imported, layers_of, model, node, random
from tests.exchange.nets import Net

SCALES: dict[str, Any] = {
    "xs": np.float32(0.02), "xz": np.uint8(120), "ws": floats(4) / 50, "wz": np.zeros(4, "int8"),
    "ys": np.float32(0.31), "yz": np.uint8(7),
}  # fmt: skip
KERNEL = random.integers(-127, 128, (4, 2, 3, 3)).astype("int8")
MATRIX = random.integers(0, 256, (5, 3)).astype("uint8")


def expected(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    y: np.ndarray = open_session(proto.SerializeToString()).run(None, {"x": x})[0]
    return y


def same(proto: onnx.ModelProto, net: Net, x: np.ndarray) -> None:
    np.testing.assert_array_equal(net.predict({"x": x})["y"], expected(proto, x))


QUANTIZE, BACK = node("QuantizeLinear", "x xs xz", "q"), node("DequantizeLinear", "p ys yz")
X = random.normal(size=(3, 2, 6, 5)).astype("float32")


def test_weights_are_made_floats_and_the_rest_is_layers(tmp_path: Path) -> None:
    nodes = [
        QUANTIZE, node("DequantizeLinear", "q xs xz", "f"), node("DequantizeLinear", "w ws wz", "k", axis=0),
        node("Conv", "f k b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"), node("QuantizeLinear", "r ys yz", "p"),
        BACK,
    ]  # fmt: skip
    proto = model(nodes, w=KERNEL, b=floats(4), **SCALES)
    net, text = imported(proto, tmp_path)
    assert [line.split("type: ")[1].split(",")[0].rstrip("}") for line in layers_of(text)] == [
        "QuantizeLinear", "DequantizeLinear", "Conv2D", "QuantizeLinear", "DequantizeLinear",
    ]  # fmt: skip
    far = np.abs(net.predict({"x": X})["y"] - expected(proto, X))
    assert (far > 0).mean() < 0.01  # sums in another order may be rounded to the neighboring integer
    assert far.max() <= 0.32


def test_convolutions_of_8_bits_are_exact(tmp_path: Path) -> None:
    skip_if_they_saturate()
    nodes = [QUANTIZE, node("QLinearConv", "q xs xz w ws wz ys yz b", "p", pads=[1, 0, 1, 2], strides=[2, 1]), BACK]
    proto = model(nodes, w=KERNEL, b=random.integers(-99, 99, 4).astype("int32"), **SCALES)
    net, text = imported(proto, tmp_path)
    assert all(line in text for line in ("type: QLinearConv", "strides: [2, 1]", "padding: [[1, 1], [0, 2]]"))
    same(proto, net, X)


def test_products_of_8_bits_are_exact(tmp_path: Path) -> None:
    nodes = [QUANTIZE, node("QLinearMatMul", "q xs xz w k wz ys yz", "p"), BACK]
    weights = {**SCALES, "w": MATRIX, "k": np.float32(0.01), "wz": np.uint8(99)}
    proto = model(nodes, ("N", 4, 5), **weights)
    net, text = imported(proto, tmp_path)
    assert "type: QLinearMatMul, kernel_dtype: uint8, units: 3" in text
    same(proto, net, random.normal(size=(2, 4, 5)).astype("float32"))


@pytest.mark.parametrize("op_type", ["MatMulInteger", "ConvInteger"])
def test_computed_scales_equal_the_model(op_type: str, tmp_path: Path) -> None:
    nodes = [
        node("DynamicQuantizeLinear", "x", "q, s, z"), node(op_type, "q w z v", "i"), node("Cast", "i", "f", to=1),
        node("Mul", "s k", "t"), node("Mul", "f t"),
    ]  # fmt: skip
    conv = op_type == "ConvInteger"
    shape = (1, 2, 4, 4) if conv else (2, 5)
    kernel = random.integers(0, 256, (4, 2, 3, 3)).astype("uint8") if conv else MATRIX
    proto = model(nodes, shape, w=kernel, v=np.uint8(128), k=np.float32(0.01))
    net, text = imported(proto, tmp_path)
    assert f"type: {op_type}" in text
    for scale in (1.0, 0.0):
        x = (random.normal(size=shape) * scale).astype("float32")
        y = net.predict({"x": x[None]})["y"]
        np.testing.assert_allclose(y.reshape(expected(proto, x).shape), expected(proto, x), rtol=1e-6)


def test_an_unknown_element_type_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="quantization to int32 is not supported"):
        imported(model([node("QuantizeLinear", "x xs z")], **SCALES, z=np.int32(0)), tmp_path)


@pytest.mark.parametrize(("kind", "numbers"), [("INT4", [-8, -1, 0, 7, 3]), ("UINT2", [0, 3, 1, 2, 3])])
@pytest.mark.parametrize("is_external", [False, True])
def test_weights_of_less_than_a_byte_are_unpacked(
    kind: str, numbers: list[int], is_external: bool, tmp_path: Path
) -> None:
    nodes = [node("DequantizeLinear", "w s", "k"), node("Mul", "x k")]
    proto = model(nodes, ("N", 5), opset=25, s=np.float32(0.5))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(kind))
    tensor = onnx.numpy_helper.from_array(np.array(numbers).astype(dtype), "w")
    if is_external:
        (tmp_path / "w.bin").write_bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
    proto.graph.initializer.append(tensor)
    net, _ = imported(proto, tmp_path)
    x = random.normal(size=(2, 5)).astype("float32")
    np.testing.assert_allclose(net.predict({"x": x})["y"], x * np.array(numbers) * 0.5, rtol=1e-6)


STEPS: dict[str, Any] = {"s": np.float32(0.02), "z": np.uint8(120)}
KEEPING: dict[str, tuple[list[onnx.NodeProto], dict[str, Any]]] = {
    "one after another": ([node("Concat", "q q", "p", axis=2)], {}),
    "the greatest of windows": ([node("MaxPool", "q", "p", kernel_shape=[2, 2], pads=[1, 1, 1, 1])], {}),
    "the greatest of all": ([node("ReduceMax", "q a", "p")], {"a": np.array([2])}),
    "repeated": ([node("Resize", "q  k", "p", mode="nearest")], {"k": np.array([1, 1, 2, 2], "float32")}),
    "in parts": (
        [node("Split", "q", "m, r", axis=1, num_outputs=2), node("Concat", "r m", "p", axis=1)], {}
    ),
    "relu": ([node("Relu", "q", "p")], {"z": np.int8(4)}),
}  # fmt: skip


@pytest.mark.parametrize("name", KEEPING)
def test_quantized_values_keep_their_type(name: str, tmp_path: Path) -> None:
    """Layers that convert quantized values to floats are followed by a Cast."""
    nodes, weights = KEEPING[name]
    ends = node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "p s z", "y")
    proto = model([ends[0], *nodes, ends[1]], opset=18, **{**STEPS, **weights})
    net, text = imported(proto, tmp_path)
    same(proto, net, X)
    assert "type: Cast" in text


def test_a_quantized_number_is_computed_while_importing(tmp_path: Path) -> None:
    nodes = [node("QuantizeLinear", "k s z", "q"), node("DequantizeLinear", "q s z", "d"), node("Mul", "x d")]
    proto = model(nodes, k=np.float32(0.711), **STEPS)
    net, text = imported(proto, tmp_path)
    same(proto, net, X)
    assert layers_of(text) == ["{name: y, type: Power, scale: 0.71999997}"]


def test_several_images_are_quantized_together(tmp_path: Path) -> None:
    nodes = [node("DynamicQuantizeLinear", "x", "q, a, b"), node("ConvInteger", "q w b", "c"), node("Cast", "c", to=1)]
    proto = model(nodes, X.shape, w=KERNEL)
    net, _ = imported(proto, tmp_path)
    np.testing.assert_array_equal(net.predict({"x": X[np.newaxis]})["y"][0], expected(proto, X))
