"""`netspec runs`: list the runs below a folder, with their results and the settings in which they differ."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Json
from netspec.cli.output import count, print_json, table
from netspec.errors import InputError, listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netspec.tools.runs import RunSummary

app = command_app()
MAX_SETTINGS = 5
"""Number of settings that the table shows; `--json` and `--csv` have all."""
LONG = 24
"""Characters of a setting, such as a path, above which its column is the last."""
MAX_METRICS = 4
"""Number of metrics that the table shows, in addition to the monitored value."""


@app.command(
    cls=Plain,
    epilog=examples("netspec runs", "netspec runs experiments --sort best --reverse", "netspec runs --csv > runs.csv"),
)
def runs(
    folder: Annotated[
        str, typer.Argument(metavar="[DIR]", help="Search this folder and all below it [default: runs].")
    ] = "runs",
    sort: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Sort by a column, metric or setting [default: started].")
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Sort from high to low.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with all metrics and settings.")] = False,
    as_json: Json = False,
) -> None:
    """List runs: state, results, and the settings that differ.

    `last` and `best` are the monitored value of the last and of the best evaluation. A run is running, finished,
    failed, stopped (on request or killed), or damaged. FIELD is a column such as `best`, a metric such as
    `test/accuracy`, or a setting such as `train.seed`. Reads only the beginning and the end of each log.
    """
    if as_csv and as_json:
        raise InputError("--csv and --json cannot be combined")
    from netspec.tools.runs import runs as list_runs

    listed = list_runs(folder, sort=sort, reverse=reverse)
    if as_json:
        print_json([summary.as_json() for summary in listed])
    elif as_csv:
        _print_csv(listed)
    elif not listed:
        print(f"there are no runs in {folder}")
    else:
        _print_table(listed)


def _print_csv(listed: Sequence[RunSummary]) -> None:
    rows = [summary.row() for summary in listed]
    writer = csv.DictWriter(sys.stdout, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _print_table(listed: Sequence[RunSummary]) -> None:
    """Print state, best value and duration first, then what differs, and long settings such as paths last."""
    from netspec.training.events import duration

    settings = list(dict.fromkeys(name for summary in listed for name in summary.settings))
    monitors = list(dict.fromkeys(summary.monitor for summary in listed if summary.monitor))
    metrics = list(dict.fromkeys(name for summary in listed for name in summary.metrics if name not in monitors))
    setting_columns, figures = settings[:MAX_SETTINGS], metrics[:MAX_METRICS]
    best = f"best {monitors[0]}" if len(monitors) == 1 else "best"
    columns = {
        "run": [summary.name for summary in listed],
        "state": [summary.state for summary in listed],
        **({"monitor": [summary.monitor or "" for summary in listed]} if len(monitors) > 1 else {}),
        best: [_cell(summary.best) for summary in listed],
        "at step": [_cell(summary.best_step) for summary in listed],
        "last": [_cell(summary.last) for summary in listed],
        "time": ["" if summary.seconds is None else duration(summary.seconds) for summary in listed],
    }
    texts = {"run", "state", "monitor", "started", *setting_columns}
    cells = {name: [_cell(summary.settings.get(name)) for summary in listed] for name in setting_columns}
    long = {name: column for name, column in cells.items() if max(map(len, column)) > LONG}
    columns |= {name: column for name, column in cells.items() if name not in long}
    columns |= {name: [_cell(summary.metrics.get(name)) for summary in listed] for name in figures}
    columns |= {
        "steps": [_steps(summary) for summary in listed],
        "started": [(summary.started or "")[:16].replace("T", " ") for summary in listed],
        **long,
    }
    right = [index for index, name in enumerate(columns) if name not in texts]
    table(list(columns), list(zip(*columns.values(), strict=True)), right=right)
    for summary in listed:
        if summary.problem is not None:
            print(f"{summary.name} {summary.state}: {summary.problem}")
    left_out = [*settings[MAX_SETTINGS:], *metrics[MAX_METRICS:]]
    if left_out:
        print(f"not shown: {listing(left_out, 8)}; --json and --csv have all")


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
    return f"{value:.5g}" if isinstance(value, float) else str(value)
