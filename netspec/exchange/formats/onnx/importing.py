"""Import an ONNX file: read it to an operator graph, which is lifted to a net with weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx

from netspec.errors import InputError, Problem
from netspec.exchange.files import reading, sniff
from netspec.exchange.formats.onnx.wrapper import reduce_to_net
from netspec.exchange.interface import Imported, ImportOptions
from netspec.exchange.lift.model import lift_model
from netspec.exchange.operator_graph.arrays import Arrays, text
from netspec.exchange.operator_graph.graph import GraphInput, ImportedGraph
from netspec.exchange.operator_graph.onnx_protos import DOMAINS, Nodes, twice


def import_onnx(path: str | Path, options: ImportOptions | None = None) -> Imported:
    """The net and the weights in an ONNX model; sizes in `options` are with the batch or without it.

    Raises `InputError`: with all problems of the file, or with every node that netspec has no layer for.
    """
    return lift_model(read_model(path), options or ImportOptions(), str(path)).imported


WHAT = "an ONNX model (.onnx)"
MAX_BYTES = 2**31 - 1
"""Protobuf's own limit."""
OLDEST_OPSET = 7
IR_VERSION = b"\x08"
"""Tag of the field that a model begins with."""
DAMAGED = "copy or download it again"
NO_NAMES = ("?", "-1", "None")
"""Names of axes that programs write for an unknown size."""

T = TypeVar("T")


def read_model(path: str | Path) -> ImportedGraph:
    """The model in a file. Raises `InputError` with all problems."""
    proto = _parse(path)
    is_reduced = reduce_to_net(proto)
    model = model_of(proto, str(path), Path(path).parent)
    if is_reduced:
        model.remarks.append("the preprocessing and postprocessing in the model are left out")
    return model


def model_of(proto: onnx.ModelProto, origin: str, folder: Path | None = None) -> ImportedGraph:
    """Read a model in memory, which messages call `origin`; its external files are below `folder`.

    Raises `InputError` with all problems.
    """
    graph = proto.graph
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = "" if text(entry.domain) in DOMAINS else text(entry.domain)
        opsets[domain] = max(entry.version, opsets.get(domain, 0))
    opset = opsets.get("", 0)
    if not opset or not graph.node:
        raise InputError(f"{origin} is not an ONNX model", expected=WHAT, got="a message without nodes or opset")
    if opset < OLDEST_OPSET and _unchanged(graph, opset):
        opset = opsets[""] = OLDEST_OPSET
    if opset < OLDEST_OPSET:
        raise InputError(
            f"{origin} is written in ONNX opset {opset}", expected=f"opset {OLDEST_OPSET} or newer",
            hint="convert it with onnx.version_converter",
        )  # fmt: skip
    _known_version(origin, "opset", opset, onnx.defs.onnx_opset_version())
    _known_version(origin, "IR version", proto.ir_version, onnx.IR_VERSION)
    problems: list[str] = []
    arrays = Arrays(folder)
    nodes = Nodes(arrays, {(text(function.domain), text(function.name)): function for function in proto.functions})
    model = ImportedGraph(
        text(graph.name), f"{text(proto.producer_name)} {text(proto.producer_version)}".strip(), opset
    )
    model.metadata = {text(entry.key): text(entry.value) for entry in proto.metadata_props}
    constants = [
        *_collect(arrays.named, graph.initializer, problems),
        *_collect(arrays.sparse, graph.sparse_initializer, problems),
    ]
    model.constants = dict(constants)
    # before ONNX's IR 4 they are listed as inputs too
    constant_names = {text(tensor.name) for tensor in graph.initializer}
    constant_names |= {text(tensor.values.name) for tensor in graph.sparse_initializer}
    model.inputs = _collect(_input, [info for info in graph.input if text(info.name) not in constant_names], problems)
    problems += twice([name for name, _ in constants], "initializer")
    problems += twice([model_input.name for model_input in model.inputs], "input")
    model.outputs = [text(output.name) for output in graph.output]
    model.output_types = _element_types(graph.output)
    for nodes_of in _collect(lambda node: nodes.several([node], opsets), graph.node, problems):
        model.nodes += nodes_of
    if not problems:
        _sort(model)
        problems = _wiring(model)
    if problems:
        raise InputError(Problem(f"{origin}: {problem}") for problem in dict.fromkeys(problems))
    model.remarks = arrays.remarks
    return model


