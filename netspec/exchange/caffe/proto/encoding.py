"""Messages → the wire format of protocol buffers, fields in the order of their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netspec.exchange.caffe.proto.fields import FLOATS, Field, enums
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.proto.wire import BYTES, EIGHT, FOUR, VARINT

_DTYPES = {"float": "<f4", "double": "<f8"}


def encode(message: Message) -> bytes:
    """The bytes of a message; unknown fields of a binary file come last, as they were."""
    return b"".join(_pieces(message))


def _pieces(message: Message) -> Iterator[bytes]:
    for field in sorted((message.field(name) for name in message), key=lambda one: one.number):
        value = message[field.name]
        if field.packed:
            yield from _delimited(field, _packed(field, value))
        else:
            for one in value if field.repeated else [value]:
                yield from _one(field, one)
    yield from (unknown.content for unknown in message.unknown)


def _one(field: Field, value: Any) -> Iterator[bytes]:
    if isinstance(value, Message):
        yield from _delimited(field, encode(value))
    elif field.type == "string":
        yield from _delimited(field, value.encode())
    elif field.type in FLOATS:
        yield _varint(field.number << 3 | (FOUR if field.type == "float" else EIGHT))
        yield _packed(field, [value])
    else:
        yield _varint(field.number << 3 | VARINT) + _whole(field, value)


def _packed(field: Field, values: Any) -> bytes:
    import numpy as np

    if field.type in FLOATS:
        return np.asarray(values, _DTYPES[field.type]).tobytes()
    return b"".join(_whole(field, one) for one in values)


def _whole(field: Field, value: Any) -> bytes:
    return _varint(enums()[field.type][value] if field.type in enums() else int(value))


def _delimited(field: Field, content: bytes) -> Iterator[bytes]:
    yield _varint(field.number << 3 | BYTES) + _varint(len(content))
    yield content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; numbers below zero as 64 bits."""
    value &= 2**64 - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
