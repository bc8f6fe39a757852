"""`netspec plot`: draw the learning rates of a training file, or losses and metrics of a run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Json, Overrides, writable
from netspec.cli.output import print_json

app = command_app()
MAX_WIDTH = 100
"""Maximum width of a chart, in characters; used if the output is not a terminal."""


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec plot train.yaml --schedule",
        "netspec plot train.yaml solver.learning_rate=0.1 --schedule --out rate.svg",
        "netspec plot runs/lenet_mnist --log",
    ),
)
def plot(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC|RUN", help="Read this training file or run directory.", show_default=False)
    ],
    overrides: Overrides = None,
    schedule: Annotated[
        bool,
        typer.Option("--schedule", help="Draw learning rates and momenta, not losses and metrics."),
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="Use a logarithmic vertical axis.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write an SVG instead of drawing in the terminal.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw losses and metrics of a run, or learning rates.

    A training file needs --schedule, because it has no losses yet. Reads data only to count the samples, if the length
    of the training is in epochs. ReduceLROnPlateau depends on the run, so the plot shows the rate without reductions.
    """
    if out is not None:
        writable(out, "--out", ".svg")
    from netspec.tools.curves import plot as plot_charts
    from netspec.training.charts import as_text

    charts = plot_charts(spec, overrides=overrides or (), schedule=schedule, logarithmic=log, out=out)
    if as_json:
        print_json([chart.as_json() for chart in charts])
    elif out is None:
        width = min(MAX_WIDTH, shutil.get_terminal_size().columns if sys.stdout.isatty() else MAX_WIDTH)
        print("\n\n".join("\n".join(as_text(chart, width)) for chart in charts))
    else:
        print(f"{out}: {', '.join(chart.title for chart in charts)}")
