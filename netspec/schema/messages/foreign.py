"""Hints for names from Caffe, PyTorch and Keras: the name here, if it exists."""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass
from functools import cache

from netspec.errors import folded, nearest
from netspec.schema.messages.foreign_names import TABLES


@cache
def _entries(kind: str) -> dict[str, list[tuple[str, str]]]:
    """Return foreign name → (tool, text after the colon), for each tool that has the name."""
    entries: dict[str, list[tuple[str, str]]] = {}
    for tool, table in TABLES.get(kind, {}).items():
        for line in filter(None, map(str.strip, table.splitlines())):
            names, _, advice = line.partition(": ")
            for name in names.split(", "):
                entries.setdefault(name, []).append((tool, advice))
    return entries


@cache
def _folded(kind: str) -> dict[str, str]:
    """Return the foreign names by their form without case and separators, such as Caffe's `INNER_PRODUCT`."""
    return {folded(name): name for name in reversed(_entries(kind))}


@dataclass(frozen=True)
class Suggestion:
    """The hint for a name that is unknown here."""

    hint: str
    name: str | None = None
    """The name here, the first of several; None if there is no equivalent."""


def suggest(kind: str, name: str, names: Collection[str]) -> Suggestion | None:
    """Suggest a known name for a foreign or misspelt one: `InnerProduct is Caffe's name: use Dense`.

    In this order: a name of another tool, a known name that differs only by case or separators, a name of another tool
    that differs so, the nearest known name.
    """
    respelled = {folded(candidate): candidate for candidate in names}.get(folded(name))
    suggestion = _foreign(kind, name, name, names)
    if suggestion is None and respelled is None:
        suggestion = _foreign(kind, _folded(kind).get(folded(name), ""), name, names)
    if suggestion is not None:
        return suggestion
    near = respelled or nearest(name, names)
    return Suggestion(f"did you mean `{near}`?", near) if near else None


def _foreign(kind: str, entry: str, name: str, candidates: Container[str]) -> Suggestion | None:
    """Look up `entry`, which the user wrote as `name`, in the table."""
    for tool, advice in _entries(kind).get(entry, ()):
        if advice.startswith("!"):
            return Suggestion(advice[1:])
        names, _, note = advice.partition(" | ")
        names_here = [candidate for candidate in names.split(", ") if candidate in candidates and candidate != name]
        if names_here:
            alternatives = " or ".join(filter(None, (", ".join(names_here[:-1]), names_here[-1])))
            separator = ", " if note.startswith("which ") else " "
            replacement = f"{alternatives}{separator}{note}" if note else alternatives
            hint = f"use {replacement}" if tool == "another" else f"{name} is {_owner(tool)}: use {replacement}"
            return Suggestion(hint, names_here[0])
    return None


def _owner(tool: str) -> str:
    """Describe whose name it is: `Caffe's name`, `Keras's short name`, `an alias in Keras`."""
    if tool.startswith("an alias"):
        return tool
    return f"{tool} name" if "'" in tool else f"{tool}'s name"


def number_replacement(kind: str, value: object) -> str | None:
    """Return a hint for a number in place of an initializer or a regularizer."""
    template = {"initializer": "{{type: Constant, value: {}}}", "regularizer": "{{type: L2, l2: {}}}"}.get(kind)
    if template is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return f"write `{template.format(value)}`"
