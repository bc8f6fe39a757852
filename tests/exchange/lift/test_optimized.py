"""Files from onnxruntime's optimizer, at each of its levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from netspec.errors import InputError
from netspec.exchange.lift.registry import BLOCKED
from netspec.exchange.lift.rules import contrib_nchwc
from tests.exchange.documented_lists import listed
from tests.exchange.lift.models.generic import chain, floats, imported, model, random

LEVELS = onnxruntime.GraphOptimizationLevel
PADDED = {"Conv": {"pads": [1, 1, 1, 1]}, "MaxPool": {"kernel_shape": [2, 2], "strides": [2, 2]}}
IMAGES = model(
    [
        *chain("a = Conv x w1 b1", "b = Relu a", "c = MaxPool b", **PADDED),
        *chain("d = Conv c w2", Conv={"pads": [1, 1, 1, 1], "group": 16}),
        *chain("e = Conv d w3", "f = Add e d", "g = HardSigmoid f", "h = Softmax g", "i = Conv h w4", **PADDED),
        *chain("j = AveragePool i", AveragePool={"kernel_shape": [2, 2]}),
        *chain("k = Resize j  s", Resize={"mode": "nearest", "coordinate_transformation_mode": "asymmetric",
                                          "nearest_mode": "floor"}),
        *chain("m = Conv k w5", Conv={"group": 2}),
        *chain("n = GlobalAveragePool m", "o = GlobalMaxPool m", "p = Concat n o", "y = Flatten p", Concat={"axis": 1}),
    ],
    ("N", 3, 12, 12),
    w1=floats(16, 3, 3, 3) - 0.5, b1=floats(16), w2=floats(16, 1, 3, 3) - 0.5, w3=floats(16, 16, 3, 3) - 0.5,
    w4=floats(32, 16, 3, 3) - 0.5, s=np.array([1, 1, 2, 2], "float32"), w5=floats(32, 16, 1, 1) - 0.5,
)  # fmt: skip
"""Convolutions of few, many and grouped channels, in and out of blocks."""


def optimized(proto: onnx.ModelProto, level: object, folder: Path) -> onnx.ModelProto:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


@pytest.mark.parametrize("level", [LEVELS.ORT_ENABLE_BASIC, LEVELS.ORT_ENABLE_EXTENDED, LEVELS.ORT_ENABLE_ALL])
def test_an_optimized_file_is_read(level: object, tmp_path: Path) -> None:
    proto = optimized(IMAGES, level, tmp_path)
    net, _ = imported(proto, tmp_path)
    x = random.normal(size=(2, 3, 12, 12)).astype("float32")
    session = onnxruntime.InferenceSession(IMAGES.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    np.testing.assert_allclose(net.predict({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
    blocked = {node.op_type for node in proto.graph.node if node.domain == BLOCKED}
    (documented,) = (names for line, names in listed("Import from ONNX").items() if f"`{BLOCKED}`" in line)
    assert not blocked or sorted(blocked) == documented


def test_a_file_for_another_processor_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = model(chain("y = Conv x w"), w=floats(24, 2, 3, 3))
    proto.graph.node[0].domain = BLOCKED
    monkeypatch.setattr(contrib_nchwc, "block_size", lambda: 16)
    with pytest.raises(InputError, match="24 channels are not a multiple of 16: the file is for another CPU"):
        imported(proto, tmp_path)
    monkeypatch.setattr(contrib_nchwc, "block_size", lambda: 8)
    imported(proto, tmp_path)
