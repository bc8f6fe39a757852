"""Trees with locations: the documents that the YAML reader returns.

A document is plain Python data (dict, list, str, int, float, bool, None) whose containers are `Map` and `Seq`: a
dict and a list that also store the location of themselves, of each key and of each value. Validators see plain data;
`locate` finds the location for an error by its path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any

from netspec.errors import Call, Location

Path = tuple[str | int, ...]


class Map(dict[str, Any]):
    """A mapping from a document, with the locations of its keys and values."""

    __slots__ = ("key_at", "origin", "value_at")

    def __init__(self, origin: Location) -> None:
        super().__init__()
        self.origin = origin
        self.key_at: dict[str, Location] = {}
        self.value_at: dict[str, Location] = {}

    def put(self, key: str, value: Any, key_at: Location, value_at: Location) -> None:
        """Set `key` with its two locations."""
        self[key] = value
        self.key_at[key] = key_at
        self.value_at[key] = value_at

    def remove(self, key: str) -> Any:
        """Remove `key` with its locations; return its value."""
        del self.key_at[key], self.value_at[key]
        return self.pop(key)


class Seq(list[Any]):
    """A sequence from a document, with the location of each item."""

    __slots__ = ("origin", "value_at")

    def __init__(self, origin: Location) -> None:
        super().__init__()
        self.origin = origin
        self.value_at: list[Location] = []

    def add(self, value: Any, at: Location) -> None:
        """Append an item with its location."""
        self.append(value)
        self.value_at.append(at)


def copied(value: Any, calls: tuple[Call, ...] = ()) -> Any:
    """Return a deep copy of a tree. With `calls`, its locations say that these calls led to them."""

    def at(location: Location) -> Location:
        return replace(location, calls=calls) if calls else location

    if isinstance(value, Map):
        mapping = Map(at(value.origin))
        for key, item in value.items():
            mapping.put(key, copied(item, calls), at(value.key_at[key]), at(value.value_at[key]))
        return mapping
    if isinstance(value, Seq):
        sequence = Seq(at(value.origin))
        for item, location in zip(value, value.value_at, strict=True):
            sequence.add(copied(item, calls), at(location))
        return sequence
    return copy(value) if isinstance(value, (dict, list)) else value


def locate(tree: Any, path: Iterable[Any], *, key: bool = False) -> tuple[Location | None, Path]:
    """Return the location of `path` in `tree`, as far as the path exists, and the part of the path that exists.

    A step into a sequence is an index or the `name` of an item. Steps that the tree does not contain, such as the union
    tags of validators, are skipped. With `key`, returns the location of the last key instead of its value.
    """
    location: Location | None = getattr(tree, "origin", None)
    walked: list[str | int] = []
    for step in path:
        if isinstance(tree, Map) and step in tree:
            location = tree.key_at[step] if key else tree.value_at[step]
            tree = tree[step]
        elif isinstance(tree, Seq) and (index := _index(tree, step)) is not None:
            location, step = tree.value_at[index], index
            tree = tree[index]
        else:
            continue
        walked.append(step)
    return location, tuple(walked)


def _index(items: Seq, step: Any) -> int | None:
    """Return the index of an item, given by the index or by the item's name."""
    if isinstance(step, int):
        return step if 0 <= step < len(items) else None
    named = (index for index, item in enumerate(items) if isinstance(item, dict) and item.get("name") == step)
    return next(named, None)


def dotted(root: Any, path: Path) -> str:
    """Format a path; items of a sequence are shown by their `name` if they have one: `layers.conv1.filters`."""
    words: list[str] = []
    for step in path:
        inside: Any = root if isinstance(root, (dict, list)) else {}
        try:
            root = inside[step]
        except (KeyError, IndexError, TypeError):  # a missing field, or an index given as text
            root = None
        name = root.get("name") if isinstance(root, dict) and isinstance(step, int) else None
        words.append(name if isinstance(name, str) and name else str(step))
    return ".".join(words)


def walk(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each value in the tree with its path, containers before their items."""
    yield path, tree
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, list):
        items = enumerate(tree)
    for step, value in items:
        yield from walk(value, (*path, step))
