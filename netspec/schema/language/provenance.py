"""The origin of each value of a spec, and the resolved spec with the origin at the end of each line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from netspec.errors import Location
from netspec.schema.language.interpolation import escaped
from netspec.schema.specs.paths import FilePath, absolute
from netspec.schema.specs.spec import Spec
from netspec.schema.yaml.flow_style import double_quoted
from netspec.schema.yaml.python_data import PYTHON
from netspec.schema.yaml.scalars import number, resolve
from netspec.schema.yaml.tree import Map, Seq

DEFAULT = "default"

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./]*(?:[ -]+[A-Za-z0-9_./]+)*\Z")
_COMMENT_COLUMN = 44
_MARK = "  # "


def _nothing(_: Location) -> None:
    """Return None: no origin is known other than the location itself."""


def origin(spec: Spec, field: str) -> str:
    """Return the origin of a field, by its YAML name: `default`, `train.yaml:12`, `command line` or `python`."""
    name = next(name for name, info in type(spec).model_fields.items() if field in (name, info.alias))
    if name not in spec.model_fields_set:
        return DEFAULT
    tree = spec.written
    return _describe_origin(tree.value_at[field] if tree is not None and field in tree else None)


def _describe_origin(location: Location | None) -> str:
    if location is None or location.file == PYTHON:
        return "python"
    if location.file.startswith("<"):
        return location.file.strip("<>")
    lines = [f"{origin.file}:{origin.line}" for origin in (location, *(call.location for call in location.calls))]
    return " ← ".join(dict.fromkeys(lines))


def resolved_yaml(spec: Spec, key_origin: Callable[[Location], str | None] = _nothing) -> str:
    """Format the spec as one YAML document: net inline, expressions evaluated, defaults filled in, absolute paths.

    Each line ends with a comment that names the origin of its value: the result of `key_origin` for the location of its
    key, or if that is None, the location of its value. Loading the document gives an equal spec.
    """
    writer = _Writer(key_origin)
    writer.spec(spec, 0, None)
    return "".join(f"{text:<{_COMMENT_COLUMN}}{_MARK}{comment}\n" for text, comment in writer.lines)


def origin_in_comment(location: Location) -> str | None:
    """Return the origin that a line of a resolved spec names for its value; None if it names none."""
    return location.text.rpartition(_MARK)[2].strip() if _MARK in location.text else None


def canonical_yaml(spec: Spec) -> str:
    """Format like `resolved_yaml` without comments: equal specs give the same text."""
    writer = _Writer()
    writer.spec(spec, 0, None)
    return "".join(f"{text}\n" for text, _ in writer.lines)


def spec_sha256(spec: Spec) -> str:
    """Return the SHA-256 of the `canonical_yaml` of a spec."""
    return hashlib.sha256(canonical_yaml(spec).encode()).hexdigest()


class _Writer:
    """Collects lines and the comment of each. `location` is the location of the value, None if it has none."""

    def __init__(self, key_origin: Callable[[Location], str | None] = _nothing) -> None:
        self.lines: list[tuple[str, str]] = []
        self._key_origin = key_origin

    def _origin(self, tree: Map | Seq, step: Any) -> str:
        """Return the origin of a value of a document."""
        key_at: Mapping[Any, Location] = tree.key_at if isinstance(tree, Map) else {}
        at = tree.value_at[step]
        return self._key_origin(key_at.get(step, at)) or _describe_origin(at)

    def spec(self, spec: Spec, indent: int, location: Location | None, inherited: str | None = None) -> None:
        """Add the fields of a spec; `inherited` is their comment if the spec was not written as a mapping."""
        tree = spec.written
        for key, name in _ordered(spec):
            value = getattr(spec, name)
            if name not in spec.model_fields_set:
                if value != "":  # "" means that a name is not set
                    self._entry(f"{key}:", value, None, indent, None, DEFAULT)
                continue
            within = tree if tree is not None and key in tree else None
            self._child(f"{key}:", value, within, key, indent, location, inherited or _describe_origin(location))

    def _entry(self, head: str, value: Any, raw: Any, indent: int, location: Location | None, comment: str) -> None:
        """Add one `key:` or `-` with its value; `raw` is the part of the document that the value was created from."""
        start = " " * indent + head
        if _is_flow(value):
            self.lines.append((f"{start} {_flow(value, location)}", comment))
            return
        if head != "-":
            self.lines.append((start, comment))
        first = len(self.lines)
        below = indent + 2
        if isinstance(value, Spec):
            self.spec(value, below, location, comment)
        elif isinstance(value, Mapping):
            for key, item in ((str(key), item) for key, item in value.items()):  # a document's keys are texts
                within: Map | Seq | None = raw if isinstance(raw, Map) and key in raw else None
                self._child(f"{_text(key)}:", item, within, key, below, location, comment)
        else:
            for index, item in enumerate(value):
                within = raw if isinstance(raw, Seq) and len(raw) == len(value) else None
                self._child("-", item, within, index, below, location, comment)
        if head == "-":  # the first line of an item follows its dash
            text, origin = self.lines[first]
            self.lines[first] = (f"{start} {text.lstrip()}", origin)

    def _child(
        self, head: str, item: Any, within: Any, step: Any, indent: int, location: Location | None, comment: str
    ) -> None:
        """Add one entry of a mapping or a sequence; `within` is its container in the document, if there is one."""
        if within is None:
            self._entry(head, item, None, indent, location, comment)
        else:
            self._entry(head, item, within[step], indent, within.value_at[step], self._origin(within, step))


def _ordered(spec: Spec) -> Iterable[tuple[str, str]]:
    """Return YAML name and attribute of each field, the fields that identify the spec first."""
    names = {info.alias or name: name for name, info in type(spec).model_fields.items() if not info.exclude}
    front = [key for key in ("netspec", "type", "source", "name") if key in names]
    return [(key, names[key]) for key in (*front, *(key for key in names if key not in front))]


def _is_flow(value: Any) -> bool:
    """Whether a value is written on one line: a scalar, an empty container, or a list of these."""
    if isinstance(value, Spec):
        return not type(value).model_fields
    if isinstance(value, Mapping):
        return not value
    if isinstance(value, (list, tuple)):
        return all(_is_flow(item) for item in value)
    return True


def _flow(value: Any, location: Location | None) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_flow(item, location) for item in value)}]"
    if isinstance(value, (Mapping, Spec)):
        return "{}"
    if isinstance(value, FilePath):
        return _text(escaped(str(absolute(value, location))))
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
    """Return a text, in quotes if it would otherwise be read as another value."""
    if _PLAIN.match(text) and isinstance(resolve(text), str):
        return text
    return double_quoted(text)
