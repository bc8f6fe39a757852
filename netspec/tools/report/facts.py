"""Facts about a run: its log, its net, and what its weights do with the held-out data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from netspec.errors import InputError, NetspecError, command
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.train import TrainSpec
from netspec.tools.comparing.run_curves import AXES, Axis, read_run_log, run_charts
from netspec.tools.comparing.runs import RunSummary, runs
from netspec.tools.drawing.draw import annotate
from netspec.tools.drawing.net_diagram import NetDiagram, net_diagram
from netspec.tools.inference.predict import test
from netspec.tools.measuring import timing as timings
from netspec.tools.measuring.timing import Timing
from netspec.tools.planning.plan import Costs, plan
from netspec.tools.report.worst_samples import WorstSamples, worst_samples
from netspec.tools.specs import load_spec
from netspec.training.callbacks.histograms import read_histograms
from netspec.training.evaluation import Evaluation, split_of
from netspec.training.events import SPLITS, Event, data_name, parse_events
from netspec.training.plotting.charts import AxisScale, Chart, Curve
from netspec.training.run_directory import RunDir
from netspec.training.stages import stage_folder, steps_before

Result = TypeVar("Result")
MAX_POINTS = 4000
"""Number of points of a curve on a page."""
MAX_MESSAGES = 200
"""Number of notes and warnings of a log that are shown: the first ones."""
MESSAGES = ("warning", "note", "error")
"""Events of the log with messages."""


@dataclass(frozen=True)
class RunFacts:
    """Everything that the report of a run shows. Unknown parts are None or empty, and `missing` has the reasons."""

    summary: RunSummary
    start: Event
    """The first event of the log: device, versions, machine; empty if it was lost."""
    resumed: int
    """Number of times that the run was resumed."""
    splits: dict[str, dict[str, float | None]]
    """Loss and metrics at the end, by split."""
    charts: dict[Axis, list[Chart]]
    """Charts of losses, metrics and other logged values, by their horizontal axis."""
    histograms: Mapping[int, Mapping[str, Any]]
    """Histograms of the parameters, by step and name."""
    diagram: NetDiagram | None
    costs: Costs | None
    timing: Timing | None
    split: str | None
    """The split that `evaluation` and `worst` are about."""
    evaluation: Evaluation | None
    worst: WorstSamples | None
    messages: tuple[Event, ...]
    """Warnings, notes and errors in the log."""
    spec_text: str
    """The resolved spec, with the origin of each value."""
    data_sources: dict[str, str]
    """Source of each split."""
    missing: dict[str, str]
    """Reason why a part is missing, by part: `worst`, `timing`, …"""


def run_facts(
    run: Path, *, split: str | None = None, log_only: bool = False, device: str = "auto",
    on_progress: Callable[[str], object] = lambda message: None,
) -> RunFacts:  # fmt: skip
    """Collect the facts about a run.

    Evaluates the weights of the run on `split` (by default the test data, or else the validation data), and times a
    step on `device`, unless `log_only`. Raises `InputError` if the folder has no log with values.
    """
    files, missing = RunDir(run), dict[str, str]()
    charts = _charts(run, missing)
    with files.log.open(encoding="utf-8", errors="replace") as lines:
        events = [event for event in parse_events(lines) if event["event"] in ("start", *MESSAGES)]
    starts = [event for event in events if event["event"] == "start"]
    summary = next(each for each in runs(run) if each.run_dir == run)
    attempt = _Attempts(missing, on_progress)
    loaded = attempt("net", "reading the spec", lambda: load_spec(run))
    spec = loaded if isinstance(loaded, TrainSpec) else None
    computed = _Computed() if spec is None else _compute(run, spec, split, device, attempt, log_only=log_only)
    sources = {} if spec is None else {
        name: str(getattr(source, SOURCES.tag, "")) for name, source in spec.data.splits().items()
    }  # fmt: skip
    return RunFacts(
        summary=summary,
        start=starts[0] if starts else {"event": "start"},
        resumed=max(0, len(starts) - 1),
        splits=_splits(summary),
        charts=charts,
        histograms=_histograms(run, stages=0 if spec is None else len(spec.stages)),
        messages=tuple([event for event in events if event["event"] in MESSAGES][:MAX_MESSAGES]),
        spec_text=files.spec.read_text(encoding="utf-8", errors="replace") if files.spec.is_file() else "",
        data_sources=sources,
        missing=missing,
        **vars(computed),
    )


def _charts(run: Path, missing: dict[str, str]) -> dict[Axis, list[Chart]]:
    """The charts of all logged values, by horizontal axis; an axis that the log does not have is `missing`."""
    log = read_run_log(run)
    charts: dict[Axis, list[Chart]] = {}
    for axis in AXES:
        try:
            values = run_charts([log], AxisScale(), axis, log.all_names())
            charts[axis] = [*map(downsample, values)]
        except InputError as error:
            missing[axis] = error.summary
    return charts


@dataclass(frozen=True)
class _Attempts:
    """Computes parts of a report, and notes the reason for each that fails."""

    missing: dict[str, str]
    on_progress: Callable[[str], object]

    def __call__(self, part: str, message: str, compute: Callable[[], Result]) -> Result | None:
        """Return the part, or None if it fails."""
        self.on_progress(message)
        try:
            return compute()
        except NetspecError as error:
            self.missing[part] = error.summary
            return None


@dataclass(frozen=True)
class _Computed:
    """The facts that need the spec of a run, and some of them its data and weights."""

    diagram: NetDiagram | None = None
    costs: Costs | None = None
    timing: Timing | None = None
    split: str | None = None
    evaluation: Evaluation | None = None
    worst: WorstSamples | None = None


def _compute(
    run: Path, spec: TrainSpec, split: str | None, device: str, attempt: _Attempts, *, log_only: bool
) -> _Computed:  # fmt: skip
    """Plan and draw the net; time a step and evaluate the weights, unless `log_only`."""
    if split is not None:
        split_of(spec, split)
    name = split or next((name for name in ("test", "validation") if name in spec.data.splits()), None)
    costs = attempt("costs", "planning the step", lambda: plan(run).costs)
    timing = evaluation = worst = None
    if log_only:
        reason = f"`{command('report', run)}` computes it"
        attempt.missing.update(dict.fromkeys(("timing", "evaluation", "worst"), reason))
    else:
        timing = attempt("timing", "timing a step", lambda: timings.time(run, device=device))
        if name is None:
            reason = "the run has no test or validation data"
            attempt.missing.update(dict.fromkeys(("evaluation", "worst"), reason))
        else:
            evaluation = attempt(
                "evaluation", f"evaluating on the {data_name(name)}",
                lambda: test(run, split=name, report=True, device=device),
            )  # fmt: skip
            worst = attempt(
                "worst", "looking for the samples with the highest losses",
                lambda: worst_samples(run, name, device=device),
            )  # fmt: skip
    diagram = attempt(
        "diagram", "drawing the net",
        lambda: annotate(net_diagram(spec.net), spec, shapes=True, parameters=True, timing=timing),
    )  # fmt: skip
    return _Computed(diagram, costs, timing, name, evaluation, worst)


def _histograms(run: Path, stages: int) -> dict[int, Mapping[str, Any]]:
    """Return the histograms of a run by step; stages record theirs in their own folders, and count from 0."""
    found = dict(read_histograms(run))
    for number in range(1, stages + 1):
        folder = stage_folder(run, number)
        before = steps_before(folder)
        found |= {before + step: entry for step, entry in read_histograms(folder).items()}
    return found


def downsample(chart: Chart) -> Chart:
    """Return a chart whose curves have at most `MAX_POINTS` points: evenly spread ones, and the last one."""

    def thin(curve: Curve) -> Curve:
        last = len(curve.xs) - 1
        chosen = sorted({*range(0, last + 1, -(-len(curve.xs) // MAX_POINTS)), last}) if curve.xs else []
        return replace(curve, xs=[curve.xs[at] for at in chosen], ys=[curve.ys[at] for at in chosen])

    return replace(chart, curves=[*map(thin, chart.curves)])


def _splits(summary: RunSummary) -> dict[str, dict[str, float | None]]:
    """Return the losses and metrics of a run by split, the usual splits first."""
    splits: dict[str, dict[str, float | None]] = {}
    for name in [*SPLITS, *(key.partition("/")[0] for key in summary.metrics)]:
        splits.setdefault(name, {})
    for key, value in summary.metrics.items():
        split, _, metric = key.partition("/")
        splits[split][metric] = value
    return {name: values for name, values in splits.items() if values}
