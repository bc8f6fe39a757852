"""Fields of messages, parsed from the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from netspec.exchange.formats.caffe.proto.tables import ENUMS, NET, OLDER, SOLVER

Scalar = bool | int | float | str

INTEGERS = {"int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1)}
"""The smallest and the largest value of each integer type."""
FLOATS = {"float": 4, "double": 8}
"""Size of a value in bytes."""
SCALARS = (*INTEGERS, *FLOATS, "bool", "string")

_FIELD = re.compile(r"(\d+) (?:(packed|repeated) )?(\w+) (\w+)(?: = (\S+))?")


@dataclass(frozen=True)
class MessageField:
    """One field of a message."""

    number: int
    name: str
    type: str
    """A scalar's type, or the name of a message or an enum."""
    repeated: bool
    packed: bool
    """Written as one block of values; read in either form."""
    default: Scalar | None
    """Default value; None for repeated fields and messages."""

    @property
    def is_message(self) -> bool:
        """Whether the value is a nested message."""
        return self.type not in SCALARS and self.type not in enums()


@dataclass(frozen=True)
class MessageType:
    """One kind of message."""

    name: str
    fields: dict[str, MessageField]
    by_number: dict[int, MessageField] = field(repr=False)


@cache
def enums() -> dict[str, dict[str, int]]:
    """All enums: the numbers of their names."""
    return {
        name: {key: int(number) for key, number in re.findall(r"(\w+)=(\d+)", body)} for name, body in _parts(ENUMS)
    }


@cache
def kinds() -> dict[str, MessageType]:
    """All messages of Caffe by name."""
    return parse_kinds(NET + OLDER + SOLVER)


@cache
def own_param(type_: str) -> str:
    """The field of LayerParameter that contains the parameters of a type of layer."""
    message = f"{'Convolution' if type_ == 'Deconvolution' else type_}Parameter"
    return next(field.name for field in kinds()["LayerParameter"].fields.values() if field.type == message)


def parse_kinds(table: str) -> dict[str, MessageType]:
    """The messages in a table by name."""
    messages: dict[str, MessageType] = {}
    for name, body in _parts(table):
        lines = [" ".join(line.split()) for line in body.split(";") if line.strip()]
        fields = [_field(*_FIELD.fullmatch(line).groups()) for line in lines]  # type: ignore[union-attr]  # every line of the tables is one
        messages[name] = MessageType(
            name, {field.name: field for field in fields}, {field.number: field for field in fields}
        )
    return messages


def _parts(table: str) -> Iterator[tuple[str, str]]:
    """Each name of a table with the lines below it."""
    pieces = re.split(r"^(\w+):", table, flags=re.MULTILINE)
    return zip(pieces[1::2], pieces[2::2], strict=True)


def _field(number: str, label: str | None, kind: str, name: str, default: str | None) -> MessageField:
    return MessageField(
        int(number), name, kind, label is not None, label == "packed", None if label else _default(kind, default)
    )


def _default(kind: str, written: str | None) -> Scalar | None:
    """The value of a field that is not set: as written, else the default of protocol buffers for the type."""
    if kind == "bool":
        return written == "true"
    if kind in INTEGERS:
        return int(written or 0)
    if kind in FLOATS:
        return float(written or 0)
    if kind == "string":
        return written or ""
    if kind in enums():
        return written or next(iter(enums()[kind]))
    return None
