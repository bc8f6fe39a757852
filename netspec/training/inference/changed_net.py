"""A hint for weights that do not fit a net: what changed in the net since they were written, and what to do."""

from __future__ import annotations

from typing import Any

from netspec.errors import InputError, Location, and_more
from netspec.schema.load import load_net
from netspec.schema.specs.comparison import MISSING, differences, plain
from netspec.schema.specs.net import NetSpec
from netspec.schema.yaml.reader import parse_yaml

MAX_CHANGES = 3
"""Number of changes that a hint names."""


def changed_net_hint(net: NetSpec, recorded: str, source: str) -> str:
    """Return the hint; `recorded` is the net in the weights file `source`, as YAML, or empty if it has none."""
    command = f"`netspec train SPEC --weights {source}` trains this net, starting from the arrays that fit"
    changes = _changes(net, recorded) if recorded else []
    if not changes:
        return f"{source} belongs to a net with different layers or sizes; {command}"
    shown = "; ".join(changes[:MAX_CHANGES]) + and_more(len(changes) - MAX_CHANGES)
    return f"since {source} was written, the net has changed: {shown}; undo that, or train again: {command}"


def _changes(net: NetSpec, recorded: str) -> list[str]:
    """Return what differs in inputs and layers from a recorded net; nothing if that can't be read."""
    try:
        before = load_net(parse_yaml(recorded, "the recorded net"))
    except InputError:
        return []
    return [
        _describe_change(path, old, new, net.where(*path.split(".")))
        for path, old, new in differences(plain(before), plain(net))
        if path.startswith(("layers.", "inputs."))
    ]


def _describe_change(path: str, old: Any, new: Any, where: Location | None) -> str:
    if old is MISSING or new is MISSING:
        return f"`{path}` is {'new' if old is MISSING else 'gone'}"
    at = "" if where is None or where.file.startswith("<") else f" ({where.file}:{where.line})"
    return f"`{path}` was {old} and is {new}{at}"
