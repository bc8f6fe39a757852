"""Messages → the text format of protocol buffers, as Caffe's own files are laid out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netspec.exchange.caffe.proto.fields import Field
from netspec.exchange.caffe.proto.message import Message

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def to_text(message: Message) -> str:
    """The fields that are set, each on a line, messages in braces. Unknown fields of binary files have no text."""
    return "".join(f"{line}\n" for line in _lines(message, ""))


def _lines(message: Message, indent: str) -> Iterator[str]:
    for name in message:
        field, value = message.field(name), message[name]
        for one in value if field.repeated else [value]:
            if isinstance(one, Message):
                inner = list(_lines(one, indent + "  "))
                yield from [f"{indent}{name} {{", *inner, f"{indent}}}"] if inner else [f"{indent}{name} {{}}"]
            else:
                yield f"{indent}{name}: {_scalar(field, one)}"


def _scalar(field: Field, value: Any) -> str:
    if field.type == "bool":
        return "true" if value else "false"
    if field.type == "string":
        return '"' + "".join(_escaped(char) for char in value) + '"'
    if field.type in ("float", "double"):
        return real(float(str(value)))
    return str(value)


def real(value: float) -> str:
    """A number as a person writes it: 1, 0.01, 1e-05."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e16 else repr(value)


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return char if char >= " " and char != "\x7f" else f"\\{ord(char):03o}"
