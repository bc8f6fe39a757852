"""Caffe's `Datum`, the message in its LMDBs: one image with its label, in the wire format of protocol buffers.

The fields are those of caffe.proto: channels 1, height 2, width 3, data 4 (bytes), label 5, float_data 6 (repeated
float, packed or not), encoded 7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netspec.data.base import Array
from netspec.data.readers.protobuf_wire import FOUR, NoMessage, value_at, varint_at

_FLOAT_TAG = 6 << 3 | FOUR
_NUMBERS = {1: "channels", 2: "height", 3: "width", 5: "label", 7: "encoded"}


@dataclass
class Datum:
    """One message. Its arrays are views of the bytes it was read from."""

    channels: int = 0
    height: int = 0
    width: int = 0
    label: int = 0
    encoded: int = 0
    data: bytes | memoryview = b""
    floats: Array | None = None

    def pixels(self) -> Array:
        """Return the values, (channels, height, width) of uint8 or float32. Raises NoMessage if their count differs."""
        shape = (self.channels, self.height, self.width)
        values = np.frombuffer(self.data, np.uint8) if self.floats is None else self.floats
        if min(shape) < 1 or values.size != shape[0] * shape[1] * shape[2]:
            raise NoMessage(f"{values.size:,} numbers for {' × '.join(map(str, shape))}")
        return values.reshape(shape)


def parse_datum(message: bytes | bytearray | memoryview) -> Datum:
    """Parse a Datum. Fields unknown to Caffe are skipped. Raises NoMessage for invalid bytes."""
    datum, view, offset = Datum(), memoryview(message), 0
    pieces: list[Array] = []
    while offset < len(view):
        tag, after = varint_at(view, offset)
        number, kind = tag >> 3, tag & 7
        if tag == _FLOAT_TAG:
            floats, offset = _unpacked_floats(view, offset)
            pieces.append(floats)
            continue
        value, offset = value_at(view, after, kind)
        if isinstance(value, int):
            if number in _NUMBERS:
                setattr(datum, _NUMBERS[number], _signed(value))
        elif number == 4:
            datum.data = value
        elif number == 6:
            if len(value) % 4:
                raise NoMessage(f"{len(value)} bytes of floats")
            pieces.append(np.frombuffer(value, "<f4"))
    if pieces:
        datum.floats = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return datum


def _signed(value: int) -> int:
    """Return the int32 in a varint, which extends negative values to 64 bits."""
    value &= 2**32 - 1
    return value - 2**32 if value >= 2**31 else value


def _unpacked_floats(view: memoryview, offset: int) -> tuple[Array, int]:
    """Return consecutive unpacked floats from `offset` on, each a tag and four bytes, and the offset of their end."""
    rows = np.frombuffer(view[offset : offset + (len(view) - offset) // 5 * 5], np.uint8).reshape(-1, 5)
    others = np.flatnonzero(rows[:, 0] != _FLOAT_TAG)
    count = int(others[0]) if len(others) else len(rows)
    if not count:
        raise NoMessage("it ends within a number")
    return np.ascontiguousarray(rows[:count, 1:]).view("<f4").reshape(-1), offset + 5 * count
