"""`netspec check`: find the mistakes in specs before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from netspec.cli import DONE, WRONG_INPUT
from netspec.cli.app import CommandApp
from netspec.cli.options import (
    CHANGES,
    CHANGES_HELP,
    DYNAMIC,
    Device,
    Json,
    batch_or_dynamic,
    files_and_overrides,
)
from netspec.cli.output import print_json
from netspec.errors import InputError, Problem, counted

if TYPE_CHECKING:
    from netspec.tools.checking.check import CheckReport
    from netspec.training.diagnostics.expectation_checks import ExpectationResult

app = CommandApp()
Finding: TypeAlias = tuple[str, Problem]
"""A file, and a problem or warning about it."""


@app.add_command(
    "netspec check train.yaml",
    "netspec check train.yaml vars.width=64 solver.learning_rate=0.1",
    "netspec check train.yaml --strict",
    "netspec check train.yaml --run",
    "netspec check train.yaml --export onnx --opset 17",
    "netspec check nets/*.yaml --json",
)
def check(
    specs: Annotated[
        list[str],
        typer.Argument(
            metavar=f"MODEL... {CHANGES}", help=f"Check net or training files, runs or zoo models.\n{CHANGES_HELP}"
        ),
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    run: Annotated[bool, typer.Option("--run", help="Also run training steps, and check `expect`.")] = False,
    no_data: Annotated[bool, typer.Option("--no-data", help="Do not check the data.")] = False,
    device: Device = "auto",
    export: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Report what an export to this format would lose.")
    ] = None,
    batch_size: Annotated[str, typer.Option(metavar=f"N|{DYNAMIC}", help="Set the export's batch size.")] = DYNAMIC,
    opset: Annotated[
        int | None, typer.Option(metavar="N", help="Set the export's opset [default: the newest].")
    ] = None,
    form: Annotated[str, typer.Option(metavar="inference|training", help="Set the export's form.")] = "inference",
    as_json: Json = False,
) -> int:
    """Find errors in net and training files.

    Checks fields, names, the shapes of all layers, the solver, and the shapes and sizes that the file states under
    `expect`. Also checks that the data exists, and that its headers and first samples fit the net. Lists all errors
    with their lines, then warnings about probable mistakes: a loss that expects logits but gets probabilities, pixels
    without scaling, unused layers, and others.

    With --run, also runs a training step, and compares its loss and gradients with the reference kernels. A
    cross-entropy is also compared with that of equal probabilities for all classes. Reports parameters without a
    gradient, and the time and memory of a step. Then trains to check `first_loss` and `overfits` under `expect`.

    With --export, also lists layers that the format does not support. Notes about parts that an export leaves out, such
    as losses, go to stderr. Formats: onnx, keras, keras_weights (.weights.h5), caffe (.prototxt), caffemodel,
    caffemodel.h5, safetensors, npz, netspec (.h5).

    With --json, prints a list of objects, one for each error and warning; it is empty if nothing is wrong.
    """
    from netspec.tools.checking.check import check as check_spec

    files, overrides = files_and_overrides(specs)
    if not files:
        raise InputError("no file to check", expected="`netspec check MODEL`, with changes after it")
    batch = batch_or_dynamic(batch_size)
    problems: list[Finding] = []
    warnings: list[Finding] = []
    warning_list = problems if strict else warnings  # `--strict` reports warnings as problems
    for file in dict.fromkeys(files):
        notes: list[str] = []
        try:
            report = check_spec(
                file, overrides=overrides, export=export, batch_size=batch, opset=opset, form=form, data=not no_data,
                note=notes.append,
            )  # fmt: skip
        except InputError as error:
            problems += [(file, problem) for problem in error.problems]
        else:
            warning_list += [(file, problem) for problem in report.warnings]
            if not as_json and not (strict and report.warnings):
                print(f"OK: {file} ({_facts(report, export, has_notes=bool(notes))})")
            for result in _run_steps(file, overrides, device, quiet=as_json) if run else ():
                problems += [(file, result.problem)] if result.problem is not None else []
                warning_list += [(file, result.warning)] if result.warning is not None else []
        if notes:
            _print_notes(file, notes, as_json=as_json)
    return _report(problems, warnings, as_json=as_json)


def _facts(report: CheckReport, export: str | None, *, has_notes: bool) -> str:
    """Describe a file without errors: its size, the format it exports to, and the data that was read."""
    facts = f"{counted(report.layers, 'layer')}, {counted(report.parameters, 'parameter')}"
    if export is not None:
        facts += f"; exports to {export}{' with notes' * has_notes}"
    return facts + f"; data read: {report.data}" * bool(report.data)


def _report(problems: Sequence[Finding], warnings: Sequence[Finding], *, as_json: bool) -> int:
    """Print all findings; return the exit status. Raises `InputError` with the problems, unless they are JSON."""
    if as_json:
        print_json(
            [_located("error", *problem) for problem in problems]
            + [_located("warning", *warning) for warning in warnings]
        )
        return WRONG_INPUT if problems else DONE
    for _, warning in warnings:
        print(warning.render("warning"), file=sys.stderr)
    if problems:
        raise InputError(problem for _, problem in problems)
    return DONE


def _print_notes(file: str, notes: Sequence[str], *, as_json: bool) -> None:
    from netspec.exchange.notes import summarized  # a check without --export loads nothing of exchange

    for note in notes if as_json else summarized(notes):
        print(f"{file}: note: {note}", file=sys.stderr)


def _run_steps(file: str, overrides: Sequence[str], device: str, *, quiet: bool) -> Iterator[ExpectationResult]:
    """Run steps of a training file; print and yield the result of each check."""
    from netspec.tools.checking.check import check_expectations

    results = 0
    for result in check_expectations(file, overrides=overrides, device=device):
        results += 1
        if not quiet:
            print(f"{file}: {result.summary}")
        yield result
    if not results and not quiet:
        print(f"{file}: no step is run: a net file has no data to train on")


def _located(severity: str, file: str, problem: Problem) -> dict[str, Any]:
    """The problem as plain data; without a location it concerns the whole file."""
    data = problem.as_json()
    return {"severity": severity, **data, "file": data["file"] or file}
