"""Binary messages, read and written by the protobuf library that onnx brings; its descriptors come from our tables.

To the library, a nested message is a field of bytes, which is parsed after its parent. So the number of fields is
checked before there are objects for them (two bytes can make a layer), a message in several pieces is merged by joining
them, and packed floats become arrays without a Python number for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from netspec.errors import InputError
from netspec.exchange.files import LFS_POINTER, reading, sniff
from netspec.exchange.formats.caffe.proto.fields import FLOATS, MessageField, enums, kinds
from netspec.exchange.formats.caffe.proto.message import Message, MessageSource, UnknownField

MAX_FIELDS = 200_000
"""Number of fields of a file; the weights of a blob count as one. The largest nets have some ten thousand."""
MAX_UNKNOWN = 10_000
MAX_NUMBERS = 1_000_000
"""Number of integers of one field, such as the sizes of axes."""
_WIRE_TYPES = {0: "an integer", 1: "eight bytes", 2: "bytes", 3: "a group", 5: "four bytes"}
_DTYPES = {"float": "<f4", "double": "<f8"}


class _Damaged(ValueError):
    """The bytes are not a message of the expected type; the text gives the reason."""


def read_binary(path: str | Path, kind: str, expected: str) -> Message:
    """Read the message of type `kind` in a binary file; `expected` describes the file. Raises `InputError`."""
    with reading(path, expected) as (file, _):
        content = file.read()
    if content.startswith(LFS_POINTER):
        got, hint = sniff(content[:512])
        raise InputError(f"{path} is not {expected}", expected=expected, got=got, hint=hint)
    return decode(content, kind, str(path), expected)


def decode(content: bytes, kind: str, file: str = "the bytes", expected: str = "a message of Caffe's") -> Message:
    """Decode a message of type `kind`; its unknown fields are kept. Raises `InputError`."""
    try:
        return _Decoder(MessageSource(file)).message(kind, content)
    except _Damaged as error:
        got, hint = sniff(content[:512])
        if got.startswith("a file that begins"):
            got, hint = str(error), "copy or download the file again"
        raise InputError(
            f"{file} is not {expected}, or is damaged: {error}", expected=expected, got=got, hint=hint
        ) from None


def encode(message: Message) -> bytes:
    """The bytes of a message, its fields in the order of their numbers; unknown fields come last."""
    raw = _classes()[message.kind.name]()
    for name in message:
        field, value = message.field(name), message[name]
        if field.packed and field.type in FLOATS:
            getattr(raw, name).append(message.array(name).astype(_DTYPES[field.type], copy=False).tobytes())
        elif field.repeated or field.is_message:
            getattr(raw, name).extend(_raw_value(field, item) for item in (value if field.repeated else [value]))
        else:
            setattr(raw, name, _raw_value(field, value))
    return bytes(raw.SerializeToString() + message.unknown_bytes)


def _raw_value(field: MessageField, value: Any) -> Any:
    """A value in the form that the library accepts."""
    if field.is_message:
        return encode(value)
    if field.type == "string":
        return value.encode()
    return enums()[field.type][value] if field.type in enums() else value


@cache
def _classes(*, single_floats: bool = False) -> dict[str, Any]:
    """The library's message classes; `single_floats` for files that have a tag before each float of a packed field."""
    file = FileDescriptorProto(name=f"caffe_{single_floats}.proto", package="netspec.caffe", syntax="proto2")
    for kind in kinds().values():
        message = file.message_type.add(name=kind.name)
        for field in kind.fields.values():
            packed_floats = field.packed and field.type in FLOATS and not single_floats
            repeated = field.repeated or field.is_message
            message.field.add(
                name=field.name, number=field.number, type=_library_type(field, as_bytes=packed_floats),
                label=FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL,
            )  # fmt: skip
            if field.packed and not packed_floats:
                message.field[-1].options.packed = True
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"netspec.caffe.{name}")) for name in kinds()}


def _library_type(field: MessageField, *, as_bytes: bool) -> Any:
    if as_bytes or field.is_message or field.type == "string":
        return FieldDescriptorProto.TYPE_BYTES
    if field.type in enums():
        return FieldDescriptorProto.TYPE_INT32
    return FieldDescriptorProto.Type.Value(f"TYPE_{field.type.upper()}")


