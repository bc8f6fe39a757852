"""An ONNX file → `Model`, trusting nothing: damage and malice end in an `InputError`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from netspec.errors import InputError, Problem
from netspec.exchange.files import reading, sniff
from netspec.exchange.onnx_import.model import Model, ModelInput, Node

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

WHAT = "an ONNX model (.onnx)"
MAX_BYTES = 2**31 - 1
"""Protobuf's own limit."""
OLDEST_OPSET = 7
DOMAINS = ("", "ai.onnx")
IR_VERSION = b"\x08"
"""Tag of the field that a model begins with."""
DAMAGED = "copy or download it again"

T = TypeVar("T")


def read_model(path: str | Path) -> Model:
    """The model in a file. Raises `InputError` with everything that is wrong with it."""
    return model_of(_parse(path), str(path))


def model_of(proto: onnx.ModelProto, origin: str) -> Model:
    """A model in memory, which messages call `origin`. Raises `InputError` with everything that is wrong with it."""
    graph, opsets = proto.graph, {_text(entry.domain): entry.version for entry in proto.opset_import}
    opset = max((opsets[domain] for domain in DOMAINS if domain in opsets), default=0)
    if not opset or not graph.node:
        raise InputError(f"{origin} is not an ONNX model", expected=WHAT, got="a message without nodes or opset")
    if opset < OLDEST_OPSET:
        raise InputError(
            f"{origin} is written in ONNX opset {opset}", expected=f"opset {OLDEST_OPSET} or newer",
            hint="convert it with onnx.version_converter",
        )  # fmt: skip
    problems: list[str] = []
    arrays = _each(_array, graph.initializer, problems)
    model = Model(_text(graph.name), f"{_text(proto.producer_name)} {_text(proto.producer_version)}".strip(), opset)
    model.constants = dict(arrays)
    given = {_text(tensor.name) for tensor in graph.initializer}  # before ONNX's IR 4 they are listed as inputs too
    model.inputs = _each(_input, [one for one in graph.input if _text(one.name) not in given], problems)
    model.outputs = [_text(one.name) for one in graph.output]
    model.nodes = _each(lambda node: _node(node, opsets, opset), graph.node, problems)
    if graph.sparse_initializer:
        problems.append("sparse weights are not read")
    problems = problems or _wiring(model)
    if problems:
        raise InputError(Problem(f"{origin}: {text}") for text in dict.fromkeys(problems))
    return model


def _each(make: Callable[[Any], T], parts: Iterable[Any], problems: list[str]) -> list[T]:
    """What `make` makes of each part; where it fails, a problem is noted instead."""
    made = []
    for part in parts:
        try:
            made.append(make(part))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(str(error))
    return made


def _parse(path: str | Path) -> onnx.ModelProto:
    import onnx

    with reading(path, WHAT) as (file, size):
        if size > MAX_BYTES:
            raise InputError(f"{path} is too large for an ONNX file", expected=f"at most {MAX_BYTES:,} bytes")
        data = file.read()
    try:
        return onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's DecodeError, whose module has no type information, and what lies below it
        found, hint = (str(error), DAMAGED) if data.startswith(IR_VERSION) else sniff(data)
        raise InputError(f"{path} is damaged, or not an ONNX model", expected=WHAT, got=found, hint=hint) from error


def _array(tensor: onnx.TensorProto) -> tuple[str, NDArray[Any]]:
    return _text(tensor.name), _numbers(tensor)


def _numbers(tensor: onnx.TensorProto) -> NDArray[Any]:
    import numpy as np
    import onnx

    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise ValueError(
            f"the weights `{tensor.name}` lie in another file, which is not read: "
            "save the model as one file (onnx.save_model(…, save_as_external_data=False))"
        )
    if any(size < 0 for size in tensor.dims):
        raise ValueError(f"the weights `{tensor.name}` have the shape {list(tensor.dims)}")
    try:
        array = np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"the weights `{tensor.name}` are damaged: {error}") from error
    if array.dtype.kind not in "fiub":
        raise ValueError(f"the weights `{tensor.name}` hold {array.dtype}, not numbers")
    return array


def _input(info: onnx.ValueInfoProto) -> ModelInput:
    import numpy as np
    import onnx

    kind = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type":
        raise ValueError(f"the input `{info.name}` is not a tensor")
    dtype = str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)))
    if not kind.HasField("shape"):
        return ModelInput(info.name, dtype, None)
    dims = tuple(size.dim_value if size.dim_value > 0 else None for size in kind.shape.dim)  # 0 where it is not set
    return ModelInput(info.name, dtype, dims, tuple(_text(size.dim_param) for size in kind.shape.dim))


def _node(node: onnx.NodeProto, opsets: dict[str, int], opset: int) -> Node:
    import onnx

    op_type, domain = _text(node.op_type), _text(node.domain)
    domain = "" if domain in DOMAINS else domain
    version = opset if not domain else opsets.get(domain, 0)
    attributes: dict[str, Any] = {}
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        schema = None  # the operator is unknown, which its missing rule will say
    for name, one in schema.attributes.items() if schema else ():
        if one.default_value.type:
            attributes[name] = _attribute(one.default_value)
    attributes |= {_text(one.name): _attribute(one) for one in node.attribute}
    inputs, outputs = tuple(map(_text, node.input)), tuple(map(_text, node.output))
    return Node(op_type, _text(node.name), inputs, outputs, attributes, version, domain)


def _text(text: str | bytes) -> str:
    """A name; protobuf gives bytes for one that is not UTF-8."""
    return text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")


def _attribute(attribute: onnx.AttributeProto) -> Any:
    """An attribute's value; floats as the shortest decimal that is the same float32, so that 0.1 stays 0.1."""
    import numpy as np
    import onnx

    kinds = onnx.AttributeProto
    match attribute.type:
        case kinds.FLOAT:
            return float(str(np.float32(attribute.f)))
        case kinds.FLOATS:
            return [float(str(np.float32(value))) for value in attribute.floats]
        case kinds.INT:
            return attribute.i
        case kinds.INTS:
            return list(attribute.ints)
        case kinds.STRING:
            return attribute.s.decode()
        case kinds.TENSOR:
            return _numbers(attribute.t)
    return attribute  # subgraphs and the like: no rule takes them


def _wiring(model: Model) -> list[str]:
    """What is wrong with the names: read before they are made, made twice, never made."""
    wrong = []
    made = {*model.constants, *(one.name for one in model.inputs)}
    later = {name for node in model.nodes for name in node.outputs}
    for node in model.nodes:
        for name in node.inputs:
            if name and name not in made:
                what = (
                    "before it is made (the nodes are in no order, or run in a circle)"
                    if name in later
                    else "which nothing makes"
                )
                wrong.append(f"{node.describe()} reads `{name}`, {what}")
        for name in node.outputs:
            if name and name in made:
                wrong.append(f"{node.describe()} makes `{name}`, which exists already")
            made.add(name)
        made.update(name for name in node.inputs if name)  # each missing name is reported once
    wrong += [f"the output `{name}` is made by no node" for name in model.outputs if name not in made]
    if not model.outputs:
        wrong.append("the model has no outputs")
    return wrong
