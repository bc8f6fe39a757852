"""Match weights with a net: the states that they cover, those that are missing, and renaming by patterns."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Protocol, TypeAlias

from numpy.typing import NDArray

from netspec.errors import InputError, Location, Problem, did_you_mean, listing
from netspec.schema.specs.patterns import Pattern

Status = Literal["loaded", "missing", "shape differs", "not in the net"]


class Shaped(Protocol):
    """Anything with a shape: a `TensorType` or an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all axes."""
        ...


@dataclass(frozen=True)
class Row:
    """One name in a coverage table."""

    name: str
    status: Status
    net_shape: tuple[int, ...] | None
    file_shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Coverage:
    """Result of `match_weights`: every name of either side, and the arrays that fit."""

    rows: tuple[Row, ...]
    arrays: dict[str, NDArray[Any]]

    def count(self, status: Status) -> int:
        """Number of names with this status."""
        return sum(row.status == status for row in self.rows)

    def render(self) -> str:
        """The table as text: one line a name, then the totals."""
        width = max((len(row.name) for row in self.rows), default=0)
        lines = [
            f"{row.name:{width}}  {_shape(row.net_shape):18} {_shape(row.file_shape):18} {row.status}"
            for row in self.rows
        ]
        totals = [f"{count} {status}" for status in _STATUSES if (count := self.count(status))]
        return "\n".join([*lines, ", ".join(totals)])


_STATUSES: tuple[Status, ...] = ("loaded", "missing", "shape differs", "not in the net")


def match_weights(
    targets: Mapping[str, Shaped],
    arrays: Mapping[str, NDArray[Any]],
    *,
    partial: bool = False,
    source: str = "the weights",
) -> Coverage:
    """Compare the arrays of a file with the states of a net, by name and shape.

    Raises one `InputError` that lists every name that is missing, of another shape, or not in the net. With `partial`
    (fine-tuning), arrays that fit are returned and the table lists the others; it is an error if none fits.
    """
    rows = [_row(name, kind.shape, arrays.get(name)) for name, kind in targets.items()]
    rows += [
        Row(name, "not in the net", None, tuple(array.shape)) for name, array in arrays.items() if name not in targets
    ]
    coverage = Coverage(tuple(rows), {row.name: arrays[row.name] for row in rows if row.status == "loaded"})
    if partial:
        if targets and not coverage.arrays:
            raise InputError(f"nothing in {source} fits the net", notes=tuple(coverage.render().splitlines()))
        return coverage
    problems = [_problem(row, targets, arrays, source) for row in rows if row.status != "loaded"]
    if problems:
        raise InputError(problems)
    return coverage


def _row(name: str, shape: tuple[int, ...], array: NDArray[Any] | None) -> Row:
    if array is None:
        return Row(name, "missing", tuple(shape), None)
    fits = tuple(array.shape) == tuple(shape)
    return Row(name, "loaded" if fits else "shape differs", tuple(shape), tuple(array.shape))


def _problem(row: Row, targets: Mapping[str, Shaped], arrays: Mapping[str, Any], source: str) -> Problem:
    if row.status == "missing":
        spare = {name: array for name, array in arrays.items() if name not in targets}
        hint = _fitting_module(row, spare) or did_you_mean(row.name, spare)
        return Problem(f"{source}: `{row.name}` is missing", expected=_shape(row.net_shape), hint=hint)
    if row.status == "not in the net":
        open_ = [name for name in targets if name not in arrays]
        return Problem(
            f"{source}: the net has no `{row.name}`", got=_shape(row.file_shape), hint=did_you_mean(row.name, open_)
        )
    return Problem(
        f"{source}: `{row.name}` has the wrong shape", expected=_shape(row.net_shape), got=_shape(row.file_shape)
    )


def _fitting_module(row: Row, spare: Mapping[str, Any]) -> str | None:
    """A hint that names the arrays of a state dict that could be the missing one, and the `--map` that selects one."""
    size = prod(row.net_shape or ())
    fitting = [name for name in spare if "." in name and "/" not in name and prod(spare[name].shape) == size]
    if not fitting:
        return None
    layer = row.name.rpartition("/")[0].replace("/", ".")
    option = shlex.quote(f"{fitting[0].rpartition('.')[0]}.*={layer}.*")
    several = f"{listing([f'`{name}`' for name in fitting], 6)} of the file {'fits' if len(fitting) == 1 else 'fit'}"
    return f"{several}; name the module of the layer: `netspec import … --net … --map {option}`"


def _shape(shape: tuple[int, ...] | None) -> str:
    return "-" if shape is None else str(list(shape))


Placed: TypeAlias = Callable[..., Location | None]
"""Returns the location of a rule: `(pattern, key=True)` of the pattern, `(pattern)` of its new name, `()` of all."""


def nowhere(*path: str, key: bool = False) -> Location | None:
    """No location, for rules of a command line."""
    return None


def renamed(
    rules: Mapping[str, str | None],
    arrays: Mapping[str, NDArray[Any]],
    *,
    path: str = "--map",
    where: Placed = nowhere,
) -> dict[str, NDArray[Any]]:
    """Rename arrays: the first pattern that fits a name counts, and None drops the array.

    `path` and `where` are the name and location of the rules for messages. Raises `InputError` if a rule fits nothing,
    or two arrays get one name.
    """
    patterns = {Pattern(text): target for text, target in rules.items()}
    used: set[str] = set()
    origins: dict[str, str] = {}
    problems: list[Problem] = []
    for name in arrays:
        rule = next((pattern for pattern in patterns if name in pattern), None)
        target: str | None = name
        if rule is not None:
            used.add(rule.text)
            to = patterns[rule]
            target = None if to is None else rule.renamed(name, to)
        if target is None:
            continue
        if target in origins:
            location = where(rule.text) if rule is not None else where()
            problems.append(Problem(f"two arrays of the file become `{target}`", location, path,
                                    got=f"`{origins[target]}` and `{name}`", expected="names that differ"))  # fmt: skip
        origins[target] = name
    problems += [
        fits_nothing(text, where(text, key=True), path, list(arrays), "the file") for text in rules if text not in used
    ]
    if problems:
        raise InputError(problems)
    return {target: arrays[name] for target, name in origins.items()}


def fits_nothing(text: str, location: Location | None, path: str, names: list[str], whose: str) -> Problem:
    """The problem of a pattern that fits no name."""
    return Problem(
        f"`{text}` fits no name in {whose}", location, path, expected=f"one of {listing(names)}",
        hint=did_you_mean(text, names),
    )  # fmt: skip
