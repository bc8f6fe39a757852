"""`netspec plot`: draw the learning rates of a training file, or losses and metrics of runs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import CHANGES, CHANGES_HELP, CHART_SUFFIXES, Json, files_and_overrides, writable
from netspec.cli.output import print_json
from netspec.errors import InputError, did_you_mean

app = CommandApp()
MAX_WIDTH = 100
"""Maximum width of a chart, in characters; used if the output is not a terminal."""


@app.add_command(
    "netspec plot train.yaml --schedule",
    "netspec plot train.yaml solver.learning_rate=0.1 --schedule --output rate.svg",
    "netspec plot runs/lenet_mnist --log",
    "netspec plot runs/a runs/b --x time --metric accuracy --output compared.png",
)
def plot(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar=f"RUN...|SPEC {CHANGES}", help=f"Draw runs, or with --schedule a training file.\n{CHANGES_HELP}"
        ),
    ],
    schedule: Annotated[bool, typer.Option("--schedule", help="Draw learning rates and momenta.")] = False,
    x: Annotated[str, typer.Option("--x", metavar="AXIS", help="Draw over step, epoch or time.")] = "step",
    metric: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Draw only this value; repeatable.")] = None,
    log: Annotated[bool, typer.Option("--log", help="Use a logarithmic vertical axis.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write SVG or PNG [default: print as text].")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw losses and metrics of runs, or learning rates.

    Several runs are drawn in the same charts, with a color for each. --metric takes `loss`, a metric, or
    `learning_rate`.

    A training file needs --schedule, because it has no losses yet; overrides such as `train.max_epochs=2` may follow
    it. ReduceLROnPlateau depends on the run, so the plot shows the rate without reductions.
    """
    from netspec.tools.comparing.curves import plot as plot_charts
    from netspec.tools.comparing.run_curves import AXES
    from netspec.training.plotting.charts import as_text

    if output is not None:
        writable(output, "--output", CHART_SUFFIXES)
    sources, overrides = files_and_overrides(words)
    axis = next((name for name in AXES if name == x), None)
    if axis is None:
        raise InputError(
            "--x: there is no such axis", expected=f"one of {', '.join(AXES)}", got=x, hint=did_you_mean(x, AXES)
        )
    charts = plot_charts(
        *sources, overrides=overrides, schedule=schedule, logarithmic=log, x=axis, metrics=metric, output=output
    )
    if as_json:
        print_json([chart.as_json() for chart in charts])
    elif output is None:
        width = min(MAX_WIDTH, shutil.get_terminal_size().columns if sys.stdout.isatty() else MAX_WIDTH)
        print("\n\n".join("\n".join(as_text(chart, width)) for chart in charts))
    else:
        print(f"{output}: {', '.join(chart.title for chart in charts)}")
