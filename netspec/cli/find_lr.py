"""`netspec train --find-lr`: print a learning rate range test and the rate that it suggests."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from netspec.cli.options import CHART_SUFFIXES, writable
from netspec.cli.output import count, print_json, table
from netspec.errors import command, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netspec.tools.learning_rate import LearningRateTest

ROWS = 14
"""Number of rows of the table."""
WIDTH = 100
"""Width of the chart, if the output is not a terminal."""


def find_lr(
    spec: str, overrides: list[str], *, weights: str | None, device: str, output: Path | None, as_json: bool
) -> None:
    """Run the test, and print the losses, a chart and the suggestion."""
    from netspec.tools.learning_rate import find_learning_rate
    from netspec.training.plotting.charts import as_text

    if output is not None:
        writable(output, "--output", CHART_SUFFIXES)
    result = find_learning_rate(spec, overrides=overrides, weights=weights, device=device, output=output)
    if as_json:
        print_json(result.as_json())
        return
    _print_losses(result)
    if output is None:
        width = min(WIDTH, shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH)
        smoothed = [curve for chart in result.charts() for curve in chart.curves][1:]
        for chart in result.charts():
            print("\n" + "\n".join(as_text(type(chart)(chart.title, chart.x, smoothed, across=chart.across), width)))
    print("\n" + "\n".join(_summary(result, spec, overrides, output)))
    if result.suggested is not None and result.field is not None:
        print(f"\nnext:\n  {command('train', spec, *overrides, f'{result.field}={result.suggested:g}')}")


def _print_losses(result: LearningRateTest) -> None:
    """Print a table of evenly spread rates, including the lowest loss, the steepest descent and the divergence."""
    end = "then not finite" if result.not_finite else "diverged"
    remarks = {result.lowest: "lowest loss", result.steepest: "steepest descent", result.diverged_at: end}
    rates, last = result.learning_rates, len(result.learning_rates) - 1
    chosen_rows = {round(index * last / (ROWS - 1)) for index in range(ROWS)} if rates else set()
    chosen_rows |= {rates.index(rate) for rate in remarks if rate is not None}
    rows = [
        [f"{rates[index]:.2g}", f"{result.losses[index]:.4f}", f"{result.smoothed[index]:.4f}",
         remarks.get(rates[index], "")]
        for index in sorted(chosen_rows)
    ]  # fmt: skip
    table(["learning rate", "loss", "smoothed", ""], rows, right=(0, 1, 2))


def _summary(result: LearningRateTest, spec: str, overrides: list[str], output: Path | None) -> Iterator[str]:
    steps = f"{counted(len(result.losses), 'step')} with batches of {count(result.batch_size)}"
    if result.not_finite:
        yield f"{steps}, at learning rates up to {result.diverged_at:.2g}" if result.losses else steps
        yield f"the loss or a gradient is not finite: `{command('train', spec, *overrides)}` names the first operation"
    else:
        end = "" if result.diverged_at is None else f", until the loss diverged at {result.diverged_at:.2g}"
        yield f"{steps}: the learning rate grew from {result.learning_rates[0]:.2g}{end}" if result.losses else steps
    if result.suggested is None or result.lowest is None or result.steepest is None:
        check = "" if result.not_finite else "; check the data and the net"
        yield f"the loss did not fall at any of these rates, so none is suggested{check}"
    else:
        yield f"the loss falls fastest at {result.steepest:.2g}, and is lowest at {result.lowest:.2g}"
        yield (
            f"suggested: {result.suggested:g}, a tenth of the rate with the lowest loss, or the rate of the steepest "
            "descent if that is lower"
        )
    field = f" ({result.field})" if result.field is not None else ", the highest rate of its schedule"
    yield f"{spec} has {result.current:g}{field}"
    yield f"{output}: the losses over the learning rate; nothing else was written" if output else "nothing was written"
