"""The wire format of protocol buffers, as far as Caffe's data files need it.

See https://protobuf.dev/programming-guides/encoding/. Whole nets are read by the protobuf library, which training does
not need (ADR 38).
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
_SIZES = {EIGHT: 8, FOUR: 4}


class NoMessage(ValueError):
    """The bytes are not a message of the expected type; the text says why."""


def fields_of(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The number and the value of each field, in order: numbers as they are coded, all others as bytes."""
    place = 0
    while place < len(message):
        tag, place = varint_at(message, place)
        value, place = value_at(message, place, tag & 7)
        yield tag >> 3, value


def value_at(view: memoryview, place: int, kind: int) -> tuple[int | memoryview, int]:
    """The value of a field whose tag ends at `place`, and where it ends."""
    if kind == VARINT:
        return varint_at(view, place)
    if kind == BYTES:
        size, place = varint_at(view, place)
    elif kind in _SIZES:
        size = _SIZES[kind]
    else:
        raise NoMessage(f"a field of the unknown kind {kind} at byte {place}")
    if size > len(view) - place:
        raise NoMessage(f"a field of {size:,} bytes where {len(view) - place:,} are left")
    return view[place : place + size], place + size


def varint_at(view: memoryview, place: int) -> tuple[int, int]:
    """A number of up to ten bytes, seven bits in each, the lowest first."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(view):
            raise NoMessage("it ends within a number")
        byte = view[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), place
    raise NoMessage("a number of more than ten bytes")