def _unchanged(graph: onnx.GraphProto, opset: int) -> bool:
    """Whether all operators of a graph have the same meaning in an opset as in the oldest supported one."""
    inner = any(attribute.HasField("g") for node in graph.node for attribute in node.attribute)
    plain = not inner and all(text(node.domain) in DOMAINS for node in graph.node)
    try:
        return plain and all(
            onnx.defs.get_schema(node.op_type, opset).since_version
            == onnx.defs.get_schema(node.op_type, OLDEST_OPSET).since_version
            for node in graph.node
        )
    except onnx.defs.SchemaError:
        return False


def _known_version(origin: str, versioned: str, number: int, newest: int) -> None:
    """Raise `InputError` for a file of a version of ONNX that the installed library does not know."""
    if number > newest:
        raise InputError(
            f"{origin} is written in ONNX {versioned} {number}", expected=f"{versioned} {newest} or older",
            hint="a newer version of onnx may know it: `pip install --upgrade onnx`",
        )  # fmt: skip


def _collect(make: Callable[[Any], T], parts: Iterable[Any], problems: list[str]) -> list[T]:
    """The results of `make` for each part; its failures are added to the problems."""
    results = []
    for part in parts:
        try:
            results.append(make(part))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(str(error))
    return results


def _parse(path: str | Path) -> onnx.ModelProto:
    with reading(path, WHAT) as (file, size):
        if size > MAX_BYTES:
            raise InputError(f"{path} is too large for an ONNX file", expected=f"at most {MAX_BYTES:,} bytes")
        data = file.read()
    try:
        return onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's DecodeError, which has no type stubs, and others
        got, hint = (str(error), DAMAGED) if data.startswith(IR_VERSION) else sniff(data)
        raise InputError(f"{path} is damaged, or not an ONNX model", expected=WHAT, got=got, hint=hint) from error


def _input(info: onnx.ValueInfoProto) -> GraphInput:
    kind = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type":
        raise ValueError(f"the input `{info.name}` is not a tensor")
    dtype = str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)))
    if not kind.HasField("shape"):
        return GraphInput(info.name, dtype, None)
    dims = tuple(size.dim_value if size.dim_value > 0 else None for size in kind.shape.dim)  # 0 if unset
    size_names = [text(size.dim_param) for size in kind.shape.dim]
    empty = [axis for axis, size in enumerate(kind.shape.dim) if size.HasField("dim_value") and not size.dim_value]
    names = tuple("" if name in NO_NAMES else name for name in size_names)
    return GraphInput(info.name, dtype, dims, names, tuple(empty))


def _element_types(outputs: Iterable[onnx.ValueInfoProto]) -> dict[str, str]:
    """NumPy's names of the element types of outputs that declare one."""
    kinds = {text(output.name): output.type.tensor_type.elem_type for output in outputs}
    return {name: str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))) for name, kind in kinds.items() if kind}


def _sort(model: ImportedGraph) -> None:
    """Sort nodes so that each follows those that it reads, otherwise in their order; `_wiring` reports cycles."""
    makers = {name: index for index, node in enumerate(model.nodes) for name in node.outputs if name}
    before = [{makers[name] for name in (*node.inputs, *node.captured) if name in makers} for node in model.nodes]
    if all(index not in needs and max(needs, default=-1) < index for index, needs in enumerate(before)):
        return
    after: dict[int, list[int]] = {}
    for index, needs in enumerate(before):
        for needed in needs:
            after.setdefault(needed, []).append(index)
    missing = [len(needs) for needs in before]
    ready = [index for index, count in enumerate(missing) if count == 0]
    order = []
    heapify(ready)
    while ready:
        index = heappop(ready)
        order.append(index)
        for needed in after.get(index, ()):
            missing[needed] -= 1
            if missing[needed] == 0:
                heappush(ready, needed)
    circle = [index for index in range(len(before)) if missing[index]]
    model.nodes = [model.nodes[index] for index in (*order, *circle)]


def _wiring(model: ImportedGraph) -> list[str]:
    """Problems of tensor names: read before they are defined, defined twice, never defined."""
    wrong = []
    available = {*model.constants, *(model_input.name for model_input in model.inputs)}
    later = {name for node in model.nodes for name in node.outputs}
    for node in model.nodes:
        for name in (*node.inputs, *node.captured):
            if name and name not in available:
                reason = "before it is made (the nodes run in a circle)" if name in later else "which nothing makes"
                wrong.append(f"{node.describe()} reads `{name}`, {reason}")
        for name in node.outputs:
            if name and name in available:
                wrong.append(f"{node.describe()} makes `{name}`, which exists already")
            available.add(name)
        available.update(name for name in (*node.inputs, *node.captured) if name)  # each missing name is reported once
    wrong += [f"the output `{name}` is made by no node" for name in model.outputs if name not in available]
    if not model.outputs:
        wrong.append("the model has no outputs")
    return wrong