class _Decoder:
    """Decodes the messages of one file, and counts their fields."""

    def __init__(self, source: MessageSource) -> None:
        self.source = source
        self.fields = self.unknown = 0

    def message(self, kind: str, content: bytes) -> Message:
        """The message of type `kind` in the bytes. Raises `_Damaged`."""
        into = Message(kind, self.source)
        raw = self._parse(into, content)
        for descriptor, value in raw.ListFields():
            field = into.field(descriptor.name)
            count = len(value) if field.repeated or field.is_message else 1
            if not field.is_message and field.type != "string":
                if count > MAX_NUMBERS and not (field.packed and field.type in FLOATS):
                    raise _Damaged(f"`{field.name}` of {kind} has more than {MAX_NUMBERS:,} values")
                count = 1
            self.fields += count
            if self.fields > MAX_FIELDS:
                raise _Damaged(f"it has more than {MAX_FIELDS:,} fields")
            self._set(into, field, value)
        return into

    def _parse(self, into: Message, content: bytes) -> Any:
        """The library's message; its unknown fields are moved to ours."""
        kind = into.kind
        try:
            raw = _classes()[kind.name].FromString(content)
            unknown = UnknownFieldSet(raw)
            if any(_is_single_float(kind.by_number.get(field.field_number), field.wire_type) for field in unknown):
                raw = _classes(single_floats=True)[kind.name].FromString(content)
                unknown = UnknownFieldSet(raw)
        except DecodeError:
            raise _Damaged(f"its {kind.name} is truncated or invalid") from None
        self.unknown += len(unknown)
        if self.unknown > MAX_UNKNOWN:
            raise _Damaged(f"it has more than {MAX_UNKNOWN:,} fields that Caffe does not have")
        for field in unknown:
            declared = kind.by_number.get(field.field_number)
            if declared is not None:
                raise _Damaged(f"`{declared.name}` of {kind.name} is written as {_WIRE_TYPES.get(field.wire_type)}")
            into.unknown.append(UnknownField(str(field.field_number)))
        if into.unknown:
            unknown_fields = type(raw).FromString(content)
            for descriptor, _ in unknown_fields.ListFields():
                unknown_fields.ClearField(descriptor.name)
            into.unknown_bytes = unknown_fields.SerializeToString()
        return raw

    def _set(self, into: Message, field: MessageField, value: Any) -> None:
        """Set a field to a value of the library."""
        if field.packed and field.type in FLOATS:
            into[field.name] = _packed_floats(into, field, value)
        elif field.is_message:
            pieces = value if field.repeated else [b"".join(value)]
            into[field.name] = _one_or_all(field, [self.message(field.type, piece) for piece in pieces])
        else:
            values = list(value) if field.repeated else [value]
            if field.type == "string":
                values = [item.decode("utf-8", errors="replace") for item in values]
            elif field.type in FLOATS:
                values = [shortest(item, field) for item in values]
            elif field.type in enums():
                names = {number: name for name, number in enums()[field.type].items()}
                into.unknown += [UnknownField(f"{field.name} = {item}") for item in values if item not in names]
                values = [names[item] for item in values if item in names]
            if values:
                into[field.name] = _one_or_all(field, values)


def _is_single_float(field: MessageField | None, wire_type: int) -> bool:
    """Whether an unknown field is a float with its own tag, of a field that is packed in the tables."""
    return field is not None and field.packed and {"float": 5, "double": 1}.get(field.type) == wire_type


def _one_or_all(field: MessageField, values: Sequence[Any]) -> Any:
    return values if field.repeated else values[-1]


def _packed_floats(into: Message, field: MessageField, value: Any) -> Any:
    """The array of a packed field, whose value is bytes, in one piece or several, or floats."""
    if not isinstance(value[0], bytes):
        return np.fromiter(value, _DTYPES[field.type], len(value))
    content = value[0] if len(value) == 1 else b"".join(value)
    if len(content) % FLOATS[field.type]:
        raise _Damaged(f"`{field.name}` of {into.kind.name} has {len(content):,} bytes, which are not {field.type}s")
    return np.frombuffer(content, _DTYPES[field.type])


def shortest(value: float, field: MessageField) -> float:
    """The number with the fewest digits that is the same float32: 0.1 instead of 0.10000000149."""
    return float(str(np.float32(value))) if field.type == "float" else value
