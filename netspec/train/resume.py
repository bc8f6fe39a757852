"""What may change between a checkpoint and the run that goes on from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netspec.errors import InputError, Problem
from netspec.schema.paths import FilePath, resolve_path
from netspec.schema.spec import Spec
from netspec.schema.train import TrainSpec

MAY_CHANGE = (
    "description",
    "train.max_steps",
    "train.max_epochs",
    "train.test_every",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "train.log_every",
    "data.train.prefetch",
    "data.test",
    "net.description",
    "net.metrics",
    "net.vars",
    "vars",
)
"""Values that do not alter what a step computes (the length may move a schedule, which is what is asked for then)."""

MISSING = object()


def compare(before: TrainSpec, now: TrainSpec) -> list[str]:
    """Differences that are allowed, as text. Raises `InputError` with all that are not."""
    allowed: list[str] = []
    problems: list[Problem] = []
    for path, old, new in differences(plain(before), plain(now)):
        if any(path == free or path.startswith(free + ".") for free in MAY_CHANGE):
            allowed.append(f"{path}: {_show(old)} → {_show(new)}")
        else:
            problems.append(
                Problem(
                    f"`{path}` is not what it was when the run began", path=path, expected=_show(old), got=_show(new),
                    hint="resume with the old value, or start a new run with --weights",
                )
            )  # fmt: skip
    if problems:
        raise InputError(problems)
    return allowed


def plain(value: Any) -> Any:
    """A spec as plain data; lists of named things become mappings by name, file paths become absolute."""
    if isinstance(value, Spec):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        return {
            name: str(resolve_path(value, name).resolve()) if isinstance(one, FilePath) else plain(one)
            for name, one in fields.items()
        }
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        items = [plain(one) for one in value]
        names = [item["name"] for item in items if isinstance(item, dict) and item.get("name")]
        return dict(zip(names, items, strict=True)) if items and len(set(names)) == len(items) else items
    return value


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two pieces of plain data differ: the dotted path and both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differences(old.get(key, MISSING), new.get(key, MISSING), f"{path}.{key}" if path else str(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, f"{path}.{index}")
    elif old != new:
        yield path, old, new


def _show(value: Any) -> str:
    return "nothing" if value is MISSING else str(value)
