"""`netspec test`: evaluate weights on the test data."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import Device, Json, Overrides, Threads, TrainingModel, Weights, find_weights
from netspec.cli.output import count, print_json, table
from netspec.errors import InputError, format_digits

if TYPE_CHECKING:
    from netspec.layers.losses_and_metrics import TableRow

app = CommandApp()


@app.add_command(
    "netspec test runs/lenet_mnist",
    "netspec test runs/lenet_mnist --split validation",
    "netspec test runs/lenet_mnist --report --output results",
    "netspec test train.yaml --weights weights.h5 data.test.batch_size=500 --json",
)
def evaluate(
    spec: TrainingModel,
    overrides: Overrides = None,
    *,
    weights: Weights = None,
    split: Annotated[
        str,
        typer.Option("--split", metavar="NAME", help="Evaluate this split of the data."),
    ] = "test",
    device: Device = "auto",
    threads: Threads = None,
    report: Annotated[
        bool, typer.Option("--report", help="Add tables: results per class, or regression errors.")
    ] = False,
    output_folder: Annotated[
        str | None, typer.Option("--output", metavar="DIR", help="Write metrics.json, tables as CSV, matrices as PNG.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate weights on the test data, or on another split.

    Prints the loss and each metric over all samples. With --json, prints an object with samples, loss, metrics, and
    `tables` for metrics with several values.
    """
    if output_folder is not None and Path(output_folder).suffix and not Path(output_folder).is_dir():
        raise InputError("--output names a file", expected="a folder for metrics.json and others", got=output_folder)
    spec, weights = find_weights(spec, weights)
    from netspec.tools.inference.predict import test

    evaluation = test(
        spec, weights=weights, overrides=overrides or (), device=device, split=split, report=report,
        output=output_folder,
    )  # fmt: skip
    if evaluation.data_change is not None:
        print(f"warning: {evaluation.data_change}", file=sys.stderr)
    if evaluation.non_finite:
        print(
            f"warning: not finite (nan or infinite) on the {split} data: {', '.join(evaluation.non_finite)}",
            file=sys.stderr,
        )
    for note in evaluation.notes:
        print(f"note: on the {split} data, {note}", file=sys.stderr)
    if as_json:
        print_json(evaluation.as_json())
        return
    loss = [] if evaluation.loss is None else [["loss", f"{evaluation.loss:.6f}"]]
    metrics = [[name, f"{value:.6f}"] for name, value in evaluation.metrics.items()]
    metrics += [
        [f"{name} in the target's unit", format_digits(value, 6)] for name, value in evaluation.in_units.items()
    ]
    left_out = [["left out", count(evaluation.skipped)]] if evaluation.skipped else []
    rows = [[f"{split} samples", count(evaluation.samples)], *left_out, *loss, *metrics]
    table(["", ""], rows, right=(1,))
    for sample in evaluation.damaged:
        print(f"left out: {sample}")
    if output_folder is not None:
        print(f"written: {output_folder}")
    for name, values in evaluation.tables.items():
        print()
        _print_values(name, values)


def _print_values(name: str, values: TableRow | Mapping[str, TableRow]) -> None:
    """Print values by their names, or a table."""
    from netspec.tools.inference.evaluation_files import AXES, is_confusion_matrix

    rows: dict[str, dict[str, float]] = {}
    for row, value in values.items():
        rows[row] = dict(value) if isinstance(value, Mapping) else {"": value}
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    title = f"{name} ({AXES})" if is_confusion_matrix([*rows], columns) else name
    lines = [
        [row, *(_number(cells[column]) if column in cells else "" for column in columns)] for row, cells in rows.items()
    ]
    table([title, *columns], lines, right=range(1, len(columns) + 1))


def _number(value: float) -> str:
    """Format a count as an integer, another value with six decimals."""
    return count(value) if isinstance(value, int) else f"{value:.6f}"
