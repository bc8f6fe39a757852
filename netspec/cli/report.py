"""`netspec report`: one HTML page about a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import Device, Threads, writable

app = CommandApp()


@app.add_command(
    "netspec report runs/lenet_mnist",
    "netspec report runs/lenet_mnist --split validation --output lenet.html",
    "netspec report runs/lenet_mnist --log-only",
    "netspec report runs/lenet_mnist-search",
)
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Read this run directory, or that of a search.")],
    *,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write this file [default: report.html in RUN].")
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="Evaluate on this split [default: test, else validation].")
    ] = None,
    log_only: Annotated[bool, typer.Option("--log-only", help="Compute nothing: read only the log and spec.")] = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Write one HTML page about a run.

    The page contains curves, histograms, a confusion matrix, the samples with the highest losses, the net, times and
    memory of layers, the environment, and the spec. It can be read offline, without other files.

    Evaluates the weights of the run and times a step, which takes as long as `netspec test` and `netspec time`. A part
    whose data is missing shows the reason instead.

    The page of a search shows the best trial, and the values and results of all.
    """
    from netspec.tools.report.page import PAGE
    from netspec.tools.report.page import report as write_report

    if output is not None or Path(run).is_dir():
        writable(output or Path(run) / PAGE, "--output", ".html")
    path = write_report(run, output=output, split=split, log_only=log_only, device=device, on_progress=_note)
    print(path)


def _note(message: str) -> None:
    if sys.stderr.isatty():
        print(f"{message}…", file=sys.stderr, flush=True)
