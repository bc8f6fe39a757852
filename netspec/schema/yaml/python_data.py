"""Plain Python data as a tree: specs and overrides given to the library rather than written in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from netspec.errors import Location, SpecError
from netspec.schema.yaml.scalars import MAX_INT
from netspec.schema.yaml.tree import Map, Seq

PYTHON = "<python>"


def python_place(path: str, value: Any, line: int) -> Location:
    """A place for a value that stands in no file; its line of text is `path=value`."""
    shown = repr(value)
    return Location(PYTHON, line, len(path) + 2, f"{path}={shown if len(shown) <= 60 else shown[:59] + '…'}")


def from_python(source: Mapping[str, Any]) -> Map:
    """A document given as Python data. Each value has a place of its own, numbered as they come.

    Raises `SpecError` for keys that are not text, and for whole numbers beyond 64 bits.
    """
    lines = count(1)
    made = _tree(source, "", lambda path, value: python_place(path, value, next(lines)))
    assert isinstance(made, Map)
    return made


def located(value: Any, place: Location) -> Any:
    """Plain Python data as a tree, all of it at one place; tuples become lists. Raises as `from_python`."""
    return _tree(value, "", lambda path, value: place)


def _tree(value: Any, path: str, at: Callable[[str, Any], Location]) -> Any:
    if isinstance(value, Mapping):
        new = Map(at(path, value))
        for key, item in value.items():
            below = f"{path}.{key}" if path else str(key)
            if type(key) is int:
                key = str(key)
            if not isinstance(key, str):
                raise SpecError(f"the key {key!r} is not text", location=at(below, item), expected="keys of type str")
            made = _tree(item, below, at)
            place = made.origin if isinstance(made, (Map, Seq)) else at(below, item)
            new.put(key, made, replace(place, column=1), place)
        return new
    if isinstance(value, (list, tuple)):
        fresh = Seq(at(path, value))
        for index, item in enumerate(value):
            below = f"{path}.{index}"
            made = _tree(item, below, at)
            fresh.add(made, made.origin if isinstance(made, (Map, Seq)) else at(below, item))
        return fresh
    if isinstance(value, int) and abs(value) > MAX_INT:
        raise SpecError("the number is too large", location=at(path, value), path=path, expected="less than 2 ** 63")
    return value
