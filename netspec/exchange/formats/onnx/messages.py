"""ONNX messages from plain data, and which versions of ONNX the installed libraries read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from netspec.errors import Problem, RunError
from netspec.exchange.onnx_runtime import load_onnxruntime
from netspec.exchange.operator_graph.graph import LoweredGraph, OperatorNode
from netspec.graph.types import DType, TensorType

if TYPE_CHECKING:
    import onnx

MAX_BYTES = 2**31 - 2**20
"""A protobuf message holds at most 2 GiB; the margin is for everything except weights."""
LOWEST_OPSET = 11
"""Older operators take no negative axes, and neither pads nor bounds as operands."""
PROVIDER = "CPUExecutionProvider"
"""onnxruntime's execution provider for the CPU."""
OPEN_ENDED = 2**31 - 1
"""Last opset that onnxruntime declares for a kernel of an operator's newest form."""
Dims = tuple[int | str | None, ...]
"""Sizes of a tensor: a number, a symbol, or unknown."""


@cache
def newest_opset() -> int:
    """The newest opset that both installed libraries, onnx and onnxruntime, take."""
    import onnx

    for opset in range(onnx.defs.onnx_opset_version(), LOWEST_OPSET - 1, -1):
        probe = LoweredGraph(nodes=[OperatorNode("Identity", "probe", ("x",), ("y",), {})])
        kind = TensorType((1,), DType.FLOAT32)
        probe.inputs, probe.outputs = {"x": kind}, {"y": kind}
        try:
            open_session(make_model(probe, {}, opset=opset, dims={"x": (1,), "y": (1,)}).SerializeToString())
        except RunError:
            continue
        return opset
    raise RunError("the installed onnx and onnxruntime have no opset in common", hint="upgrade onnxruntime")


def runnable_opset(op_types: Iterable[str]) -> int:
    """The newest opset that both libraries take, and in which onnxruntime has kernels for these operators."""
    newest = newest_opset()
    kinds = [op_type for op_type in set(op_types) if not _runs(op_type, newest)]
    return next(
        (opset for opset in range(newest, LOWEST_OPSET, -1) if all(_runs(kind, opset) for kind in kinds)), newest
    )


@cache
def _runs(op_type: str, opset: int) -> bool:
    """Whether onnxruntime has a kernel for the form of an operator in an opset."""
    import onnx

    try:
        schema: Any = onnx.defs.get_schema(op_type, opset)  # its type stubs are incomplete
    except onnx.defs.SchemaError:
        return False
    if schema.function_opset_versions or schema.context_dependent_function_opset_versions:
        return True  # ONNX defines it by other operators
    since = schema.since_version
    return any(
        first == since or first <= since <= last < OPEN_ENDED
        for first, last in (
            kernel.version_range
            for kernel in load_onnxruntime().capi.onnxruntime_pybind11_state.get_all_opkernel_def()
            if kernel.op_name == op_type and not kernel.domain and kernel.provider == PROVIDER
        )
    )


def open_session(model: bytes | Path) -> Any:
    """An onnxruntime session on the CPU, of a model's bytes or its file.

    Raises `RunError` if it rejects the model.
    """
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        source = str(model) if isinstance(model, Path) else model
        return onnxruntime.InferenceSession(source, options, providers=[PROVIDER])
    except Exception as error:  # its error classes share no other base
        raise RunError("onnxruntime does not take the exported model", got=str(error)) from error


def check_opset(graph: LoweredGraph, opset: int, current: LoweredGraph) -> list[Problem]:
    """A problem for each node that does not exist in the opset; `current` is the graph before its downgrade."""
    reasons = [(node, why) for node in graph.nodes if (why := _missing(graph, node, opset))]
    if not reasons:
        return []
    newest = newest_opset()
    never = {node.scope.layer for node in current.nodes if _missing(current, node, newest)}
    problems: dict[Problem, None] = {}
    for node, why in reasons:
        layer = node.scope.layer
        problem = Problem(
            f"layer `{layer}` ({node.scope.kind}) can't be written in ONNX opset {opset}", node.scope.location,
            f"layers.{layer}", got=why,
            hint=None if layer in never else f"use a newer one; the newest here is {newest}",
        )  # fmt: skip
        problems[problem] = None
    return list(problems)


