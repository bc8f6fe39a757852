"""Small models of single operators, with the last line of the imported net, and a comparison with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from netspec.exchange.formats.onnx.messages import open_session
from tests.exchange.lift.models.generic import imported, layers_of

TYPES = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "s": TensorProto.INT32, "b": TensorProto.BOOL,
         "u": TensorProto.UINT8}  # fmt: skip
DTYPES = {"f": "float32", "i": "int64", "s": "int32", "b": "bool", "u": "uint8"}
random = np.random.default_rng(3)


def case(nodes: Any, line: str, opset: int = 18, result: str = "f", **arrays: Any) -> Any:
    """Return a model, the line, and its inputs (texts of an element type and sizes, `f N 3`); arrays are weights."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    puts, kinds, weights = [], {}, []
    for name, array in arrays.items():
        if isinstance(array, str):
            kind, *sizes = array.split(" ")
            shape = [int(size) if size.isdigit() else size for size in sizes]
            puts.append(helper.make_tensor_value_info(name, TYPES[kind], shape))
            kinds[name] = kind, tuple(3 if size == "N" else size for size in shape)
        else:
            weights.append(numpy_helper.from_array(np.asarray(array), name))
    out = helper.make_tensor_value_info("y", TYPES[result], None)
    graph = helper.make_graph(nodes, "graph", puts, [out], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), line, kinds


def computes_as_onnxruntime(model_case: Any, tmp_path: Path, rtol: float = 1e-5) -> None:
    """Check that the net of a `case` has its last line, and agrees with ONNX Runtime."""
    model, line, kinds = model_case
    net, text = imported(model, tmp_path)
    x = {key: _array(kind, shape) for key, (kind, shape) in kinds.items()}
    (expected,) = open_session(model.SerializeToString()).run(None, x)
    with_batch = all(len(declared.shape) == len(x[key].shape) for key, declared in net.spec.inputs.items())
    fed = {key: x[key][None] if with_batch else x[key] for key in net.spec.inputs}
    y = net.predict(fed)["y"]
    np.testing.assert_allclose(y[0] if with_batch else y, expected, rtol=rtol, atol=1e-5)
    assert layers_of(text)[-1:] == [line]


def _array(kind: str, shape: tuple[int, ...]) -> Any:
    if kind == "f":
        return random.normal(size=shape).astype("float32")
    return random.integers(1 if kind == "i" else 0, 2 if kind == "b" else 3, shape).astype(DTYPES[kind])
