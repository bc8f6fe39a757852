"""Recognize the message in a protocol-buffer file by its fields, without decoding it.

The wire format does not name the message (https://protobuf.dev/programming-guides/encoding/): a field is a number, a
wire type and a value. A file can contain a message if its fields have the wire types of that message, only repeated
fields occur more than once, and all required fields are present.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from io import BufferedReader
from pathlib import Path

from netspec.exchange.formats.caffe.proto.fields import FLOATS, MessageField, MessageType, kinds, parse_kinds

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
_WIDTHS = {EIGHT: 8, FOUR: 4}
MAX_FIELDS = 64
"""Number of fields of a message that are examined."""
MAX_DEPTH = 2
"""Depth of nested messages that are examined."""
MAX_TEXT = 64
"""Number of bytes of a string that are examined."""
_CONTROLS = bytes({*range(32), 127} - set(b"\t\n\r\f"))

ONNX = """
ModelProto:
    1 int64 ir_version; 2 string producer_name; 3 string producer_version; 4 string domain; 5 int64 model_version;
    6 string doc_string; 7 GraphProto graph; 8 repeated OperatorSetIdProto opset_import;
    14 repeated StringStringEntryProto metadata_props; 20 repeated TrainingInfoProto training_info;
    25 repeated FunctionProto functions;
GraphProto:
    1 repeated NodeProto node; 2 string name; 5 repeated TensorProto initializer; 10 string doc_string;
    11 repeated ValueInfoProto input; 12 repeated ValueInfoProto output; 13 repeated ValueInfoProto value_info;
    14 repeated TensorAnnotation quantization_annotation; 15 repeated SparseTensorProto sparse_initializer;
    16 repeated StringStringEntryProto metadata_props;
"""
"""The outer messages of onnx.proto, which suffice to recognize a model."""


class _Mismatch(Exception):
    """The bytes are not a message of the expected type."""


def is_onnx(head: bytes, path: Path) -> bool:
    """Whether a file is an ONNX model: a message with a graph, and the version of the format or of the operators."""
    numbers = fields_of(path, _onnx()["ModelProto"], _onnx())
    return 7 in numbers and not numbers.isdisjoint({1, 8})


def fields_of(path: Path, kind: MessageType, types: Mapping[str, MessageType]) -> frozenset[int]:
    """Numbers of the first fields of a file that contains a message of type `kind`; empty if it cannot be one.

    For a truncated file, these include the field within which it ends. `types` maps names to the types of nested
    messages.
    """
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(0)
            return frozenset(_Skimmer(file, types).message(kind, end, MAX_DEPTH))
    except (OSError, _Mismatch):
        return frozenset()


@cache
def _onnx() -> dict[str, MessageType]:
    return parse_kinds(ONNX)


class _Skimmer:
    """Reads the tags of a file, and skips the values."""

    def __init__(self, file: BufferedReader, types: Mapping[str, MessageType]) -> None:
        self.file, self.types = file, types

    def message(self, kind: MessageType, end: int, depth: int) -> Counter[int]:
        """Count the occurrences of each field up to the byte `end`. Raises `_Mismatch`."""
        counts: Counter[int] = Counter()
        for number, wire in self.tags(end):
            field = kind.by_number.get(number)
            counts[number] += 1
            if field is not None and (wire not in _wires(field) or (counts[number] > 1 and not field.repeated)):
                raise _Mismatch
            self.value(field, wire, end, depth)
        return counts

    def tags(self, end: int) -> Iterator[tuple[int, int]]:
        """Yield number and wire type of the first fields. The caller must skip each value before the next tag."""
        for _ in range(MAX_FIELDS):
            if self.file.tell() >= end:
                return
            tag = self.varint()
            if not tag >> 3:
                raise _Mismatch
            yield tag >> 3, tag & 7

    def value(self, field: MessageField | None, wire: int, end: int, depth: int) -> None:
        """Skip a value, after examining it if it is a string or a message."""
        if wire == VARINT:
            self.varint()
            return
        if wire != BYTES and wire not in _WIDTHS:
            raise _Mismatch
        size = self.varint() if wire == BYTES else _WIDTHS[wire]
        start = self.file.tell()
        inner = self.types.get(field.type) if field is not None and wire == BYTES else None
        if field is not None and field.type == "string":
            text = self.file.read(min(size, MAX_TEXT))
            if len(text.translate(None, _CONTROLS)) < len(text):
                raise _Mismatch
        elif inner is not None and depth:
            self.message(inner, min(start + size, end), depth - 1)
        self.file.seek(min(start + size, end))

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.file.read(1)
            if not byte:
                return value  # the file is truncated
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return value
        raise _Mismatch


@cache
def _wires(field: MessageField) -> tuple[int, ...]:
    """The wire types that a field may have; a repeated numeric field may be packed."""
    if field.type in FLOATS:
        plain = FOUR if FLOATS[field.type] == 4 else EIGHT
    elif field.is_message or field.type == "string":
        return (BYTES,)
    else:
        plain = VARINT
    return (plain, BYTES) if field.repeated else (plain,)


def caffe_fields(path: Path, kind: str) -> frozenset[int]:
    """Like `fields_of`, for a message of Caffe's."""
    return fields_of(path, kinds()[kind], kinds())
