"""Located values: what the YAML reader returns, so that every value knows the place it came from.

A document is plain Python data (dict, list, str, int, float, bool, None) whose containers are `Map` and `Seq`: a
dict and a list that also hold the location of themselves, of each key and of each value. Validators see plain data;
whoever reports an error walks the same containers to the place.
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
        """Take `key` out with its locations; its value."""
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
    """A copy of a tree that shares no container with it, so that a change in one place stays there.

    With `calls` its places are those of the tree as it was come to by them.
    """

    def at(place: Location) -> Location:
        return replace(place, calls=calls) if calls else place

    if isinstance(value, Map):
        new = Map(at(value.origin))
        for key, item in value.items():
            new.put(key, copied(item, calls), at(value.key_at[key]), at(value.value_at[key]))
        return new
    if isinstance(value, Seq):
        fresh = Seq(at(value.origin))
        for item, place in zip(value, value.value_at, strict=True):
            fresh.add(copied(item, calls), at(place))
        return fresh
    return copy(value) if isinstance(value, (dict, list)) else value


def locate(tree: Any, path: Iterable[Any], *, key: bool = False) -> tuple[Location | None, Path]:
    """The place of `path` in `tree`, as far as the path exists, and the part of the path that was walked.

    Items of a sequence that have a `name` can go by it. Steps that name nothing in the tree (validators put union tags
    in their paths) are skipped. With `key`, the place of the last key instead of its value.
    """
    place: Location | None = getattr(tree, "origin", None)
    walked: list[str | int] = []
    for step in path:
        if isinstance(tree, Map) and step in tree:
            place = tree.key_at[step] if key else tree.value_at[step]
            tree = tree[step]
        elif isinstance(tree, Seq) and (index := _index(tree, step)) is not None:
            place, step = tree.value_at[index], index
            tree = tree[index]
        else:
            continue
        walked.append(step)
    return place, tuple(walked)


def _index(items: Seq, step: Any) -> int | None:
    """The position of an item, given as it is or by the item's name."""
    if isinstance(step, int):
        return step if 0 <= step < len(items) else None
    named = (index for index, item in enumerate(items) if isinstance(item, dict) and item.get("name") == step)
    return next(named, None)


def dotted(root: Any, path: Path) -> str:
    """The path as text; items of a sequence that have a `name` go by it: `layers.conv1.filters`."""
    words: list[str] = []
    for step in path:
        inside: Any = root if isinstance(root, (dict, list)) else {}
        try:
            root = inside[step]
        except (KeyError, IndexError, TypeError):  # a missing field, or a position given as text
            root = None
        name = root.get("name") if isinstance(root, dict) and isinstance(step, int) else None
        words.append(name if isinstance(name, str) and name else str(step))
    return ".".join(words)


def walk(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value in the tree with its path, containers before what they hold."""
    yield path, tree
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, list):
        items = enumerate(tree)
    for step, value in items:
        yield from walk(value, (*path, step))
