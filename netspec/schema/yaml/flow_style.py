"""Formats values as YAML on one line, as a person would write them: `{type: Conv2D, kernel_size: [3, 3]}`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from netspec.schema.yaml.scalars import looks_quoted, number

_PLAIN = re.compile(r"(?:[^\W\d]|[0-9./-])+(?::(?:[^\W\d]|[0-9./-])+)*\Z")
_YAML_1_1 = re.compile(
    r"yes|no|on|off"  # booleans
    r"|0b[01_]+|0x[0-9a-f_]+|[0-9][0-9_]*(:[0-9_]+)*(\.[0-9_]*)?(e-?[0-9]+)?|\.[0-9][0-9_]*"  # numbers, 12:30 is 750
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(t.*)?",  # dates
    re.IGNORECASE,
)
"""Plain texts that parsers of YAML 1.1, such as PyYAML, read as other types; YAML 1.2 reads most of them as texts."""


def flow(value: Any) -> str:
    """Format nested mappings, lists, texts, numbers, booleans and None."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return repr(value)
        case float():
            return number(value)
        case Mapping():
            return "{" + ", ".join(f"{_key(key)}: {flow(item)}" for key, item in value.items()) + "}"
        case Sequence() if not isinstance(value, str):
            return "[" + ", ".join(map(flow, value)) + "]"
    return plain(str(value))


def _key(key: str | int) -> str:
    return str(key) if isinstance(key, int) else plain(key)


def plain(text: str) -> str:
    """Format a text, without quotes if every YAML parser then reads the same text."""
    is_plain = _PLAIN.match(text) and text[0] != "-" and not looks_quoted(text) and not _YAML_1_1.fullmatch(text)
    return text if is_plain else double_quoted(text)


def double_quoted(text: str) -> str:
    """Format a text in double quotes, in which only characters are escaped that YAML requires or nobody sees."""
    return "".join(_visible(char) for char in json.dumps(text, ensure_ascii=False))


def _visible(char: str) -> str:
    code = ord(char)
    if 0x20 <= code < 0x7F or (code >= 0xA0 and char.isprintable()):
        return char
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def item(value: Mapping[str, Any], indent: int, width: int) -> list[str]:
    """Format an item of a list: on one line if it fits into `width`, else one line per key."""
    start = " " * indent
    line = f"{start}- {flow(value)}"
    if len(line) <= width:
        return [line]
    first, *rest = (f"{key}: {flow(field)}" for key, field in value.items())
    return [f"{start}- {first}", *(f"{start}  {text}" for text in rest)]
