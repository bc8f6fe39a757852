"""`netspec check`: find the mistakes in specs before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from netspec.cli import DONE, WRONG_INPUT
from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import (
    FORMATS,
    BatchOrOpen,
    Device,
    Form,
    Json,
    Opset,
    batch_or_open,
    files_and_overrides,
    form_of,
)
from netspec.cli.output import count, print_json
from netspec.errors import InputError, Problem

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec check train.yaml",
        "netspec check train.yaml vars.width=64 solver.learning_rate=0.1",
        "netspec check train.yaml --run",
        "netspec check train.yaml --export onnx --opset 17",
        "netspec check train.yaml --export caffe",
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
    run: Annotated[
        bool, typer.Option("--run", help="Also run some steps, to find out what train files say under `expect`.")
    ] = False,
    device: Device = "auto",
    export: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help=f"Also find what an export would lose: {FORMATS}.",
            show_default=False,
        ),
    ] = None,
    batch_size: BatchOrOpen = "symbolic",
    opset: Opset = None,
    form: Form = "inference",
    as_json: Json = False,
) -> int:
    """Find the mistakes in net and train files.

    Everything that can be known without data and weights is checked: fields, names, the shapes of all layers, that the
    update can be built, what `expect` says of the net and, with --export, which layers have no form in that format,
    need a newer operator set or are tied to the batch size: before training is spent on them. All mistakes are listed,
    each with its line. What `netspec export` would note is told on stderr: of a train file also what the format has
    not of data, losses, solver and schedule. With --json: a list of objects with file, line, column, path, message,
    expected, got and hint; empty if nothing is wrong.
    """
    from netspec.cli.preflight import Export, preflight

    files, overrides = files_and_overrides(specs)
    if not files:
        raise InputError("which file to check is not said", expected="`netspec check SPEC`, changes after it")
    batch, wanted = batch_or_open(batch_size), form_of(form)
    if export is None and (batch is not None or opset is not None or wanted is not None):
        raise InputError("--batch-size, --opset and --form are of an export", hint="add --export onnx")
    target = Export(export, batch, opset, wanted) if export is not None else None
    problems: list[tuple[str, Problem]] = []
    for file in dict.fromkeys(files):
        notes: list[str] = []
        try:
            cleared = preflight(file, overrides, target, notes.append)
        except InputError as error:
            problems += [(file, problem) for problem in error.problems]
        else:
            if not as_json:
                facts = f"{count(cleared.layers)} layers, {count(cleared.parameters)} parameters"
                told = f"; {export} has a form for {'the net' if notes else 'all of it'}" if export is not None else ""
                print(f"{file}: the {cleared.kind} `{cleared.name}` is right: {facts}{told}")
            if run:
                problems += [(file, problem) for problem in _tried(file, overrides, device, quiet=as_json)]
        for note in notes:
            print(f"{file}: note: {note}", file=sys.stderr)
    if as_json:
        print_json([_located(file, problem) for file, problem in problems])
        return WRONG_INPUT if problems else DONE
    if problems:
        raise InputError(problem for _, problem in problems)
    return DONE


def _tried(file: str, overrides: Sequence[str], device: str, *, quiet: bool) -> Iterator[Problem]:
    """What is not as a train file expects, found out by running it; a line is printed for each expectation."""
    from netspec.cli.specs import load_spec
    from netspec.schema.train import TrainSpec
    from netspec.train.expected import run_expectations

    spec = load_spec(file, overrides)
    for found in run_expectations(spec, device) if isinstance(spec, TrainSpec) else ():
        if not quiet:
            print(f"{file}: {found.told}")
        if found.problem is not None:
            yield found.problem


def _located(file: str, problem: Problem) -> dict[str, Any]:
    """The problem as JSON; one without a place is the file's as a whole."""
    found = problem.as_json()
    return {**found, "file": found["file"] or file}
