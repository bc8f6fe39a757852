"""`report`: a run as one HTML page that needs nothing else."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from netspec import __version__
from netspec.errors import InputError, counted
from netspec.exchange.files import write_text_atomically
from netspec.tools.drawing.draw import drawing_of
from netspec.tools.inference.evaluation_files import confusion_chart, table_cells
from netspec.tools.measuring.timing import PHASES, Timing
from netspec.tools.planning.plan import Costs
from netspec.tools.report.facts import RunFacts, run_facts
from netspec.tools.report.html import document, facts, paragraph, png_address, table
from netspec.tools.report.search_page import search_page
from netspec.tools.report.worst_samples import WorstSample
from netspec.tools.search import is_search, read_search
from netspec.training.events import SPLITS, data_name, duration, format_bytes, short_duration
from netspec.training.plotting.drawing import svg

MAX_CLASSES = 30
"""Number of classes up to which a confusion matrix is a table; a larger one is a picture."""
MAX_CONFUSIONS = 10
"""Number of confusions that are listed, the most frequent first."""
SHADES = 10
"""Number of shades of a confusion matrix."""


PAGE = "report.html"
"""Name of the page in the folder of the run."""


def report(
    run: str | Path,
    *,
    output: str | Path | None = None,
    split: str | None = None,
    log_only: bool = False,
    device: str = "auto",
    on_progress: Callable[[str], object] = lambda message: None,
) -> Path:
    """Write a page about a run, which contains everything that it shows: curves, the net, samples, times, the spec.

    The weights of the run are evaluated on `split`, by default the test data, or else the validation data, and a step
    is timed on `device`. With `log_only` nothing is computed, so neither data nor weights are needed. `on_progress` is
    called with a line of text before each part. Returns the path of the page: `output`, or else `report.html` in `run`.

    The page of a folder of `netspec search` has the best trial, the values and results of all, and their importance.

    Raises `InputError` if `run` is not a run directory, or its log has no values yet.

        >>> netspec.report("runs/lenet_mnist")
    """
    if is_search(Path(run)):
        if split is not None or log_only:
            raise InputError(f"{run} is a search, whose page takes neither `split` nor `log_only`")
        text, _ = search_page(read_search(run))
    else:
        text, _ = page(run_facts(Path(run), split=split, log_only=log_only, device=device, on_progress=on_progress))
    path = Path(run) / PAGE if output is None else Path(output)
    if path.is_dir():
        raise InputError(f"{path} is a folder", expected="the path of a file, such as report.html")
    write_text_atomically(path, text)
    return path


def page(run: RunFacts) -> tuple[str, str]:
    """Return the page of a run, and its Content-Security-Policy."""
    sections = [(title, "".join(parts)) for title, parts in _sections(run)]
    anchors = {title: f"section-{number}" for number, (title, _) in enumerate(sections)}
    links = "".join(f'<li><a href="#{anchors[title]}">{escape(title)}</a></li>' for title in anchors)
    body = "\n".join(
        f'<section id="{anchors[title]}" aria-label="{escape(title)}"><h2>{escape(title)}</h2>{content}</section>'
        for title, content in sections
    )
    name = str(run.start.get("name") or run.summary.net or run.summary.name)
    header = f"<header><h1>{escape(name)}</h1>{''.join(_introduction(run))}</header>"
    steps = list(run.histograms)
    names = list(dict.fromkeys(name for entry in run.histograms.values() for name in entry))
    data = {
        "charts": {axis: [chart.as_json() for chart in charts] for axis, charts in run.charts.items()},
        "histograms": {
            "steps": steps,
            "parameters": {name: [run.histograms[step].get(name) for step in steps] for name in names},
        },
    }
    nav = f'<nav aria-label="Sections"><ul>{links}</ul></nav>'
    return document(f"{name} · netspec report", f"{header}\n{nav}\n<main>{body}</main>", data, ["report.js"])


def _introduction(run: RunFacts) -> Iterator[str]:
    summary = run.summary
    state = f'<span class="state {escape(summary.state)}">{escape(summary.state)}</span>'
    facts_of_run = [
        *([f"step {summary.step:,} of {summary.steps:,}"] if summary.step is not None and summary.steps else []),
        *([duration(summary.seconds)] if summary.seconds else []),
        *([f"started {summary.started}"] if summary.started else []),
    ]
    yield f"<p>{state} · {escape(' · '.join([str(summary.run_dir), *facts_of_run]))}</p>"
    if summary.problem:
        yield paragraph(summary.problem, "warning")


def _sections(run: RunFacts) -> Iterator[tuple[str, Iterator[str]]]:
    yield "Results", _results(run)
    yield "Curves", _curves(run)
    yield "Parameters over time", _histograms(run)
    yield "Evaluation", _evaluation(run)
    yield "Worst samples", _worst(run)
    yield "Net", _net(run)
    yield "Time and memory", _costs(run)
    yield "Messages", _messages(run)
    yield "Environment", _environment(run)
    yield "Reproduce", _reproduction(run)
    yield "Spec", _spec(run)


def _because(run: RunFacts, part: str) -> str:
    return paragraph(f"Not shown: {run.missing.get(part, 'the spec of the run cannot be read')}", "soft")


def _results(run: RunFacts) -> Iterator[str]:
    names = list(dict.fromkeys(name for values in run.splits.values() for name in values))
    rows = [[SPLITS.get(split, split), *(values.get(name) for name in names)] for split, values in run.splits.items()]
    yield table(["data", *names], rows) if rows else paragraph("The log has no evaluation yet.", "soft")
    best = run.summary
    if best.best is not None and best.best_step is not None:
        yield paragraph(f"Best {best.monitor}: {best.best:.5g}, after step {best.best_step:,}.")


def _curves(run: RunFacts) -> Iterator[str]:
    if not run.charts:
        yield paragraph("The log has no values.", "soft")
        return
    axes = "".join(
        f'<label><input type="radio" name="axis" value="{axis}"{" checked" if number == 0 else ""}> {axis}</label>'
        for number, axis in enumerate(run.charts)
    )
    yield f'<form id="curve-controls"><fieldset><legend hidden>Horizontal axis</legend>over {axes}</fieldset>'
    yield '<label><input type="checkbox" name="log"> logarithmic</label>'
    yield f"{zoom_buttons()}</form>"
    yield paragraph(
        "Drag across a chart to zoom in, double-click to zoom out. A click on a name hides its curve.", "soft"
    )
    logged = {chart.title for charts in run.charts.values() for chart in charts}
    if "gradient norm" not in logged:
        yield paragraph("The log has no norm of the gradients; `train.log_gradient_norm: true` adds it.", "soft")
    yield '<div id="curves"></div>'


def zoom_buttons() -> str:
    """Return the buttons that zoom and move charts."""
    actions = {"in": "Zoom in", "out": "Zoom out", "left": "← Earlier", "right": "Later →", "reset": "Show all"}
    buttons = "".join(f'<button type="button" data-action="{key}">{name}</button>' for key, name in actions.items())
    return f'<fieldset aria-label="Zoom">{buttons}</fieldset>'


def _histograms(run: RunFacts) -> Iterator[str]:
    if not run.histograms:
        yield paragraph(
            "The run has no histograms. `callbacks: [{type: Histograms}]` in the training file records one of each "
            "parameter after every evaluation.", "soft",
        )  # fmt: skip
        return
    names = dict.fromkeys(name for entry in run.histograms.values() for name in entry)
    options = "".join(f'<option value="{escape(name)}">{escape(name)}</option>' for name in names)
    last = len(run.histograms) - 1
    yield f'<form><label>Parameter <select id="parameter">{options}</select></label>'
    yield f'<label>Evaluation <input type="range" id="moment" min="0" max="{last}" value="{last}"></label>'
    yield '<output id="moment-label" for="moment"></output></form>'
    yield '<div id="histograms"><figure><figcaption>Quantiles over time</figcaption><div id="distribution"></div>'
    yield '</figure><figure><figcaption>Histogram</figcaption><div id="histogram"></div></figure></div>'


def _evaluation(run: RunFacts) -> Iterator[str]:
    evaluation = run.evaluation
    if evaluation is None or run.split is None:
        yield _because(run, "evaluation")
        return
    samples = counted(evaluation.samples, "sample")
    yield paragraph(f"The weights of the run, evaluated on {samples} of the {data_name(run.split)} for this report.")
    yield table(["", "value"], [[name, value] for name, value in evaluation.values().items()])
    for note in (*evaluation.notes, *filter(None, [evaluation.data_change])):
        yield paragraph(note, "warning")
    for name, values in evaluation.tables.items():
        yield f"<h3>{escape(name.replace('_', ' '))}</h3>"
        columns, (header, *rows) = table_cells(values)
        if [row[0] for row in rows] == columns:
            yield from _confusion(columns, [list(map(float, row[1:])) for row in rows])
        else:
            yield table(header, [[row[0], *map(_as_number, row[1:])] for row in rows])


def _as_number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def _confusion(names: Sequence[str], matrix: Sequence[Sequence[float]]) -> Iterator[str]:
    """Yield a confusion matrix, and the most frequent confusions."""
    if len(names) > MAX_CLASSES:
        content = io.BytesIO()
        confusion_chart(names, matrix).save(content, "PNG")
        yield f'<img alt="confusion matrix" src="{png_address(content.getvalue())}">'
    else:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
        yield '<div class="scroll"><table class="matrix"><caption>rows: actual, columns: predicted class</caption>'
        yield f"<tr><th></th>{head}</tr>"
        for name, row in zip(names, matrix, strict=True):
            total = sum(row) or 1.0
            cells = "".join(f'<td class="s{round(SHADES * value / total)}">{value:g}</td>' for value in row)
            yield f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
        yield "</table></div>"
    confused = sorted(
        (
            (-value, actual, predicted)
            for actual, row in enumerate(matrix)
            for predicted, value in enumerate(row)
            if actual != predicted and value
        )
    )[:MAX_CONFUSIONS]
    rows = [[names[actual], names[predicted], int(-value)] for value, actual, predicted in confused]
    if rows:
        yield paragraph("Most frequent confusions:")
        yield table(["actual class", "predicted class", "samples"], rows)


def _worst(run: RunFacts) -> Iterator[str]:
    worst = run.worst
    if worst is None or run.split is None:
        yield _because(run, "worst")
        return
    compared = counted(worst.compared, "sample")
    of = f"the first {compared} of {worst.total:,}" if worst.compared < worst.total else f"all {compared}"
    yield paragraph(f"The samples with the highest losses, among {of} of the {data_name(run.split)}.")
    yield f'<ol class="samples">{"".join(map(_sample, worst.samples))}</ol>'


def _sample(sample: WorstSample) -> str:
    picture = ""
    if sample.picture is not None:
        picture = f'<img alt="{escape(sample.name)}" src="{png_address(sample.picture)}">'
    shown = {"loss": sample.loss, "target": sample.target, "prediction": sample.prediction, "sample": sample.name}
    others = {name: value for name, value in sample.fields.items() if name not in shown and value != sample.target}
    return f"<li>{picture}{facts({**shown, **others})}</li>"


def _net(run: RunFacts) -> Iterator[str]:
    if run.diagram is None:
        yield _because(run, "diagram")
        return
    yield paragraph(
        "A block is one box, with its number of repetitions. Boxes show the shape of the output of a sample.", "soft"
    )
    yield f'<div class="drawing">{svg(drawing_of(run.diagram))}</div>'


def _costs(run: RunFacts) -> Iterator[str]:
    costs = run.costs
    if costs is None:
        yield _because(run, "costs")
        return
    yield facts(
        {
            "parameters": costs.parameters,
            "batch size": costs.batch_size,
            **{
                f"memory of the {name} program": format_bytes(program.nbytes)
                for name, program in costs.programs.items()
            },
            **{f"memory of {role}s": format_bytes(nbytes) for role, nbytes in costs.states_bytes.items() if nbytes},
        }
    )
    if run.timing is None:
        yield _because(run, "timing")
    else:
        yield _step_time(run.timing)
    yield _layer_table(costs, run.timing)


def _step_time(timing: Timing) -> str:
    samples = timing.batch_size * timing.batches
    return paragraph(
        f"A step of {counted(samples, 'sample')} takes {short_duration(timing.step_seconds)} on {timing.device} "
        f"({timing.samples_per_second:,.0f} samples per second): measured for this report on synthetic inputs, without "
        "reading data. Times of a layer include operations that were fused with it."
    )


def _layer_table(costs: Costs, timing: Timing | None) -> str:
    times = {} if timing is None else {layer.name: layer for layer in timing.layers}
    phases = [phase for phase in PHASES if any(layer.phases[phase] for layer in times.values())]

    def milliseconds(name: str) -> list[float | None]:
        return [float(f"{1000 * times[name].phases[phase]:.3g}") if name in times else None for phase in phases]

    rows: list[list[Any]] = [
        [
            layer.name, layer.type, " × ".join(map(str, layer.output_shape)), layer.parameters, layer.flops,
            layer.memory_bytes / 1000, *milliseconds(layer.name),
        ]
        for layer in costs.layers
    ]  # fmt: skip
    names = {layer.name for layer in costs.layers}
    rows += [
        [name or "(no layer)", timed.type, "", None, None, None, *milliseconds(name)]
        for name, timed in times.items()
        if name not in names
    ]
    timed_phases = [f"{phase}, ms" for phase in phases]
    return table(["layer", "type", "output", "parameters", "FLOPs forward", "memory, kB", *timed_phases], rows)


def _messages(run: RunFacts) -> Iterator[str]:
    rows = [
        [event.get("step"), event["event"], str(event.get("message") or _first_problem(event))]
        for event in run.messages
    ]
    yield table(["step", "", "message"], rows) if rows else paragraph("The log has no warnings or notes.", "soft")


def _first_problem(event: Mapping[str, Any]) -> str:
    problems = event.get("problems")
    return "; ".join(str(each.get("message", "")) for each in problems or () if isinstance(each, Mapping))


def _environment(run: RunFacts) -> Iterator[str]:
    start, versions, machine = run.start, _mapping(run.start, "versions"), _mapping(run.start, "machine")
    memory = machine.get("memory_bytes")
    yield facts(
        {
            "device": start.get("device"),
            "GPU": machine.get("gpu"),
            "processor": machine.get("processor"),
            "system": machine.get("system"),
            "memory": format_bytes(memory) if isinstance(memory, int) else None,
            "threads": start.get("threads"),
            "workers": start.get("workers"),
            "precision": start.get("precision"),
            **{f"{name} version": version for name, version in versions.items()},
            "resumed": counted(run.resumed, "time") if run.resumed else None,
            "report by": f"netspec {__version__}",
        }
    )


def _mapping(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a field of an event that is a mapping; empty if an earlier version did not log it."""
    value = event.get(name)
    return value if isinstance(value, Mapping) else {}


