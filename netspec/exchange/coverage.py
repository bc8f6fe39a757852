"""Do weights fit a net: which states they cover, which they miss, which they have besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from netspec.errors import InputError, Problem, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

Status = Literal["loaded", "missing", "shape differs", "not in the net"]


class Shaped(Protocol):
    """Whatever has a shape: a `TensorType`, an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all axes."""
        ...


@dataclass(frozen=True)
class Row:
    """One name in a coverage table."""

    name: str
    status: Status
    wanted: tuple[int, ...] | None
    given: tuple[int, ...] | None


@dataclass(frozen=True)
class Coverage:
    """What `match_weights` found: every name of either side, and the arrays that fit."""

    rows: tuple[Row, ...]
    arrays: dict[str, NDArray[Any]]

    def count(self, status: Status) -> int:
        """How many names have this status."""
        return sum(row.status == status for row in self.rows)

    def render(self) -> str:
        """The table as text: one line a name, then the totals."""
        width = max((len(row.name) for row in self.rows), default=0)
        lines = [
            f"{row.name:{width}}  {_shape(row.wanted):18} {_shape(row.given):18} {row.status}" for row in self.rows
        ]
        totals = [f"{count} {status}" for status in _STATUSES if (count := self.count(status))]
        return "\n".join([*lines, ", ".join(totals)])


_STATUSES: tuple[Status, ...] = ("loaded", "missing", "shape differs", "not in the net")


def match_weights(
    wanted: Mapping[str, Shaped],
    given: Mapping[str, NDArray[Any]],
    *,
    partial: bool = False,
    source: str = "the weights",
) -> Coverage:
    """Lay the arrays of a file against the states of a net, by name and shape.

    Raises one `InputError` that lists every name that is missing, of another shape, or not in the net. With `partial`
    (fine-tuning) what fits is taken and the table says what does not; only no fit at all is an error.
    """
    rows = [_row(name, kind.shape, given.get(name)) for name, kind in wanted.items()]
    rows += [
        Row(name, "not in the net", None, tuple(array.shape)) for name, array in given.items() if name not in wanted
    ]
    coverage = Coverage(tuple(rows), {row.name: given[row.name] for row in rows if row.status == "loaded"})
    if partial:
        if wanted and not coverage.arrays:
            raise InputError(f"nothing in {source} fits the net", notes=tuple(coverage.render().splitlines()))
        return coverage
    problems = [_problem(row, wanted, given, source) for row in rows if row.status != "loaded"]
    if problems:
        raise InputError(problems)
    return coverage


def _row(name: str, shape: tuple[int, ...], array: NDArray[Any] | None) -> Row:
    if array is None:
        return Row(name, "missing", tuple(shape), None)
    fits = tuple(array.shape) == tuple(shape)
    return Row(name, "loaded" if fits else "shape differs", tuple(shape), tuple(array.shape))


def _problem(row: Row, wanted: Mapping[str, Shaped], given: Mapping[str, Any], source: str) -> Problem:
    if row.status == "missing":
        spare = [name for name in given if name not in wanted]
        return Problem(
            f"{source}: `{row.name}` is missing", expected=_shape(row.wanted), hint=did_you_mean(row.name, spare)
        )
    if row.status == "not in the net":
        open_ = [name for name in wanted if name not in given]
        return Problem(
            f"{source}: the net has no `{row.name}`", got=_shape(row.given), hint=did_you_mean(row.name, open_)
        )
    return Problem(f"{source}: `{row.name}` has another shape", expected=_shape(row.wanted), got=_shape(row.given))


def _shape(shape: tuple[int, ...] | None) -> str:
    return "-" if shape is None else str(list(shape))
