"""The reference of data sources and transforms in docs/guide/data.md, made from the classes.

    python -m tests.docs.reference

writes it anew, below the heading `## Reference`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import netspec.data  # noqa: F401  # the sources and transforms are found through it
from netspec.data.base import Transform
from netspec.schema.annotations import fields_by_name, members
from netspec.schema.data import SOURCES, TRANSFORMS, SplitFields
from netspec.schema.docs import field_docs
from netspec.schema.spec import Spec

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "data.md"
HEADING = "## Reference\n"


def reference() -> str:
    """What stands below the heading."""
    parts = ["### Fields of every source\n", _table(SplitFields, set())]
    common = set(fields_by_name(SplitFields)) | {"source"}
    for name in sorted(SOURCES.names()):
        parts += [f"### `source: {name}`\n", _text(SOURCES[name]), _table(SOURCES[name], common)]
    parts += ["### Fields of every transform\n", _table(Transform, set())]
    common = set(fields_by_name(Transform)) | {"type"}
    for name in sorted(TRANSFORMS.names()):
        parts += [f"### `type: {name}`\n", _text(TRANSFORMS[name]), _table(TRANSFORMS[name], common)]
    return "\n" + "\n".join(parts)


def _text(cls: type[Spec]) -> str:
    return inspect.cleandoc(cls.__doc__ or "") + "\n"


def _table(cls: type[Spec], left_out: set[str]) -> str:
    return "\n".join(["| field | default | |", "|---|---|---|", *_rows(cls, left_out)]) + "\n"


def _rows(cls: type[Spec], left_out: set[str]) -> Iterator[str]:
    docs = field_docs(cls)
    for name, field in fields_by_name(cls).items():
        if name in left_out:
            continue
        default = "needed" if field.is_required() else f"`{_written(field.get_default(call_default_factory=True))}`"
        choices = [f"`{_written(one)}`" for one in _choices(field.annotation)]
        told = " ".join(docs[name].split()).replace("|", "\\|")
        values = f" ({', '.join(choices)})" if choices else ""
        yield f"| `{name}` | {default} | {told}{values} |"


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values that a field may have, where its type lists all of them."""
    kinds = members(annotation)
    return get_args(kinds[0]) if len(kinds) == 1 and get_origin(kinds[0]) is Literal else ()


def _written(value: Any) -> str:
    """A value as YAML has it."""
    words = {True: "true", False: "false", None: "null"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def renewed(page: str) -> str:
    """The page with the reference of this code."""
    return page.partition(HEADING)[0] + HEADING + reference()


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
