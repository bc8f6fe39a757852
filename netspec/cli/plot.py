"""`netspec plot`: the learning rates of a training to come, the figures of a run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Json, Overrides, writable
from netspec.cli.output import print_json
from netspec.errors import InputError

if TYPE_CHECKING:
    from netspec.tools.charts import Chart, Scale

app = command_app()
WIDEST = 100
"""Characters of a chart where the terminal has more, or there is none."""


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec plot train.yaml --schedule",
        "netspec plot train.yaml solver.learning_rate=0.1 --schedule --out rate.svg",
        "netspec plot runs/lenet-1 --log",
    ),
)
def plot(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC|RUN", help="Read this training file or run directory.", show_default=False)
    ],
    overrides: Overrides = None,
    schedule: Annotated[
        bool,
        typer.Option(
            "--schedule", help="Draw scheduled learning rates and momenta of a training file, or those of a run."
        ),
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="Draw values on a logarithmic axis.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write an SVG instead of drawing in the terminal.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw learning rates of a training, or figures of a run.

    No data is read and nothing is compiled for a schedule; where the length is in epochs the samples are counted. A
    rate that waits for a plateau depends on the run: drawn is what it is before any reduction.
    """
    if out is not None:
        writable(out, "--out")
        if out.suffix != ".svg":
            raise InputError("--out: a chart is written as SVG", expected="a file name that ends in .svg", got=str(out))
    from netspec.tools.charts import Scale, as_svg, as_text

    charts = _charts(spec, overrides or [], Scale(log), schedule=schedule)
    if out is not None:
        from netspec.exchange.files import write_atomically

        def write(path: Path) -> None:
            path.write_text(as_svg(charts), encoding="utf-8")

        write_atomically(out, write)
    if as_json:
        print_json([chart.as_json() for chart in charts])
    elif out is None:
        width = min(WIDEST, shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDEST)
        print("\n\n".join("\n".join(as_text(chart, width)) for chart in charts))
    else:
        print(f"{out}: {', '.join(chart.title for chart in charts)}")


def _charts(spec: str, overrides: list[str], scale: Scale, *, schedule: bool) -> list[Chart]:
    from netspec.tools.curves import run_charts, schedule_charts, scheduled_charts

    if Path(spec).is_dir():
        if overrides:
            raise InputError("unexpected argument: a run directory takes no changes", got=" ".join(overrides))
        return scheduled_charts(Path(spec), scale) if schedule else run_charts(Path(spec), scale)
    from netspec.schema.specs.train import TrainSpec
    from netspec.tools.specs import load_spec

    found = load_spec(spec, overrides)
    if not isinstance(found, TrainSpec):
        raise InputError("this is a net: it has no learning rate", location=found.where(), expected="a training file")
    if not schedule:
        hint = "--schedule draws its learning rate; after `netspec train`, give the folder of the run"
        raise InputError("a training file has no figures to draw yet", location=found.where(), hint=hint)
    return schedule_charts(found, scale)
