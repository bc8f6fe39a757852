"""`netspec data`: inspect the data of a training file; list sources; list and download datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import CommandApp
from netspec.cli.datasets import get, list_, unpack
from netspec.cli.options import Json, Overrides, Training, writable
from netspec.cli.output import print_json
from netspec.tools.bounds import require_at_least

app = CommandApp(
    "Inspect training data; list and download datasets.",
    "netspec data show train.yaml",
    "netspec data list",
    "netspec data get cifar10",
)


@app.add_command(
    "netspec data show train.yaml",
    "netspec data show train.yaml --split test --output test.png --samples 40",
    "netspec data show train.yaml data.train.limit=1000 --json",
    name="show",
)
def show(
    spec: Training,
    overrides: Overrides = None,
    *,
    split: Annotated[
        str, typer.Option("--split", metavar="NAME", help="Show this split: train, validation or test.")
    ] = "train",
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Write images to this PNG [default: data_SPLIT.png].")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", metavar="N", help="Show N samples.")] = 24,
    read: Annotated[int, typer.Option("--read", metavar="N", help="Read at most N samples (0: all).")] = 10_000,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="Time the loader for S seconds; 0 skips it.")
    ] = 2.0,
    as_json: Json = False,
) -> None:
    """Show the data of a training file, before and after transforms.

    Prints types, ranges, means and standard deviations of all fields, the number of samples of each class, values
    learned from the training data (such as vocabularies), and how many samples per second the loader prepares. For a
    table, prints the type, missing values and statistics of each column, and rows as they are in the file. Writes
    images to a PNG file: each sample as it is read, and as it is transformed in three epochs. Prints samples of other
    kinds as rows.
    """
    from netspec.cli.data_report import print_report
    from netspec.tools.data_report import inspect_data

    require_at_least(0, {"--samples": samples, "--read": read, "--seconds": seconds})
    target = Path(output or f"data_{split}.png")
    if samples or output is not None:
        writable(target, "--output", ".png")
    report = inspect_data(spec, overrides=overrides or (), split=split, max_samples=read)
    sheet = str(target) if samples and report.write_contact_sheet(target, samples) else None
    rows = report.rows(samples) if sheet is None else []
    if as_json:
        rate = report.rate(seconds)
        print_json({**report.as_json(), "rows": rows, "samples_per_second": rate, "contact_sheet": sheet})
        return
    print_report(report, rows)
    if sheet is not None:
        print(f"\nimages: {sheet}")
    # The rate comes last: damaged samples end its measurement, and the statistics above say how many there are.
    if (rate := report.rate(seconds)) is not None:
        print(f"\nloader: {rate:,.0f} samples/s with {report.threads}")


app.add_command("netspec data list", "netspec data list --json", name="list")(list_)
app.add_command("netspec data get cifar10", "netspec data get fashion_mnist --path sets/fashion", name="get")(get)
app.add_command("netspec data unpack cifar10 cifar10_png", name="unpack")(unpack)
