"""Converts specs and overrides given as Python data to trees with locations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from netspec.errors import Location, SpecError
from netspec.schema.yaml.scalars import MAX_INT
from netspec.schema.yaml.tree import Map, Seq

PYTHON = "<python>"


def python_location(path: str, value: Any, line: int) -> Location:
    """Return a location for a value that is in no file; its line of text is `path=value`."""
    text = repr(value)
    return Location(PYTHON, line, len(path) + 2, f"{path}={text if len(text) <= 60 else text[:59] + '…'}")


def from_python(source: Mapping[str, Any]) -> Map:
    """Convert Python data to a document. Each value has a location of its own, numbered in order.

    Raises `SpecError` for keys that are not text, and for whole numbers beyond 64 bits.
    """
    lines = count(1)
    tree = _tree(source, "", lambda path, value: python_location(path, value, next(lines)))
    assert isinstance(tree, Map)
    return tree


def located(value: Any, location: Location) -> Any:
    """Convert Python data to a tree with one location for all values. Raises `SpecError` like `from_python`."""
    return _tree(value, "", lambda path, value: location)


def _tree(value: Any, path: str, at: Callable[[str, Any], Location]) -> Any:
    if isinstance(value, Mapping):
        mapping = Map(at(path, value))
        for key, item in value.items():
            below = f"{path}.{key}" if path else str(key)
            if type(key) is int:
                key = str(key)
            if not isinstance(key, str):
                raise SpecError(f"the key {key!r} is not text", location=at(below, item), expected="keys of type str")
            tree = _tree(item, below, at)
            location = tree.origin if isinstance(tree, (Map, Seq)) else at(below, item)
            mapping.put(key, tree, replace(location, column=1), location)
        return mapping
    if isinstance(value, (list, tuple)):
        sequence = Seq(at(path, value))
        for index, item in enumerate(value):
            below = f"{path}.{index}"
            tree = _tree(item, below, at)
            sequence.add(tree, tree.origin if isinstance(tree, (Map, Seq)) else at(below, item))
        return sequence
    if isinstance(value, int) and abs(value) > MAX_INT:
        raise SpecError("the number is too large", location=at(path, value), path=path, expected="less than 2 ** 63")
    return value
