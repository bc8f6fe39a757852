"""Where each value of a spec comes from, and the spec written out in full with that beside every line."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from netspec.errors import Location
from netspec.schema.interpolation import escaped
from netspec.schema.paths import FilePath, absolute
from netspec.schema.python_data import PYTHON
from netspec.schema.scalars import number, resolve
from netspec.schema.spec import Spec
from netspec.schema.tree import Map, Seq

DEFAULT = "default"

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./]*(?:[ -]+[A-Za-z0-9_./]+)*\Z")
_COMMENT_COLUMN = 44


def origin(spec: Spec, field: str) -> str:
    """Where a field's value (by its YAML name) comes from: `default`, `train.yaml:12`, `command line`, `python`."""
    name = next(name for name, info in type(spec).model_fields.items() if field in (name, info.alias))
    if name not in spec.model_fields_set:
        return DEFAULT
    tree = spec.written
    return _words(tree.value_at[field] if tree is not None and field in tree else None)


def _words(place: Location | None) -> str:
    if place is None or place.file == PYTHON:
        return "python"
    if place.file.startswith("<"):
        return place.file.strip("<>")
    lines = [f"{one.file}:{one.line}" for one in (place, *(call.place for call in place.calls))]
    return " ← ".join(dict.fromkeys(lines))


def resolved_yaml(spec: Spec) -> str:
    """The spec as one YAML document: the net inline, expressions evaluated, defaults filled in, absolute file paths.

    Each line ends with a comment that says where its value comes from. Reading it gives an equal spec.
    """
    writer = _Writer()
    writer.spec(spec, 0, None)
    return "".join(f"{text:<{_COMMENT_COLUMN}}  # {comment}\n" for text, comment in writer.lines)


def canonical_yaml(spec: Spec) -> str:
    """As `resolved_yaml`, without the comments: the same text wherever and however the spec was written."""
    writer = _Writer()
    writer.spec(spec, 0, None)
    return "".join(f"{text}\n" for text, _ in writer.lines)


def spec_sha256(spec: Spec) -> str:
    """A fingerprint of what a spec says: of its `canonical_yaml`."""
    return hashlib.sha256(canonical_yaml(spec).encode()).hexdigest()


class _Writer:
    """Collects lines and the comment of each. `place` is where the value was written; None for none."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def spec(self, spec: Spec, indent: int, place: Location | None, inherited: str | None = None) -> None:
        """The fields of a spec; `inherited` is the comment for those of a spec that was not written as a mapping."""
        tree = spec.written
        for key, name in _ordered(spec):
            value = getattr(spec, name)
            if name not in spec.model_fields_set:
                if value != "":  # stands for `none given`, and names may not be empty
                    self._entry(f"{key}:", value, None, indent, None, DEFAULT)
                continue
            at = tree.value_at[key] if tree is not None and key in tree else None
            comment = _words(at) if at is not None else inherited or _words(place)
            self._entry(f"{key}:", value, tree.get(key) if tree else None, indent, at or place, comment)

    def _entry(self, head: str, value: Any, raw: Any, indent: int, place: Location | None, comment: str) -> None:
        """One `key:` or `-` with its value; `raw` is the part of the document that the value was made from."""
        start = " " * indent + head
        if _is_flow(value):
            self.lines.append((f"{start} {_flow(value, place)}", comment))
            return
        if head != "-":
            self.lines.append((start, comment))
        first = len(self.lines)
        below = indent + 2
        if isinstance(value, Spec):
            self.spec(value, below, place, comment)
        elif isinstance(value, Mapping):
            for key, item in ((str(key), item) for key, item in value.items()):  # a document's keys are texts
                at = raw.value_at[key] if isinstance(raw, Map) and key in raw else None
                self._inside(f"{_text(key)}:", item, raw[key] if at is not None else None, below, (at, place, comment))
        else:
            for index, item in enumerate(value):
                at = raw.value_at[index] if isinstance(raw, Seq) and len(raw) == len(value) else None
                self._inside("-", item, raw[index] if at is not None else None, below, (at, place, comment))
        if head == "-":  # the first line of an item stands beside its dash
            text, own = self.lines[first]
            self.lines[first] = (f"{start} {text.lstrip()}", own)

    def _inside(
        self, head: str, item: Any, raw: Any, indent: int, origins: tuple[Location | None, Location | None, str]
    ) -> None:
        at, place, comment = origins
        self._entry(head, item, raw, indent, at or place, _words(at) if at is not None else comment)


def _ordered(spec: Spec) -> Iterable[tuple[str, str]]:
    """YAML name and attribute of each field; what a reader looks for first comes first."""
    names = {info.alias or name: name for name, info in type(spec).model_fields.items() if not info.exclude}
    front = [key for key in ("netspec", "type", "source", "name") if key in names]
    return [(key, names[key]) for key in (*front, *(key for key in names if key not in front))]


def _is_flow(value: Any) -> bool:
    """Whether a value is written on one line: a scalar, something empty, or a list of such."""
    if isinstance(value, Spec):
        return not type(value).model_fields
    if isinstance(value, Mapping):
        return not value
    if isinstance(value, (list, tuple)):
        return all(_is_flow(item) for item in value)
    return True


def _flow(value: Any, place: Location | None) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_flow(item, place) for item in value)}]"
    if isinstance(value, (Mapping, Spec)):
        return "{}"
    if isinstance(value, FilePath):
        return _text(escaped(str(absolute(value, place))))
    return _scalar(value)


def _scalar(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return number(value)
        case str():
            return _text(escaped(value))
    raise TypeError(f"{value!r} can't be written in YAML")


def _text(text: str) -> str:
    """A text, quoted where it would be read as something else."""
    if _PLAIN.match(text) and isinstance(resolve(text), str):
        return text
    return "".join(_visible(char) for char in json.dumps(text, ensure_ascii=False))


def _visible(char: str) -> str:
    """A character of a double-quoted text, escaped where YAML does not take it as it is."""
    code = ord(char)
    if 0x20 <= code < 0x7F or (code >= 0xA0 and char.isprintable()):
        return char
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
