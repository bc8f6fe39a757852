"""`netspec data`: what a training reads, in figures and pictures; the kinds of sources; the known sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Json, Overrides, Training, writable
from netspec.cli.output import print_json, table
from netspec.cli.sets import get, sets, unpack
from netspec.errors import InputError, did_you_mean, listing

app = command_app("Look at the data of a training, list sources, fetch sets.")
app.info.epilog = examples("netspec data show train.yaml", "netspec data ls", "netspec data get cifar10")

SPLITS = ("train", "test")


def _split(given: str) -> str:
    if given not in SPLITS:
        hint = did_you_mean(given, SPLITS)
        raise InputError("--split: there is no such part", expected=f"one of {listing(SPLITS)}", got=given, hint=hint)
    return given


def _not_negative(option: str, given: float) -> None:
    if not given >= 0:
        raise InputError(f"{option} must be 0 or more", got=str(given))


@app.command(
    "show",
    cls=Plain,
    epilog=examples(
        "netspec data show train.yaml",
        "netspec data show train.yaml --split test --out test.png --samples 40",
        "netspec data show train.yaml data.train.limit=1000 --json",
    ),
)
def show(
    spec: Training,
    overrides: Overrides = None,
    *,
    split: Annotated[
        str, typer.Option("--split", metavar="NAME", callback=_split, help="Show this split: train or test.")
    ] = "train",
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write the images to this file [default: data_train.png or data_test.png].",
            show_default=False,
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", metavar="N", help="Show N samples; 0 shows none and writes no file.")
    ] = 24,
    read: Annotated[
        int, typer.Option("--read", metavar="N", help="Compute statistics over at most N samples; 0 takes all.")
    ] = 10_000,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="Measure the loader's rate for S seconds; 0 skips it.")
    ] = 2.0,
    as_json: Json = False,
) -> None:
    """Show training data before and after transforms.

    Printed are fields with their types, ranges, means and deviations, raw and prepared, per channel; classes and how
    many samples each has; what the training data settles for all; how many samples the loader prepares in a second.
    Images are written as a PNG: each sample as it is read, and as it is in three epochs. Other samples are printed as
    rows. With --json: one object.
    """
    from netspec.cli.data_report import print_report
    from netspec.tools.data_report import Shown, write_sheet

    for option, given in (("--samples", samples), ("--read", read), ("--seconds", seconds)):
        _not_negative(option, given)
    if out is not None and Path(out).suffix.lower() != ".png":
        raise InputError("--out: the pictures are written as a PNG", expected="a name that ends in .png", got=out)
    target = writable(Path(out or f"data_{split}.png"), "--out") if samples else None
    shown = Shown.of(spec, overrides or (), split, read)
    sheet = write_sheet(shown, target, samples) if target else None
    rows = shown.rows(samples) if sheet is None else []
    if as_json:
        rate = shown.rate(seconds)
        print_json({**shown.as_json(), "rows": rows, "samples_per_second": rate, "sheet": sheet and str(sheet)})
        return
    print_report(shown, rows)
    if sheet is not None:
        print(f"\npictures: {sheet}")
    # The last, since it is what damaged samples end: the figures above say how many there are.
    if (rate := shown.rate(seconds)) is not None:
        print(f"\nloader: {rate:,.0f} samples/s with {shown.threads}")


@app.command("ls", cls=Plain, epilog=examples("netspec data ls", "netspec data ls --json"))
def ls(as_json: Json = False) -> None:
    """List the kinds of data that can be read, as `source` in a split."""
    import netspec.data  # noqa: F401  # makes the sources known
    from netspec.schema.specs.data import SOURCES

    found = [
        {"source": name, "reads": (SOURCES[name].__doc__ or "").strip().splitlines()[0]} for name in SOURCES.names()
    ]
    if as_json:
        print_json(found)
        return
    table(["source", "what it reads"], [[one["source"], one["reads"]] for one in found])


app.command("sets", cls=Plain, epilog=examples("netspec data sets", "netspec data sets --json"))(sets)
app.command(
    "get", cls=Plain, epilog=examples("netspec data get cifar10", "netspec data get fashion_mnist --path sets/fashion")
)(get)
app.command("unpack", cls=Plain, epilog=examples("netspec data unpack cifar10 cifar10_png"))(unpack)