def _missing(graph: LoweredGraph, node: OperatorNode, opset: int) -> str | None:
    """Return what an opset lacks to express a node: its operator, an attribute or a type; None if it lacks nothing."""
    import onnx

    try:
        schema = onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        return f"there is no {node.op_type} yet"
    unknown = sorted(node.attributes.keys() - schema.attributes.keys())
    if unknown:
        return f"its {node.op_type} has no attribute {', '.join(unknown)}"
    if not schema.min_input <= len(node.inputs) <= schema.max_input:
        return f"its {node.op_type} takes other operands"
    return _untaken(graph, node, schema)


def _untaken(graph: LoweredGraph, node: OperatorNode, schema: onnx.defs.OpSchema) -> str | None:
    """The problem of an operand whose element type the operator does not take; None if there is none."""
    from onnx import TensorProto, helper

    for index, name in enumerate(node.inputs):
        kind = graph.types.get(name)
        if kind is not None:
            element = helper.np_dtype_to_tensor_dtype(np.dtype(str(kind.dtype)))
            formal = schema.inputs[min(index, len(schema.inputs) - 1)]
            if f"tensor({TensorProto.DataType.Name(element).lower()})" not in formal.types:
                return f"its {node.op_type} takes no {kind.dtype}"
    return None


def element_number(dtype: str) -> int:
    """Return ONNX's number of an element type."""
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def weights_of(graph: LoweredGraph, states: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The values of a graph's states by the names of their tensors."""
    return {
        tensor: np.ascontiguousarray(states[state], str(kind.dtype)).reshape(kind.shape)
        for state, (tensor, kind) in graph.states.items()
    }


def make_model(
    graph: LoweredGraph,
    states: Mapping[str, NDArray[Any]],
    *,
    opset: int,
    dims: Mapping[str, Dims],
    name: str = "net",
    doc: str = "",
    metadata: Mapping[str, str] | None = None,
    apart: Collection[str] = (),
) -> onnx.ModelProto:
    """The ONNX model of an emitted graph; `dims` are the sizes of its inputs and outputs.

    Weights named in `apart` are written without data, since these are in an external file.
    """
    import onnx
    from onnx import helper, numpy_helper

    def info(tensor: str, kind: TensorType) -> onnx.ValueInfoProto:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(str(kind.dtype)))
        return helper.make_tensor_value_info(tensor, element, list(dims[tensor]))

    def initializer(name: str, array: NDArray[Any]) -> onnx.TensorProto:
        if name not in apart:
            return numpy_helper.from_array(array, name)
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        return onnx.TensorProto(name=name, data_type=element, dims=array.shape)

    graph = helper.make_graph(
        [_node(node) for node in graph.nodes],
        name,
        [info(tensor, kind) for tensor, kind in graph.inputs.items()],
        [info(tensor, kind) for tensor, kind in graph.outputs.items()],
        [initializer(tensor, array) for tensor, array in {**weights_of(graph, states), **graph.constants}.items()],
        doc_string=doc,
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="netspec")
    model.ir_version = helper.find_min_ir_version_for(opsets)  # the oldest with this opset, which most readers know
    helper.set_model_props(model, dict(metadata or {}))
    return model


def _node(node: OperatorNode) -> onnx.NodeProto:
    from onnx import helper

    def plain(value: Any) -> Any:
        return helper.np_dtype_to_tensor_dtype(np.dtype(str(value))) if isinstance(value, DType) else value

    attributes = {name: plain(value) for name, value in node.attributes.items()}
    return helper.make_node(node.op_type, node.inputs, node.outputs, name=node.name, **attributes)


def check_model(model: onnx.ModelProto) -> None:
    """Run ONNX's checker, with strict shape inference. Raises `RunError` with its message."""
    import onnx

    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        raise RunError("the exported model does not pass ONNX's checker", got=str(error)) from error
