"""Whether ONNX Runtime's products of 8-bit integers are exact on this CPU."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from netspec.exchange.formats.onnx.messages import open_session


@cache
def are_exact() -> bool:
    """Multiply the largest uint8 by the largest int8: with AVX2 alone, ONNX Runtime saturates sums of pairs at 16 bits.

    See "U8S8" in https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html.
    """
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "product",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [4, 4])],
        [numpy_helper.from_array(np.full((8, 4), 127, np.int8), "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (y,) = open_session(model.SerializeToString()).run(None, {"a": np.full((4, 8), 255, np.uint8)})
    return bool((y == 8 * 255 * 127).all())


def skip_if_they_saturate() -> None:
    """Skip the test if the answers of ONNX Runtime are saturated on this CPU."""
    if not are_exact():
        pytest.skip("on this CPU, ONNX Runtime saturates sums of products of uint8 and int8 at 16 bits")
