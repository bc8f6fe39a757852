"""The wire format of protocol buffers, as far as Caffe's data files need it.

See https://protobuf.dev/programming-guides/encoding/. Whole nets are read by the protobuf library, which training does
not need (ADR 38).
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
_SIZES = {EIGHT: 8, FOUR: 4}


class NoMessage(ValueError):
    """The bytes are not a message of the expected type; the message says why."""


def fields_of(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field, in order: varints as integers, all others as bytes."""
    offset = 0
    while offset < len(message):
        tag, offset = varint_at(message, offset)
        value, offset = value_at(message, offset, tag & 7)
        yield tag >> 3, value


def value_at(view: memoryview, offset: int, kind: int) -> tuple[int | memoryview, int]:
    """Return the value of a field whose tag ends at `offset`, and the offset of its end."""
    if kind == VARINT:
        return varint_at(view, offset)
    if kind == BYTES:
        size, offset = varint_at(view, offset)
    elif kind in _SIZES:
        size = _SIZES[kind]
    else:
        raise NoMessage(f"a field of the unknown kind {kind} at byte {offset}")
    if size > len(view) - offset:
        raise NoMessage(f"a field of {size:,} bytes where {len(view) - offset:,} are left")
    return view[offset : offset + size], offset + size


def varint_at(view: memoryview, offset: int) -> tuple[int, int]:
    """Return a varint of up to ten bytes, seven bits in each, the lowest first, and the offset of its end."""
    value = 0
    for shift in range(0, 70, 7):
        if offset >= len(view):
            raise NoMessage("it ends within a number")
        byte = view[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), offset
    raise NoMessage("a number of more than ten bytes")
