"""A message: its fields by name, and the offset of each in the text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.errors import Location
from netspec.exchange.formats.caffe.proto.fields import MessageField, kinds

NOWHERE = -1


@dataclass(frozen=True)
class MessageSource:
    """The file that messages are read from, with its text unless it is binary."""

    file: str
    text: str = ""

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(index + 1 for index, char in enumerate(self.text) if char == "\n")]

    def location(self, offset: int) -> Location | None:
        """Line and column of an offset in the text."""
        if offset < 0:
            return None
        line = bisect_right(self._starts, offset)
        start = self._starts[line - 1]
        end = self.text.find("\n", start)
        return Location(
            self.file, line, offset - start + 1, self.text[start : len(self.text) if end < 0 else end].rstrip()
        )


@dataclass(frozen=True)
class UnknownField:
    """A field that Caffe does not have."""

    name: str
    """Its name, or its number in a binary file."""
    offset: int = NOWHERE


class Message:
    """One message. `message["name"]` is the field's value, or its default if it is not set.

    Repeated fields are lists (arrays if they are packed in a binary file), nested messages are of this class, enums are
    names. Raises KeyError for a name that the tables do not have.
    """

    __slots__ = ("_offsets", "_values", "kind", "offset", "source", "unknown", "unknown_bytes")

    def __init__(self, kind: str, source: MessageSource | None = None, offset: int = NOWHERE, **values: Any) -> None:
        self.kind = kinds()[kind]
        self.source = source or MessageSource("")
        self.offset = offset
        self.unknown: list[UnknownField] = []
        self.unknown_bytes = b""
        """The unknown fields of a binary file, with their tags."""
        self._values: dict[str, Any] = {}
        self._offsets: dict[str, list[int]] = {}
        for name, value in values.items():
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        field = self.field(name)
        if field.repeated:
            return []
        return Message(field.type, self.source, self.offset) if field.is_message else field.default

    def __setitem__(self, name: str, value: Any) -> None:
        self.field(name)
        self._values[name] = value
        self._offsets.pop(name, None)

    def __delitem__(self, name: str) -> None:
        """Unset a field; nothing happens if it is not set."""
        self.field(name)
        self._values.pop(name, None)
        self._offsets.pop(name, None)

    def __contains__(self, name: str) -> bool:
        self.field(name)
        return name in self._values

    def get(self, name: str, default: Any) -> Any:
        """The field's value, or `default` if it is not set."""
        self.field(name)
        return self._values.get(name, default)

    def __iter__(self) -> Iterator[str]:
        """The names of the fields that are set, in the order in which they were set."""
        return iter(self._values)

    def __repr__(self) -> str:
        return f"{self.kind.name}({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def field(self, name: str) -> MessageField:
        """The definition of a field."""
        return self.kind.fields[name]

    def add(self, name: str, value: Any, offset: int = NOWHERE) -> None:
        """Set a field, or put a value at the end of a repeated one."""
        if self.field(name).repeated:
            self._values.setdefault(name, []).append(value)
        else:
            self._values[name] = value
        self._offsets.setdefault(name, []).append(offset)

    def put(self, name: str, value: Any) -> None:
        """Set a field, and keep its offset in the text."""
        self.field(name)
        self._values[name] = value

    def edit(self, name: str) -> Message:
        """The message in a field, set if it was not."""
        if name not in self._values:
            self._values[name] = Message(self.field(name).type, self.source, self.offset)
        message: Message = self._values[name]
        return message

    def array(self, name: str) -> NDArray[Any]:
        """A repeated field of numbers as an array: a view of the file's bytes if the field is packed."""
        kind = {"float": np.float32, "double": np.float64}.get(self.field(name).type, np.int64)
        return np.asarray(self[name], kind)

    def hand_over(self, name: str, to: Message, new_name: str) -> None:
        """Copy a field to another message, with its offsets in the text, under a name that may differ.

        A single value becomes the first of a repeated field; the values of a repeated one are appended.
        """
        values, offsets = self[name], self._offsets.get(name, [])
        for index, value in enumerate(values if self.field(name).repeated else [values]):
            to.add(new_name, value, offsets[index] if index < len(offsets) else self.offset)

    def copy(self) -> Message:
        """A deep copy of the message."""
        copied = Message(self.kind.name, self.source, self.offset)
        copied.unknown, copied.unknown_bytes = list(self.unknown), self.unknown_bytes
        copied._values = {name: _copied(value) for name, value in self._values.items()}
        copied._offsets = {name: list(offsets) for name, offsets in self._offsets.items()}
        return copied

    def location(self, name: str | None = None, index: int = 0) -> Location | None:
        """Position of a field (its `index`-th value if it is repeated), else of the message."""
        offsets = self._offsets.get(name, []) if name else []
        return self.source.location(offsets[index] if index < len(offsets) else self.offset)


def _copied(value: Any) -> Any:
    if isinstance(value, Message):
        return value.copy()
    return [_copied(item) for item in value] if isinstance(value, list) else value
