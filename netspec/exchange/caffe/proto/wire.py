"""The wire format of protocol buffers (https://protobuf.dev/programming-guides/encoding/) → messages.

Packed floats stay where they are in the file's bytes: arrays are views of them. Nothing is allocated by what a file
declares, only by what it holds, and a file of countless tiny fields is refused. `data/wire.py` reads images in the same
format: the rooms do not import each other, and what they share is a loop of twenty lines (ADR 38).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError
from netspec.exchange.caffe.proto.fields import FLOATS, INTEGERS, Field, enums
from netspec.exchange.caffe.proto.message import Message, Source, Unknown
from netspec.exchange.files import LFS_POINTER, reading, sniff

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_FIELDS = 200_000
"""Fields of one file; those of weights count as one a blob. The largest nets have some ten thousand."""
MAX_UNKNOWN = 10_000
MAX_MERGED = 10_000
"""Messages that are given again, to be merged with what they were."""
MAX_NUMBERS = 1_000_000
"""Packed whole numbers of one field: sizes of axes, and the like."""

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
_SIZES = {EIGHT: 8, FOUR: 4}
_NAMES = {VARINT: "a whole number", EIGHT: "eight bytes", BYTES: "a run of bytes", FOUR: "four bytes"}
_DTYPES = {"float": "<f4", "double": "<f8"}


class Damaged(ValueError):
    """The bytes are no such message; the text says why."""


def read_binary(path: str | Path, kind: str, what: str) -> Message:
    """The message in a binary file; `what` says what the file should be. Raises `InputError`."""
    with reading(path, what) as (file, _):
        content = file.read()
    if content.startswith(LFS_POINTER):
        found, hint = sniff(content[:512])
        raise InputError(f"{path} is not {what}", expected=what, got=found, hint=hint)
    return decode(content, kind, str(path), what)


def decode(
    content: bytes | memoryview, kind: str, file: str = "the bytes", what: str = "a message of Caffe's"
) -> Message:
    """The message of a kind that the bytes hold. Raises `InputError`. Unknown fields are kept as they are."""
    view = memoryview(content)
    try:
        return _Decoder(Source(file)).message(Message(kind, Source(file)), view)
    except Damaged as error:
        found, hint = sniff(bytes(view[:512]))
        if found.startswith(("a file that begins", "probably a protobuf")):
            found, hint = str(error), "copy or download it again, if it is to be one"
        raise InputError(f"{file} is not {what}, or is damaged: {error}", expected=what, got=found, hint=hint) from None


class _Decoder:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.fields = self.unknown = self.merged = 0

    def message(self, into: Message, view: memoryview) -> Message:
        """The fields in the bytes, put into a message (which may have some already: then they are merged)."""
        place, end = 0, len(view)
        floats: dict[str, list[NDArray[Any]]] = {}
        while place < end:
            self.fields += 1
            if self.fields > MAX_FIELDS:
                raise Damaged(f"it holds more than {MAX_FIELDS:,} fields")
            start = place
            tag, place = varint(view, place)
            number, wire = tag >> 3, tag & 7
            field = into.kind.by_number.get(number)
            if wire == FOUR and field is not None and field.type == "float" and field.repeated:
                found, place = _unpacked(view, start, place - start)
                floats.setdefault(field.name, []).append(found)
                continue
            value, place = _value(view, place, wire, number)
            if field is None:
                self.unknown += 1
                if self.unknown > MAX_UNKNOWN:
                    raise Damaged(f"it holds more than {MAX_UNKNOWN:,} fields that Caffe does not know")
                into.unknown.append(Unknown(str(number), content=bytes(view[start:place])))
            elif field.type in FLOATS:
                floats.setdefault(field.name, []).append(_real(into, field, wire, value))
            else:
                self.put(into, field, wire, value, view[start:place])
        for name, pieces in floats.items():
            _join(into, into.field(name), pieces)
        return into

    def put(self, into: Message, field: Field, wire: int, value: int | memoryview, raw: memoryview) -> None:
        """Give a message the value of a field."""
        if field.is_message:
            fresh = field.repeated or field.name not in into
            self.merged += not fresh
            if self.merged > MAX_MERGED:
                raise Damaged(f"it gives messages again more than {MAX_MERGED:,} times")
            inner = Message(field.type, self.source) if fresh else into[field.name]
            found = self.message(inner, _run(into, field, wire, value))
            if fresh:
                into.add(field.name, found)
        elif field.type == "string":
            into.add(field.name, bytes(_run(into, field, wire, value)).decode("utf-8", errors="replace"))
        elif isinstance(value, memoryview):
            if not field.repeated or wire != BYTES:
                raise _wrong(into, field, wire)
            self._packed(into, field, value, raw)
        else:
            self._whole(into, field, value, raw)

    def _packed(self, into: Message, field: Field, value: memoryview, raw: memoryview) -> None:
        """Whole numbers in one run."""
        if len(value) > MAX_NUMBERS:
            raise Damaged(f"`{field.name}` of {into.kind.name} holds {len(value):,} bytes of numbers")
        place = 0
        while place < len(value):
            number, place = varint(value, place)
            self._whole(into, field, number, raw)

    def _whole(self, into: Message, field: Field, value: int, raw: memoryview) -> None:
        if field.type == "bool":
            into.add(field.name, value != 0)
        elif field.type in enums():
            name = next((name for name, number in enums()[field.type].items() if number == value), None)
            if name is None:  # as protocol buffers do with a value that a later version has
                self.unknown += 1
                into.unknown.append(Unknown(f"{field.name} = {value}", content=bytes(raw[:64])))
            else:
                into.add(field.name, name)
        else:
            least, most = INTEGERS[field.type]
            bits = 64 if most > 2**32 else 32
            value &= 2**bits - 1
            into.add(field.name, value - 2**bits if least < 0 and value > most else value)


def varint(view: memoryview, place: int) -> tuple[int, int]:
    """A whole number of up to ten bytes from `place` on, and where it ends. Raises `Damaged`."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(view):
            raise Damaged("it ends within a number")
        byte = view[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), place
    raise Damaged("a number has more than ten bytes")


