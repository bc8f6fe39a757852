"""The option `--shape`: sizes of inputs that a file leaves open."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from netspec.errors import InputError, Problem

Shapes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="INPUT=1,28,28", help="The shape of a sample, for an input whose file leaves it open."
    ),
]


def shapes_of(given: list[str] | None) -> dict[str, tuple[int, ...]]:
    """The shapes given as `name=1,28,28`. Raises `InputError` with all that are none."""
    found: dict[str, tuple[int, ...]] = {}
    problems: list[Problem] = []
    for text in given or ():
        name, sign, sizes = text.rpartition("=")
        numbers = sizes.split(",")
        if not name or not sign or not all(one.isascii() and one.isdigit() and int(one) for one in numbers):
            problems.append(Problem(f"`{text}` is no shape of an input", expected="--shape INPUT=1,28,28"))
        else:
            found[name] = tuple(map(int, numbers))
    if problems:
        raise InputError(problems)
    return found
