"""`netspec runs`: list the runs below a folder, with their results and the settings in which they differ."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspec.cli.app import CommandApp
from netspec.cli.fitted_table import FittedColumn, print_fitted
from netspec.cli.options import Json
from netspec.cli.output import count, print_json
from netspec.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from netspec.tools.comparing.runs import RunSummary

app = CommandApp()
LONG = 24
"""Number of characters of a setting, such as a path, above which its column comes last."""
MAX_TEXT = 60
"""Maximum number of characters that the table shows of a list or mapping."""


@app.add_command("netspec runs", "netspec runs experiments --sort best", "netspec runs --csv > runs.csv")
def runs(
    folder: Annotated[
        str, typer.Argument(metavar="[DIR]", help="Search this folder and all below it [default: runs].")
    ] = "runs",
    sort: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Sort by a column, metric or setting [default: started].")
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with all metrics and settings.")] = False,
    as_json: Json = False,
) -> None:
    """List runs: state, results, and the settings that differ.

    Each net has a table of its own. `last` and `best` are the monitored value of the last and of the best evaluation. A
    run is running, finished, failed, stopped (on request or killed), or damaged. --sort takes a column such as `best`,
    a metric such as `test/accuracy`, or a setting such as `train.seed`; `best` puts the best run first.
    """
    if as_csv and as_json:
        raise InputError("--csv and --json cannot be combined")
    from netspec.tools.comparing.runs import runs as list_runs
    from netspec.tools.comparing.runs import runs_by_net

    if as_json or as_csv:
        listed = list_runs(folder, sort=sort, reverse=reverse)
        print_json([summary.as_json() for summary in listed]) if as_json else _print_csv(listed)
        return
    by_net = runs_by_net(folder, sort=sort, reverse=reverse)
    if not by_net:
        print(f"there are no runs in {folder}")
    for number, (net, of_net) in enumerate(by_net.items()):
        if len(by_net) > 1:
            print("\n" * (number > 0) + (f"net {net}:" if net else "without a net:"))
        _print_table(of_net)


def _print_csv(listed: Sequence[RunSummary]) -> None:
    rows = [summary.row() for summary in listed]
    writer = csv.DictWriter(sys.stdout, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _print_table(listed: Sequence[RunSummary]) -> None:
    columns = [column for column in _columns(listed) if any(column.cells)]
    print_fitted(columns, complete_in="--csv or --json")
    for summary in listed:
        if summary.problem is not None:
            print(f"{summary.name} {summary.state}: {summary.problem}")


def _columns(listed: Sequence[RunSummary]) -> Iterator[FittedColumn]:
    """Yield all columns in the order in which they are printed: long settings, such as paths, are the last."""
    from netspec.training.events import duration

    monitors = list(dict.fromkeys(summary.monitor for summary in listed if summary.monitor))
    settings = dict.fromkeys(name for summary in listed for name in summary.settings)
    metrics = dict.fromkeys(name for summary in listed for name in summary.metrics if monitors != [name])
    texts = {name: [_cell(summary.settings.get(name)) for summary in listed] for name in settings}
    long = {name: cells for name, cells in texts.items() if max(map(len, cells)) > LONG}
    yield FittedColumn("run", [summary.name for summary in listed], is_number=False)
    yield FittedColumn("state", [summary.state for summary in listed], is_number=False)
    if len(monitors) > 1:
        yield FittedColumn("monitor", [summary.monitor or "" for summary in listed], is_number=False)
    yield FittedColumn(
        f"best {monitors[0]}" if len(monitors) == 1 else "best", [_cell(summary.best) for summary in listed]
    )
    yield FittedColumn("at step", [_cell(summary.best_step) for summary in listed], rank=2)
    yield FittedColumn("last", [_cell(summary.last) for summary in listed], rank=2)
    seconds = [summary.seconds for summary in listed]
    yield FittedColumn("time", ["" if each is None else duration(each) for each in seconds], rank=4)
    for name, cells in texts.items():
        if name not in long:
            yield FittedColumn(name, cells, rank=1, is_number=False)
    for name in metrics:
        yield FittedColumn(name, [_cell(summary.metrics.get(name)) for summary in listed], rank=3)
    yield FittedColumn("steps", [_steps(summary) for summary in listed], rank=4)
    started = [(summary.started or "")[:16].replace("T", " ") for summary in listed]
    yield FittedColumn("started", started, rank=4, is_number=False)
    for name, cells in long.items():
        yield FittedColumn(name, cells, rank=5, is_number=False)


def _steps(summary: RunSummary) -> str:
    """Number of steps done, and of all steps if the run is not finished."""
    steps = "" if summary.step is None else count(summary.step)
    if summary.steps is not None and summary.step != summary.steps and summary.state != "finished":
        steps += f" of {count(summary.steps)}"
    return steps


def _cell(value: Any) -> str:
    """A value of the table; empty if a run does not have it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return count(value)
    text = f"{value:.5g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MAX_TEXT or text[0] not in "[{" else f"{text[: MAX_TEXT - 1]}…"