def shortest(value: Any) -> float:
    """The number of the fewest digits that is this one as a float32: 0.1 instead of 0.10000000149."""
    return float(str(value))


def _value(view: memoryview, place: int, wire: int, number: int) -> tuple[int | memoryview, int]:
    """The value of a field whose tag ends at `place`, and where it ends."""
    if number == 0:
        raise Damaged("a field has the number 0")
    if wire == VARINT:
        return varint(view, place)
    if wire == BYTES:
        size, place = varint(view, place)
    elif wire in _SIZES:
        size = _SIZES[wire]
    else:
        raise Damaged(f"the field {number} is a group or of an unknown kind ({wire}), of which Caffe has none")
    if size > len(view) - place:
        raise Damaged(f"the field {number} has {size:,} bytes where {len(view) - place:,} are left")
    return view[place : place + size], place + size


def _unpacked(view: memoryview, start: int, width: int) -> tuple[NDArray[Any], int]:
    """Floats that each have the tag, from `start` on, all that follow each other, and where they end."""
    import numpy as np

    stride = width + 4
    rows = np.frombuffer(view[start : start + (len(view) - start) // stride * stride], np.uint8).reshape(-1, stride)
    head = np.frombuffer(view[start : start + width], np.uint8)
    count, step = 0, 1024  # in growing pieces, so that runs which alternate do not each look at all the rest
    while count < len(rows):
        others = np.flatnonzero((rows[count : count + step, :width] != head).any(axis=1))
        if len(others):
            count += int(others[0])
            break
        count = min(count + step, len(rows))
        step *= 2
    if not count:
        raise Damaged("it ends within a number")
    return np.ascontiguousarray(rows[:count, width:]).view("<f4").reshape(-1), start + stride * count


def _real(into: Message, field: Field, wire: int, value: int | memoryview) -> NDArray[Any]:
    """The numbers in a field of floats: one, or a run of them."""
    import numpy as np

    size = FLOATS[field.type]
    if isinstance(value, int) or not (_SIZES.get(wire) == size or (wire == BYTES and field.repeated)):
        raise _wrong(into, field, wire)
    if len(value) % size:
        raise Damaged(f"`{field.name}` of {into.kind.name} has {len(value):,} bytes, which are no {field.type}s")
    return np.frombuffer(value, _DTYPES[field.type])


def _join(into: Message, field: Field, pieces: list[NDArray[Any]]) -> None:
    """Set a field of floats: a repeated one to all the pieces, another one to the last."""
    import numpy as np

    if not field.repeated:
        into[field.name] = shortest(pieces[-1][0])
    elif len(pieces) == 1 and field.name not in into:
        into[field.name] = pieces[0]
    else:
        into[field.name] = np.concatenate([into.array(field.name), *pieces])


def _run(into: Message, field: Field, wire: int, value: int | memoryview) -> memoryview:
    if wire != BYTES or isinstance(value, int):
        raise _wrong(into, field, wire)
    return value


def _wrong(into: Message, field: Field, wire: int) -> Damaged:
    return Damaged(f"`{field.name}` of {into.kind.name} is written as {_NAMES.get(wire, 'something else')}")
