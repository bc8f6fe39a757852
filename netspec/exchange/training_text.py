"""A training file that an importer puts together, written as a person would write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from netspec.exchange.drafting import WIDTH, comment
from netspec.schema.flow import flow, plain


def training_text(
    origin: str, name: str, data: Mapping[str, Mapping[str, Any]], solver: Mapping[str, Any], loop: Mapping[str, Any]
) -> str:  # fmt: skip
    """The YAML of a training of `net.yaml`: splits by their names, the solver, and the field `train`."""
    lines = [f"# Imported from {comment(origin)}", "netspec: 1"]
    if name:
        lines.append(f"name: {plain(name)}")
    lines += ["net: net.yaml", "data:"]
    lines += [line for split, fields in data.items() for line in _entry(split, fields, 2)]
    lines += [*_entry("solver", solver, 0), *_entry("train", loop, 0)]
    return "\n".join(lines) + "\n"


def _entry(key: str, fields: Mapping[str, Any], indent: int) -> Iterator[str]:
    """A mapping on one line where it fits, else a line for each field, and for each item of lists that do not fit."""
    start = " " * indent
    line = f"{start}{key}: {flow(fields)}"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"{start}{key}:"
    for name, value in fields.items():
        inner = f"{start}  {name}: {flow(value)}"
        if len(inner) <= WIDTH or not (isinstance(value, list) and value and isinstance(value[0], Mapping)):
            yield inner
        else:
            yield f"{start}  {name}:"
            yield from (f"{start}    - {flow(one)}" for one in value)
