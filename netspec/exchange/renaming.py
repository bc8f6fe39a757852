"""Other names for the arrays of a file, by patterns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.errors import InputError, Location, Problem, did_you_mean, listing
from netspec.schema.patterns import Pattern

if TYPE_CHECKING:
    from numpy.typing import NDArray

Placed: TypeAlias = Callable[..., Location | None]
"""Where a rule is written: `(pattern, key=True)` the pattern itself, `(pattern)` its new name, `()` all of them."""


def nowhere(*path: str, key: bool = False) -> Location | None:
    """Rules of a command line have no place in a file."""
    return None


def renamed(
    rules: Mapping[str, str | None],
    given: Mapping[str, NDArray[Any]],
    *,
    path: str = "--map",
    where: Placed = nowhere,
) -> dict[str, NDArray[Any]]:
    """The arrays by their new names: the first pattern that fits a name counts, and None leaves an array out.

    `path` and `where` say what the rules are called and where they stand, for messages. Raises `InputError` where a
    rule fits nothing or unites names.
    """
    patterns = {Pattern(text): target for text, target in rules.items()}
    used: set[str] = set()
    origins: dict[str, str] = {}
    problems: list[Problem] = []
    for name in given:
        rule = next((one for one in patterns if name in one), None)
        target: str | None = name
        if rule is not None:
            used.add(rule.text)
            to = patterns[rule]
            target = None if to is None else rule.renamed(name, to)
        if target is None:
            continue
        if target in origins:
            place = where(rule.text) if rule is not None else where()
            problems.append(Problem(f"two arrays of the file become `{target}`", place, path,
                                    got=f"`{origins[target]}` and `{name}`", expected="names that differ"))  # fmt: skip
        origins[target] = name
    problems += [
        fits_nothing(text, where(text, key=True), path, list(given), "the file") for text in rules if text not in used
    ]
    if problems:
        raise InputError(problems)
    return {target: given[name] for target, name in origins.items()}


def fits_nothing(text: str, place: Location | None, path: str, names: list[str], whose: str) -> Problem:
    """What is said of a pattern that no name fits."""
    return Problem(
        f"`{text}` fits no name in {whose}", place, path, expected=f"one of {listing(names)}",
        hint=did_you_mean(text, names),
    )  # fmt: skip
