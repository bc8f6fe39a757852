"""Messages of the Open Inference Protocol, version 2, over HTTP, with its extension for binary tensors.

https://github.com/kserve/open-inference-protocol and Triton's extension_binary_data.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.errors import listing
from netspec.schema.plain_json import json_text
from netspec.tools.serving.errors import RequestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

DATATYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
    "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64",
}  # fmt: skip
"""Types of elements by their names in the protocol."""
NAMES = {dtype: name for name, dtype in DATATYPES.items()}
HEADER_LENGTH = "Inference-Header-Content-Length"
"""Header with the length of the JSON part of a message with binary tensors."""


@dataclass(frozen=True)
class InferRequest:
    """A request to compute outputs."""

    arrays: dict[str, Array]
    """The tensors by the names of the inputs."""
    outputs: dict[str, bool]
    """The outputs to return, all if empty, and whether each is sent as binary data."""
    binary: bool
    """Whether outputs without a choice of their own are sent as binary data."""
    id: str | None = None


def parse_json(body: bytes) -> Any:
    """Return the content of a JSON text. Raises `RequestError` 400 if it is not valid."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RequestError(400, f"the body is not valid JSON: {reason}") from None


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON value")


def parse_infer(body: bytes, header_length: str | None) -> InferRequest:
    """Read an inference request. `header_length` is the value of the header of the same meaning, if it was sent."""
    length = len(body) if header_length is None else _length(header_length, len(body))
    message = parse_json(body[:length])
    if not isinstance(message, dict):
        raise RequestError(400, 'the body must be an object such as {"inputs": […]}')
    inputs = message.get("inputs")
    if not isinstance(inputs, list) or not inputs or not all(isinstance(tensor, dict) for tensor in inputs):
        raise RequestError(400, '"inputs" must be a list of at least one tensor')
    arrays: dict[str, Array] = {}
    remaining = memoryview(body)[length:]
    for tensor in inputs:
        name, array, remaining = _tensor(tensor, remaining)
        if name in arrays:
            raise RequestError(400, f"the input `{name}` occurs twice")
        arrays[name] = array
    if len(remaining):
        raise RequestError(400, f"{len(remaining)} bytes follow the last binary tensor")
    binary = _parameters(message).get("binary_data_output") is True
    identity = message.get("id")
    return InferRequest(arrays, _outputs(message, binary), binary, identity if isinstance(identity, str) else None)


def _length(text: str, available: int) -> int:
    length = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= length <= available:
        raise RequestError(
            400, f"{HEADER_LENGTH} must be between 0 and {available}, the length of the body, got {text}"
        )
    return length


def _parameters(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = entry.get("parameters", {})
    if not isinstance(parameters, dict):
        raise RequestError(400, '"parameters" must be an object')
    return parameters


def _outputs(message: Mapping[str, Any], binary: bool) -> dict[str, bool]:
    outputs = message.get("outputs", [])
    if not isinstance(outputs, list) or not all(
        isinstance(output, dict) and isinstance(output.get("name"), str) for output in outputs
    ):
        raise RequestError(400, '"outputs" must be a list of objects such as {"name": "logits"}')
    return {output["name"]: _parameters(output).get("binary_data", binary) is True for output in outputs}


def _tensor(tensor: Mapping[str, Any], remaining: memoryview) -> tuple[str, Array, memoryview]:
    """Return name and content of an input, and the binary data after its own."""
    name, shape, datatype = tensor.get("name"), tensor.get("shape"), tensor.get("datatype")
    if not isinstance(name, str):
        raise RequestError(400, "an input has no name")
    if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 2**40 for size in shape):
        raise RequestError(400, f"the shape of `{name}` must be a list of sizes, got {json_text(shape)[:100]}")
    if datatype not in DATATYPES:
        raise RequestError(
            400, f"the datatype of `{name}` must be one of {listing([*DATATYPES])}, got {json_text(datatype)[:100]}"
        )
    dtype, elements = np.dtype(DATATYPES[datatype]).newbyteorder("<"), prod(shape)
    size = _parameters(tensor).get("binary_data_size")
    if size is None:
        return name, _from_json(name, tensor.get("data"), dtype, shape), remaining
    if type(size) is not int or size != elements * dtype.itemsize or size > len(remaining):
        raise RequestError(
            400,
            f"binary_data_size of `{name}` must be {elements * dtype.itemsize}, the bytes of {datatype} {shape}, and "
            f"{len(remaining)} bytes are left in the body; got {json_text(size)[:100]}",
        )
    return name, np.frombuffer(remaining[:size], dtype).reshape(shape), remaining[size:]


def _from_json(name: str, data: Any, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
    """Return the elements of a list, which may be nested like the shape or flat."""
    if not isinstance(data, list):
        raise RequestError(400, f'"data" of `{name}` must be a list of elements')
    try:
        values = np.asarray(data)
    except (ValueError, OverflowError, RecursionError):
        raise RequestError(400, f'"data" of `{name}` has rows of different lengths') from None
    if values.size != prod(shape):
        raise RequestError(400, f"`{name}` has {values.size} elements, but its shape {list(shape)} has {prod(shape)}")
    kinds = "b" if dtype.kind == "b" else "iu" if dtype.kind in "iu" else "iuf"
    if values.size and values.dtype.kind not in kinds:
        raise RequestError(
            400, f"elements of `{name}` are not all of the datatype {NAMES[dtype.newbyteorder('=').name]}"
        )
    with np.errstate(over="ignore"):
        converted = values.astype(dtype).reshape(shape)
    if dtype.kind in "iu" and not np.array_equal(converted.ravel(), values.ravel()):
        raise RequestError(400, f"elements of `{name}` are outside the range of {NAMES[dtype.newbyteorder('=').name]}")
    return converted


def infer_response(
    model: str, version: str, request: InferRequest, outputs: Mapping[str, Array]
) -> tuple[bytes, int | None]:
    """Return the body of a response, and the length of its JSON part if binary tensors follow.

    Raises `RequestError` 400 if an output was requested that does not exist.
    """
    unknown = [name for name in request.outputs if name not in outputs]
    if unknown:
        raise RequestError(400, f"the model has no output `{unknown[0]}`; it has {listing(list(outputs))}")
    tensors, blobs = [], []
    for name in request.outputs or outputs:
        array = np.ascontiguousarray(outputs[name])
        array = array if array.dtype.name in NAMES else array.astype(np.float32)
        tensor: dict[str, Any] = {"name": name, "datatype": NAMES[array.dtype.name], "shape": list(array.shape)}
        if request.outputs.get(name, request.binary):
            blobs.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
            tensor["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            tensor["data"] = array.ravel().tolist()
        tensors.append(tensor)
    identity = {} if request.id is None else {"id": request.id}
    message = {"model_name": model, "model_version": version, **identity, "outputs": tensors}
    header = json_text(message).encode()
    return b"".join([header, *blobs]), len(header) if blobs else None
