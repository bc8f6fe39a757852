"""Evaluate any operator on constants with the reference implementation in the onnx package, within bounds.

The size of a result is inferred before it is computed: a few bytes may ask for terabytes (Range, Tile, Pad, OneHot …).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.operator_graph.graph import OperatorNode, Subgraph
from netspec.exchange.operator_graph.onnx_protos import as_proto
from netspec.exchange.unsupported import UnsupportedFeature

if TYPE_CHECKING:
    import onnx

MAX_ELEMENTS = 2**22
"""Largest number of elements of all operands, and of each result: larger tensors are weights."""
MAX_IF_SIZE_UNKNOWN = 2**16
"""Largest number of elements of all operands, if the size of the result depends on their values."""
MAX_SHAPE_OPERAND = 2**10
"""Operands up to this size are passed to shape inference by value: they may be shapes."""


class NotEvaluated(UnsupportedFeature):
    """A node is not computed on constants; the importer may still have a rule for it."""


class TooLargeToEvaluate(UnsupportedFeature):
    """The constant operands of a node are larger than the limit."""


def compute(node: OperatorNode, operands: list[NDArray[Any] | None]) -> list[NDArray[Any]]:
    """The results of a node for constant operands (None: left out).

    Raises `NotEvaluated`, or `UnsupportedFeature` if the operands are invalid or too large.
    """
    import warnings

    from onnx import defs
    from onnx.reference import ReferenceEvaluator

    constants = {name: array for name, array in zip(node.inputs, operands, strict=True) if array is not None}
    if sum(array.size for array in constants.values()) > MAX_ELEMENTS:
        raise TooLargeToEvaluate(f"its constant operands have more than {MAX_ELEMENTS:,} elements")
    if not defs.has(node.op_type, node.domain):
        raise NotEvaluated("this operator is not computed on constants")
    schema: Any = defs.get_schema(node.op_type, node.domain)
    if schema.non_deterministic or any(isinstance(attribute, Subgraph) for attribute in node.attributes.values()):
        raise NotEvaluated("it draws numbers, or has graphs within it")
    if any(all(kind.startswith("seq") for kind in result.types) for result in schema.outputs):
        raise NotEvaluated("its result is a sequence of tensors")
    try:
        model = _model(node, constants)
        _check_sizes(model)
    except Exception as error:  # the onnx package raises errors of any class
        raise UnsupportedFeature(f"it cannot be computed on its constant operands: {_first_line(error)}") from error
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, constants)
    except Exception as error:  # of any class: the reference implementations do not check their operands
        raise NotEvaluated(f"it cannot be computed on its constant operands: {_first_line(error)}") from error
    arrays = [np.asarray(result) for result in results]
    if any(array.dtype.kind not in "fiub" for array in arrays):
        raise UnsupportedFeature("its result holds something else than numbers")
    return arrays


def _model(node: OperatorNode, constants: dict[str, NDArray[Any]]) -> onnx.ModelProto:
    """A model with only this node. Raises whatever the onnx package raises."""
    from onnx import ValueInfoProto, helper, numpy_helper

    proto = as_proto(node)
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in constants.items()}
    graph = helper.make_graph(
        [proto], "constants",
        [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in constants.items()],
        [ValueInfoProto(name=name) for name in node.outputs if name],
        [numpy_helper.from_array(array, name) for name, array in constants.items() if array.size <= MAX_SHAPE_OPERAND],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, node.opset)])


def check_constant_size(elements: int, limit: int) -> None:
    """Raise `ValueError` if a constant has more elements than the limit."""
    if elements > limit:
        raise ValueError(f"a constant of {elements:,} elements exceeds the limit of {limit:,}")


def _check_sizes(model: onnx.ModelProto) -> None:
    """Raise `ValueError` if a result would be too large, or its size is unknown and operands are not small."""
    from onnx import shape_inference

    inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    input_elements = sum(prod(size.dim_value for size in info.type.tensor_type.shape.dim) for info in inferred.input)
    for info in inferred.output:
        kind = info.type.tensor_type
        is_static = kind.HasField("shape") and all(size.HasField("dim_value") for size in kind.shape.dim)
        size = prod(dim.dim_value for dim in kind.shape.dim) if is_static else 0
        check_constant_size(size, MAX_ELEMENTS)
        if not is_static and input_elements > MAX_IF_SIZE_UNKNOWN:
            raise ValueError(f"the size of its result is unknown, and its inputs have {input_elements:,} elements")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
