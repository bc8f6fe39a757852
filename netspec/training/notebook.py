"""HTML for notebooks: the layers of a model, the curves of a run, and the progress of a training."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

from netspec.compile import Compiler, ProgramKind
from netspec.compile.layer_costs import layer_costs
from netspec.training.evaluation import Evaluation
from netspec.training.events import SPLITS, Event, format_event, values_of
from netspec.training.plotting.chart_drawing import as_svg
from netspec.training.plotting.charts import Chart, Curve

REDRAW_EVERY = 0.3
"""Seconds between two updates of the progress, so that it does not slow down the training."""


def html_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; columns whose cells are all numbers are aligned right."""
    cells = [list(row) for row in rows]
    numeric = [all(isinstance(row[index], (int, float)) for row in cells) for index in range(len(header))]
    styles = [f' style="text-align: {"right" if right else "left"}"' for right in numeric]

    def line(tag: str, row: Sequence[object]) -> str:
        texts = (f"{cell:,}" if isinstance(cell, (int, float)) else escape(str(cell)) for cell in row)
        return (
            "<tr>"
            + "".join(f"<{tag}{style}>{text}</{tag}>" for style, text in zip(styles, texts, strict=True))
            + "</tr>"
        )

    return "<table>" + "".join([line("th", header), *(line("td", row) for row in cells)]) + "</table>"


def model_html(title: str, compiler: Compiler) -> str:
    """Return the layers of a net, with the shape of a sample's output and the number of parameters."""
    layers = layer_costs(compiler, compiler.net_graph(ProgramKind.PREDICT, 1))
    rows = [(layer.name, layer.type, list(layer.output_shape[1:]), layer.parameters) for layer in layers]
    return f"<p>{escape(title)}</p>" + html_table(["layer", "type", "output", "parameters"], rows)


def run_html(title: str, history: Iterable[Event], results: Mapping[str, Evaluation | None]) -> str:
    """Return the final evaluations of a run, and the curves of its losses and metrics."""
    curves: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for event in history:
        split = event.get("split", "test") if event["event"] == "test" else "train"
        for name, value in values_of(event).items():
            if value is not None:
                steps, values = curves.setdefault(name, {}).setdefault(SPLITS.get(split, split), ([], []))
                steps.append(event["step"])
                values.append(value)
    charts = [
        Chart(name, "step", [Curve(split, *points) for split, points in by_split.items()])
        for name, by_split in curves.items()
    ]
    final = {split: values_of(evaluation.as_json()) for split, evaluation in results.items() if evaluation is not None}
    names = list(dict.fromkeys(name for values in final.values() for name in values))
    rows = [[split, *(_rounded(values.get(name)) for name in names)] for split, values in final.items()]
    return f"<p>{escape(title)}</p>" + html_table(["data", *names], rows) * bool(rows) + as_svg(charts) * bool(charts)


class NotebookProgress:
    """Listener that shows a training in the output of a notebook cell: a bar, the loss, and the evaluations so far."""

    def __init__(self) -> None:
        self._display: Any = None
        self._drawn = 0.0
        self._done = False
        self._lines: list[str] = []
        self._step: Event = {}
        self._evaluations: dict[tuple[int, str], Event] = {}

    def __call__(self, event: Event) -> None:
        """Show an event."""
        match event["event"]:
            case "log" | "progress":
                self._step = event
                if time.perf_counter() - self._drawn < REDRAW_EVERY and event["step"] < event["steps"]:
                    return
            case "test":
                self._evaluations[event["step"], event.get("split", "test")] = event
            case "done":
                self._done = True
                self._lines.append(format_event(event))
            case "start" | "warning" | "note" | "init_from":
                self._lines.append(format_event(event))
            case _:
                return
        self._show()

    def _show(self) -> None:
        self._drawn = time.perf_counter()
        notebook = import_module("IPython.display")  # installed, since the program runs in a kernel
        html = notebook.HTML("".join(self._html()))
        if self._display is None:
            self._display = notebook.display(html, display_id=True)
        else:
            self._display.update(html)

    def _html(self) -> Iterator[str]:
        yield "".join(f"<div>{escape(line)}</div>" for line in self._lines)
        if (step := self._step) and not self._done:
            yield f'<progress value="{step["step"]}" max="{step["steps"]}"></progress> {escape(format_event(step))}'
        if self._evaluations:
            names = list(dict.fromkeys(name for event in self._evaluations.values() for name in values_of(event)))
            rows = [
                [step, split, *(_rounded(values_of(event).get(name)) for name in names)]
                for (step, split), event in self._evaluations.items()
            ]
            yield html_table(["step", "data", *names], rows)


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


def in_notebook() -> bool:
    """Return whether the program runs in a kernel of Jupyter, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")
