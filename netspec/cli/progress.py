"""Show a training while it runs: a bar on a terminal, lines in a file or a pipe, JSON for a program.

Each is a listener of the training's events.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from netspec.cli.output import print_json_line
from netspec.training.events import SPLITS, Event, Listener, format_epoch, format_event

if TYPE_CHECKING:
    from rich.progress import Progress

REDRAW_EVERY = 0.2
"""Seconds between two drawings of the bar, so that it takes no time from the training."""

WIDE = 110
"""Columns of a terminal from which on the bar shows a metric of the training batches."""
MAX_NAME = 12
"""Longest name of a metric next to the bar, in characters."""


def json_lines(event: Event) -> None:
    """Print an event as one line of JSON; the frequent `progress` is left out, as in the log."""
    if event["event"] != "progress":
        print_json_line(event)


class EventLines:
    """Prints each event as one line of text, and a training loss in the line of the evaluation after the same step.

    The command itself reports the end; checkpoints are in the log files.
    """

    def __init__(self) -> None:
        self._log: Event | None = None
        """The training loss that is not printed yet."""

    def __call__(self, event: Event) -> None:
        """Print an event."""
        if event["event"] == "checkpoint":
            return
        if event["event"] == "test" and (line := format_epoch(self._log, event)) is not None:
            self._log = None
            print(line, flush=True)
            return
        self.flush()
        if event["event"] == "log":
            self._log = event
        elif event["event"] not in ("progress", "done"):
            print(format_event(event), flush=True)

    def flush(self) -> None:
        """Print the training loss that was not printed yet."""
        if self._log is not None:
            print(format_event(self._log), flush=True)
        self._log = None


@contextmanager
def display(*, as_json: bool) -> Iterator[Listener]:
    """Yield the listener that suits the output: a terminal, a file or pipe, or a program."""
    if as_json:
        yield json_lines
    elif sys.stdout.isatty():
        with _bar() as bar:
            yield Bar(bar)
    else:
        lines = EventLines()
        try:
            yield lines
        finally:
            lines.flush()


def _bar() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(bar_width=16),
        TextColumn("step"),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TextColumn("{task.fields[test]}", style="green"),
        TextColumn("{task.fields[rate]}/s", style="dim"),
        TimeRemainingColumn(compact=True),
        auto_refresh=False,  # only events redraw: no second thread runs next to the training
        transient=True,
    )


class Bar:
    """Draws a bar with epoch, step, loss, the last test, rate and time left; prints the rest above it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("train", total=None, epoch="0.00", loss="train loss –", test="", rate="–")
        self._drawn = 0.0
        self._log: Event | None = None
        """The last training loss, until an evaluation is printed."""

    def __call__(self, event: Event) -> None:
        """Show an event."""
        match event["event"]:
            case "start":
                self._progress.update(self._task, total=event["steps"], completed=event["step"])
                self._print(format_event(event))
            case "log" | "progress":
                self._log = event if event["event"] == "log" else None
                self._step(event)
            case "test":
                if event.get("split", "test") in SPLITS:
                    self._progress.update(self._task, test=_figure(event))
                self._print(format_epoch(self._log, event) or format_event(event))
                self._log = None
            case "warning" | "note" | "init_from":
                self._print(format_event(event))

    def _step(self, event: Event) -> None:
        self._progress.update(
            self._task,
            completed=event["step"],
            epoch=f"{event['epoch']:.2f}",
            loss=f"train loss {event['loss']:.4f}{self._metric(event)}",
            rate=f"{event['samples_per_second']:,.0f}",
        )
        now = time.perf_counter()
        if now - self._drawn >= REDRAW_EVERY or event["step"] == event["steps"]:
            self._drawn = now
            self._progress.refresh()

    def _metric(self, event: Event) -> str:
        """The first metric of the training batches, if the bar has room for it."""
        if self._progress.console.width < WIDE or not event.get("metrics"):
            return ""
        name, value = next(iter(event["metrics"].items()))
        return f" {_short(name)} {value:.4f}"

    def _print(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False)
        self._progress.refresh()


def _figure(test: dict[str, Any]) -> str:
    """Format the first metric of an evaluation, or its loss. Long names are cut so that the bar fits 80 columns."""
    name, value = next(iter(test["metrics"].items()), ("loss", test["loss"]))
    return "" if value is None else f"{test.get('split', 'test')} {_short(name)} {value:.4f}"


def _short(name: str) -> str:
    """A name that is cut if it is too long."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
