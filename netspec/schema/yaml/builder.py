"""Converts YAML events to a tree with locations, and collects the problems that are not syntax errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from netspec.errors import Location, Problem, SpecError, nearest
from netspec.schema.yaml.scalars import resolve, resolve_as
from netspec.schema.yaml.tree import Map, Seq, copied

MAX_DEPTH = 100
MAX_NODES = 1_000_000

_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(f"{_CORE}{word}" for word in ("str", "int", "float", "bool", "null"))
_MERGE = object()
"""Placeholder for the plain key `<<`."""
_OPEN = object()
"""Placeholder for the value of an anchor whose container is still being built."""


class TreeBuilder:
    """Builds the tree of one document from a parser's events.

    `at(line, column)`, counted from 0, makes a location. Problems are added to `problems`, and parsing goes on; only a
    document that exceeds a limit raises an error.
    """

    def __init__(self, at: Callable[[int, int], Location]) -> None:
        self.problems: list[Problem] = []
        self._locate = at
        self._anchors: dict[str, Any] = {}
        self._sizes: dict[str, tuple[int, int]] = {}  # for each anchor: number of values, number of levels
        self._nodes = 0
        self._deepest = 0
        self._next: Callable[[], Any] = lambda: None

    def document(self, parser: Any) -> Any:
        """Return the value of the only document, None if it is empty. Raises the parser's `MarkedYAMLError`."""
        self._next = parser.get_event
        self._next()  # the start of the stream
        event = self._next()
        if isinstance(event, StreamEndEvent):
            return None
        value, _ = self._value(self._next(), 0)
        self._next()  # the end of the document
        event = self._next()
        if isinstance(event, DocumentStartEvent):
            self._add(event, "a second document starts here", expected="one document per file")
        return value

    def _at(self, event: Any) -> Location:
        mark = event.start_mark
        return self._locate(mark.line, mark.column)

    def _add(self, event: Any, message: str, **facts: Any) -> None:
        self.problems.append(Problem(message, self._at(event), **facts))

    def _limit_error(self, event: Any, message: str, **facts: Any) -> SpecError:
        """The error for a document that exceeds a limit, which ends the parsing."""
        self._add(event, message, **facts)
        return SpecError(self.problems)

    def _count(self, event: Any, number: int) -> None:
        self._nodes += number
        if self._nodes > MAX_NODES:
            raise self._limit_error(
                event, "the document is too large", expected=f"at most {MAX_NODES} values with aliases"
            )

    def _descend(self, event: Any, depth: int) -> None:
        self._deepest = max(self._deepest, depth)
        if depth > MAX_DEPTH:
            raise self._limit_error(event, "the document is nested too deeply", expected=f"at most {MAX_DEPTH} levels")

    def _value(self, event: Any, depth: int) -> tuple[Any, Location]:
        """Return the value that starts with `event`, and its location."""
        if isinstance(event, AliasEvent):
            return self._alias(event, depth), self._at(event)
        self._count(event, 1)
        self._descend(event, depth)
        before, deepest = self._nodes, self._deepest
        if event.anchor is not None:
            self._anchors[event.anchor] = _OPEN
            self._deepest = depth
        location = self._at(event)
        value: Any
        if isinstance(event, ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, SequenceStartEvent):
            value = self._sequence(event, location, depth)
        else:
            value = self._mapping(event, location, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
            self._sizes[event.anchor] = (1 + self._nodes - before, self._deepest - depth)
            self._deepest = max(self._deepest, deepest)
        return value, location

    def _alias(self, event: Any, depth: int) -> Any:
        name = event.anchor
        if name not in self._anchors:
            similar = nearest(name, self._anchors)
            hint = f"did you mean `*{similar}`?" if similar else f"write `&{name}` before the value that it stands for"
            self._add(event, f"there is no anchor `&{name}` before this alias", hint=hint)
            return None
        value = self._anchors[name]
        if value is _OPEN:
            self._add(event, f"the alias `*{name}` is inside the value that it refers to")
            return None
        size, height = self._sizes[name]
        self._count(event, size)
        self._descend(event, depth + height)
        return copied(value)

    def _tag(self, event: Any, plain: str) -> None:
        """Refuse a tag of a container, except for the default tag of its kind."""
        if event.tag not in (None, "!", _CORE + plain):
            self._refuse_tag(event)

    def _refuse_tag(self, event: Any) -> None:
        tag = event.tag.replace(_CORE, "!!")
        self._add(event, f"the tag `{tag}` is not allowed: a spec contains only plain data", hint="remove the tag")

    def _scalar(self, event: Any) -> Any:
        try:
            text = _join_surrogates(event.value)
            if event.tag in (None, "!"):
                return resolve(text) if event.implicit[0] else text
            if event.tag in _SCALAR_TAGS:
                return resolve_as(event.tag[len(_CORE) :], text)
        except ValueError as error:
            self._add(event, str(error), hint="remove the tag" if event.tag in _SCALAR_TAGS else None)
            return None
        self._refuse_tag(event)
        return None

    def _sequence(self, start: Any, location: Location, depth: int) -> Seq:
        self._tag(start, "seq")
        seq = Seq(location)
        while not isinstance(event := self._next(), SequenceEndEvent):
            seq.add(*self._value(event, depth + 1))
        return seq

    def _mapping(self, start: MappingStartEvent, location: Location, depth: int) -> Map:
        self._tag(start, "map")
        mapping = Map(location)
        merged: list[Map] = []
        merge_at: Location | None = None
        while not isinstance(event := self._next(), MappingEndEvent):
            key, key_at = self._key(event, depth)
            if key is None:
                self._value(self._next(), depth + 1)
                continue
            first = merge_at if key is _MERGE else mapping.key_at.get(key)
            if first is not None:
                key_text = "<<" if key is _MERGE else key
                self._add(event, f"the key `{key_text}` is given twice", hint=f"the first one is at {first}")
            value_event = self._next()
            value, value_at = self._value(value_event, depth + 1)
            if key is _MERGE:
                merge_at = key_at
                merged += self._merge_sources(value_event, value)
            elif first is None:
                mapping.put(key, value, key_at, value_at)
        for source in merged:  # written keys take precedence, then those of earlier sources
            for key in source:
                if key not in mapping:
                    mapping.put(key, source[key], source.key_at[key], source.value_at[key])
        return mapping

    def _key(self, event: Any, depth: int) -> tuple[Any, Location]:
        """Return a key and its location; None, with a problem, if it is not text; `_MERGE` for a plain `<<`."""
        if isinstance(event, ScalarEvent) and event.implicit[0] and event.value == "<<":
            return _MERGE, self._at(event)
        key, location = self._value(event, depth + 1)
        if isinstance(key, str):
            return key, location
        if isinstance(event, ScalarEvent) and type(key) is int and str(key) == event.value:
            return event.value, location  # an index of a class: `{0: 1.0, 3: 5.0}`
        if isinstance(event, ScalarEvent) and event.value:
            kind = {bool: "a boolean", type(None): "null"}.get(type(key), "a number")
            self._add(event, f"the key `{event.value}` is {kind}", expected="text", hint=f'write it as "{event.value}"')
        else:
            self._add(event, "a key must be text", expected="`name: value`")
        return None, location

    def _merge_sources(self, event: Any, value: Any) -> list[Map]:
        if value is None and isinstance(event, AliasEvent) and event.anchor not in self._sizes:
            return []  # the anchor is unknown, which has been reported
        sources = list(value) if isinstance(value, Seq) else [value]
        if all(isinstance(source, Map) for source in sources):
            return sources
        self._add(event, "`<<` can only merge mappings", expected="an alias of a mapping, or a list of such aliases")
        return []


def _join_surrogates(text: str) -> str:
    r"""Join surrogate pairs such as `"\ud83d\ude00"`, by which JSON writes characters beyond U+FFFF.

    Raises `ValueError` for half a pair.
    """
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("a surrogate without its pair is not a valid character") from None