def _reproduction(run: RunFacts) -> Iterator[str]:
    start, folder = run.start, run.summary.run_dir
    version = _mapping(start, "versions").get("netspec")
    threads = f"OMP_NUM_THREADS={start['threads']} " if start.get("threads") else ""
    again = shlex.quote(f"{folder}-again")
    workers = start.get("workers")
    options = {
        **_mapping(start, "started_from"),  # files that are not in spec.yaml
        **({"device": start["device"]} if start.get("device") else {}),
        **({"workers": workers} if isinstance(workers, int) and workers > 1 else {}),
        "run-dir": f"{folder}-again",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    lines = [
        *([f"pip install netspec=={version}"] if version else []),
        f"{threads}netspec train {shlex.join([str(folder / 'spec.yaml'), *words])}",
        f"netspec diff {shlex.quote(str(folder))} {again}",
    ]
    yield paragraph(
        "The same spec, seed, data, initial weights, machine, device and number of threads give bit-identical weights; "
        f"elsewhere, sums are rounded differently. The seed is {start.get('seed', 'in the spec')}."
    )
    yield f"<pre>{escape(chr(10).join(lines))}</pre>"
    if run.data_sources:
        yield table(["data", "source"], [[SPLITS.get(name, name), source] for name, source in run.data_sources.items()])


def _spec(run: RunFacts) -> Iterator[str]:
    if not run.spec_text:
        yield paragraph("The run directory has no spec.yaml.", "soft")
        return
    yield paragraph("The resolved spec; the comment of each line is the origin of its value.", "soft")
    yield f'<pre tabindex="0">{escape(run.spec_text)}</pre>'
