"""The options `--shape` and `--value`: what the user says of inputs that a file leaves open."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from netspec.errors import InputError, Problem

Shapes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="INPUT=1,28,28",
        help="Sizes that the file leaves open: of an input, with or without the batch, or of a named axis (height=28).",
    ),
]

Values: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--value", metavar="INPUT=16000", help="Have an input always be this number, or these (1,2,3): it is none then."
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


def values_of(given: list[str] | None) -> dict[str, tuple[float, ...]]:
    """The values given as `name=16000` or `name=1,2,3`. Raises `InputError` with all that are none."""
    found: dict[str, tuple[float, ...]] = {}
    problems: list[Problem] = []
    for text in given or ():
        name, _, numbers = text.rpartition("=")
        try:
            found[name] = tuple(
                int(one) if one.strip().lstrip("+-").isdecimal() else float(one) for one in numbers.split(",")
            )
        except ValueError:
            name = ""
        if not name:
            problems.append(Problem(f"`{text}` is no value of an input", expected="--value INPUT=16000"))
    if problems:
        raise InputError(problems)
    return found
