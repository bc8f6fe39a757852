"""`netspec check`: find the mistakes in specs before anything runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from netspec.cli import DONE, WRONG_INPUT
from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Json, files_and_overrides
from netspec.cli.output import count, print_json
from netspec.errors import InputError, Problem

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec check train.yaml",
        "netspec check train.yaml vars.width=64 solver.learning_rate=0.1",
        "netspec check nets/*.yaml --json",
    ),
)
def check(
    specs: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC... [KEY=VALUE]... [~KEY]...",
            help="Net or train files, and changes that are made to each of them.",
            show_default=False,
        ),
    ],
    as_json: Json = False,
) -> int:
    """Find the mistakes in net and train files.

    Everything that can be known without data and weights is checked: fields, names, the shapes of all layers, that the
    update can be built. All mistakes are listed, each with its line. With --json: a list of objects with file, line,
    column, path, message, expected, got and hint; empty if nothing is wrong.
    """
    from netspec.cli.preflight import preflight

    files, overrides = files_and_overrides(specs)
    if not files:
        raise InputError("which file to check is not said", expected="`netspec check SPEC`, changes after it")
    problems: list[tuple[str, Problem]] = []
    for file in dict.fromkeys(files):
        try:
            cleared = preflight(file, overrides)
        except InputError as error:
            problems += [(file, problem) for problem in error.problems]
        else:
            if not as_json:
                facts = f"{count(cleared.layers)} layers, {count(cleared.parameters)} parameters"
                print(f"{file}: the {cleared.kind} `{cleared.name}` is right: {facts}")
    if as_json:
        print_json([_located(file, problem) for file, problem in problems])
        return WRONG_INPUT if problems else DONE
    if problems:
        raise InputError(problem for _, problem in problems)
    return DONE


def _located(file: str, problem: Problem) -> dict[str, Any]:
    """The problem as JSON; one without a place is the file's as a whole."""
    found = problem.as_json()
    return {**found, "file": found["file"] or file}
