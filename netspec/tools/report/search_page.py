"""The page about a search: the best values, how they were found, and all trials."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import accumulate
from typing import Any

from netspec.errors import command, counted
from netspec.tools.report.html import document, facts, paragraph, table
from netspec.tools.report.parallel_coordinates import parallel_coordinates
from netspec.tools.search import SearchResult
from netspec.training.events import duration
from netspec.training.plotting.drawing import svg


def search_page(result: SearchResult) -> tuple[str, str]:
    """Return the page of a search, and its Content-Security-Policy."""
    body = "".join(f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>" for title, parts in _sections(result))
    title = f"{result.folder.name} · netspec search"
    header = f"<header><h1>{escape(result.folder.name)}</h1>{''.join(_introduction(result))}</header>"
    return document(title, f"{header}<main>{body}</main>", {}, [])


def _introduction(result: SearchResult) -> Iterator[str]:
    states = [trial.state for trial in result.trials]
    counts = [f"{states.count(state)} {state}" for state in ("complete", "pruned", "failed") if state in states]
    seconds = duration(sum(trial.seconds for trial in result.trials))
    yield paragraph(f"{counted(len(result.trials), 'trial')} ({', '.join(counts)}), {seconds} of training")
    if result.warning:
        yield paragraph(result.warning, "warning")


def _sections(result: SearchResult) -> Iterator[tuple[str, Iterator[str]]]:
    if result.best is not None:
        yield "Best trial", _best(result)
    if result.importances:
        yield "Importance of the fields", _importances(result)
    if result.ranked():
        yield "Values and results", _coordinates(result)
        yield "Progress", _progress(result)
    yield "All trials", _trials(result)


def _best(result: SearchResult) -> Iterator[str]:
    best = result.best
    assert best is not None
    tested, fields = result.test_result(best), {name: _plain(value) for name, value in best.fields.items()}
    yield facts({result.monitor: best.value, **({} if tested is None else tested.values), **fields})
    if result.baseline is not None and result.baseline.number != best.number:
        before = result.test_result(result.baseline)
        values = {result.monitor: result.baseline.value, **({} if before is None else before.values)}
        text = ", ".join(f"{name} {value:.6g}" for name, value in values.items() if value is not None)
        yield paragraph(f"With the values in the file (trial {result.baseline.number}): {text}.")
    if tested is not None:
        text = "which chose neither the weights nor the trial, so results there are not optimistic"
        yield paragraph(f"The test data has {counted(tested.samples, 'sample')}, {text}.", "soft")
    yield paragraph(f"Trial {best.number}, in {best.run_dir}. All settings: {result.best_spec}.")
    yield f"<pre>{escape(command('train', result.best_spec))}\n{escape(command('report', best.run_dir))}</pre>"


def _importances(result: SearchResult) -> Iterator[str]:
    yield paragraph("The share of each field in the differences between results, estimated by PED-ANOVA.", "soft")
    yield table(["field", "share"], [[name, f"{share:.0%}"] for name, share in result.importances.items()])


def _coordinates(result: SearchResult) -> Iterator[str]:
    yield paragraph("A line for each trial; the darker, the better. Pruned trials are included.", "soft")
    rows = [
        {**{name: _plain(value) for name, value in trial.fields.items()}, result.monitor: trial.value}
        for trial in result.ranked()
    ]
    yield f'<div class="scroll">{svg(parallel_coordinates(rows, result.monitor))}</div>'


def _progress(result: SearchResult) -> Iterator[str]:
    """The trials that improved the result, in their order."""
    better = max if result.mode == "max" else min
    complete = [trial for trial in result.trials if trial.state == "complete" and trial.value is not None]
    best_so_far = list(accumulate((trial.value for trial in complete if trial.value is not None), better))
    rows = [
        [trial.number, trial.value]
        for number, trial in enumerate(complete)
        if number == 0 or best_so_far[number] != best_so_far[number - 1]
    ]
    yield paragraph("Trials that were better than all before them.", "soft")
    yield table(["trial", result.monitor], rows)


def _trials(result: SearchResult) -> Iterator[str]:
    names = list(dict.fromkeys(name for trial in result.trials for name in trial.fields))
    failed = [trial for trial in result.trials if trial.value is None]
    rows = [
        [
            trial.number, trial.value, *(_plain(trial.fields.get(name)) for name in names), trial.state,
            duration(trial.seconds), trial.message or "",
        ]
        for trial in [*result.ranked(), *failed]
    ]  # fmt: skip
    yield table(["trial", result.monitor, *names, "state", "duration", "message"], rows)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, (dict, list, bool)) else value
