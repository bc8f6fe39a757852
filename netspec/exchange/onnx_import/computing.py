"""What any operator makes of constants: as the reference in the onnx package computes it, within bounds.

The size of a result is inferred before it is computed: a few bytes may ask for terabytes (Range, Tile, Pad, OneHot …).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.model import Node, Unsupported

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

MAX_ELEMENTS = 2**22
"""Of all operands, and of each result: what is larger is a weight, of which little is computed."""
DRAWN = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
TOLD_ELEMENTS = 2**10
"""Operands up to this size are told to the inference by value: they may be shapes."""


def compute(node: Node, operands: list[NDArray[Any] | None]) -> list[NDArray[Any]]:
    """The results of a node for constant operands (None: left out). Raises `Unsupported`."""
    import warnings

    import numpy as np
    from onnx import defs
    from onnx.reference import ReferenceEvaluator

    given = {name: array for name, array in zip(node.inputs, operands, strict=True) if array is not None}
    if sum(array.size for array in given.values()) > MAX_ELEMENTS:
        raise Unsupported(f"its constant operands have more than {MAX_ELEMENTS:,} elements")
    if not defs.has(node.op_type, node.domain):
        raise Unsupported("this operator is not computed on constants")
    if node.op_type in DRAWN:
        raise Unsupported("it draws numbers, which are not constants")
    try:
        model = _model(node, given)
        _check_sizes(model)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = ReferenceEvaluator(model).run(None, given)
    except Exception as error:  # of any class: the reference implementations check nothing
        raise Unsupported(f"it cannot be computed on its constant operands: {error}".split("\n")[0]) from error
    arrays = [np.asarray(one) for one in made]
    if any(array.dtype.kind not in "fiub" for array in arrays):
        raise Unsupported("its result holds something else than numbers")
    return arrays


def _model(node: Node, given: dict[str, NDArray[Any]]) -> onnx.ModelProto:
    """The node alone, as a model. Raises what the onnx package raises."""
    from onnx import ValueInfoProto, helper, numpy_helper

    attributes = {
        name: numpy_helper.from_array(value) if hasattr(value, "dtype") else value
        for name, value in node.attributes.items()
    }
    proto = helper.make_node(node.op_type, node.inputs, node.outputs, domain=node.domain, **attributes)
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in given.items()}
    graph = helper.make_graph(
        [proto], "constants",
        [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in given.items()],
        [ValueInfoProto(name=name) for name in node.outputs if name],
        [numpy_helper.from_array(array, name) for name, array in given.items() if array.size <= TOLD_ELEMENTS],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, node.opset)])


def _check_sizes(model: onnx.ModelProto) -> None:
    """Raise `ValueError` where a result would be too large. What is not inferred is no larger than the operands."""
    from onnx import shape_inference

    for info in shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph.output:
        size = prod(one.dim_value for one in info.type.tensor_type.shape.dim)
        if size > MAX_ELEMENTS:
            raise ValueError(f"{size:,} elements are too many")
