"""Hints for those who come from Caffe, PyTorch and Keras: what a name of theirs is called here.

A hint is given only where the name here is in the catalogue, so none promises what is not there yet.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass
from functools import cache

from netspec.errors import folded, nearest
from netspec.schema.messages.foreign_names import TABLES


@cache
def _entries(kind: str) -> dict[str, list[tuple[str, str]]]:
    """Foreign name → (whose name it is, what stands behind the colon), for each tool that has it."""
    found: dict[str, list[tuple[str, str]]] = {}
    for tool, table in TABLES.get(kind, {}).items():
        for line in filter(None, map(str.strip, table.splitlines())):
            names, _, here = line.partition(": ")
            for name in names.split(", "):
                found.setdefault(name, []).append((tool, here))
    return found


@cache
def _folded(kind: str) -> dict[str, str]:
    """The foreign names without case and separators: Caffe has `INNER_PRODUCT` too."""
    return {folded(name): name for name in reversed(_entries(kind))}


@dataclass(frozen=True)
class Meant:
    """What somebody meant by a name that is unknown here."""

    hint: str
    name: str | None = None
    """The name here, the first where there are several; None where nothing of the kind does the same."""


def meant_by(kind: str, name: str, known: Collection[str]) -> Meant | None:
    """What is meant by a name of another tool, or by a misspelt one: `InnerProduct is Caffe's name: here it is Dense`.

    Another tool's name comes first, then one that differs from a known name by case or separators alone, then another
    tool's name that is spelled so, then the nearest name.
    """
    here = {folded(one): one for one in known}.get(folded(name))
    there = _foreign(kind, name, name, known)
    if there is None and here is None:
        there = _foreign(kind, _folded(kind).get(folded(name), ""), name, known)
    if there is not None:
        return there
    near = here or nearest(name, known)
    return Meant(f"did you mean `{near}`?", near) if near else None


def _foreign(kind: str, entry: str, name: str, known: Container[str]) -> Meant | None:
    """What the table says of `entry`, which was written as `name`."""
    for tool, here in _entries(kind).get(entry, ()):
        if here.startswith("!"):
            return Meant(here[1:])
        names, _, how = here.partition(" | ")
        there = [one for one in names.split(", ") if one in known and one != name]
        if there:
            owner = tool if "'" in tool else "another tool's" if tool == "another" else f"{tool}'s"
            hint = f"{name} is {owner} name: here it is {' or '.join(there)}" + (f" {how}" if how else "")
            return Meant(hint, there[0])
    return None


def meant_by_number(kind: str, value: object) -> str | None:
    """What to write where a bare number stands for a thing of this kind."""
    written = {"initializer": "{{type: Constant, value: {}}}", "regularizer": "{{type: L2, l2: {}}}"}.get(kind)
    if written is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return f"write `{written.format(value)}`"
