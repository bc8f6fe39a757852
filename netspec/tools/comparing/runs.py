"""Runs below a folder: their states, results, and the settings in which they differ.

The cost of a run does not grow with its log: only the beginning and the end of the log are read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from netspec.errors import InputError, did_you_mean, listing, near_path
from netspec.schema.specs.monitor import LOSS, Monitor
from netspec.schema.yaml.flow_style import flow
from netspec.schema.yaml.reader import read_yaml
from netspec.training.events import Event, read_ends, values_of
from netspec.training.lock import is_locked
from netspec.training.run_directory import RunDir, numbered_folders

MAX_SPEC_BYTES = 2**21
"""Size up to which the resolved spec of a run is read."""
MAX_FOLDERS = 100_000
"""Number of folders that are searched for runs."""
ENDS = {"done": "finished", "error": "failed", "stopped": "stopped"}
"""States of a run by the last event of its log."""
NOT_COMPARED = ("name", "description", "vars", "include", "net.description", "net.vars", "expect")
"""Fields that do not affect a training by themselves: the values of `vars` are in other fields."""
SECTIONS = ("solver", "train", "stages", "data", "parallel", "init_from", "callbacks", "compile", "net")
"""Sections of a spec, in the order in which their differences are listed."""
KIND_FIELDS = ("type", "source")
"""Fields that say what the other fields of a mapping are: its value stands for the mapping."""
COLUMNS = ("name", "state", "net", "started", "seconds", "step", "steps", "monitor", "mode", "last", "best",
           "best_step")  # fmt: skip
"""Columns of the list, apart from metrics and settings."""


@dataclass(frozen=True)
class RunSummary:
    """State, results and settings of a run."""

    name: str
    """Its folder, relative to the folder that was searched."""
    run_dir: Path
    state: str
    """`running`, `finished`, `failed`, `stopped` (on request or killed), or `damaged`."""
    problem: str | None = None
    """Reason why it failed, or why it can't be read."""
    net: str | None = None
    """Name of its net; None if the spec can't be read."""
    started: str | None = None
    """Time of its first step, in UTC; None if the log does not contain it."""
    seconds: float | None = None
    """Duration up to the last event, without the time between a stop and a resume, as in the line `done`."""
    step: int | None = None
    """Number of steps done."""
    steps: int | None = None
    """Total number of steps."""
    monitor: str | None = None
    """Monitored value, with its split: `validation/accuracy`."""
    mode: str | None = None
    """`min` or `max`: whether the lowest or the highest monitored value is best."""
    last: float | None = None
    """Monitored value of the last evaluation."""
    best: float | None = None
    """Best monitored value."""
    best_step: int | None = None
    """Number of steps before the evaluation with the best value."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    """Loss and metrics by split (`test/accuracy`), of the weights that the run ended with or of the last evaluation."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Values of the settings that are not the same in all listed runs, by dotted field."""

    def as_json(self) -> dict[str, Any]:
        """Return the run as plain data."""
        return {**asdict(self), "run_dir": str(self.run_dir)}

    def row(self) -> dict[str, Any]:
        """Return fields, metrics and settings in one flat mapping."""
        fields = {name: getattr(self, name) for name in COLUMNS}
        return {**fields, **self.metrics, **self.settings}


MAIN_SPLITS = ("validation", "test", "train")
"""Splits whose metrics are meant by a name without a split, in this order."""

RunAndSpec = tuple[RunSummary, "dict[str, Any] | None"]
"""A run and its resolved spec as plain data; None if that can't be read."""


def runs(folder: str | Path = "runs", *, sort: str | None = None, reverse: bool = False) -> list[RunSummary]:
    """List the runs in and below a folder.

    `sort` is a column (`started` by default, `name`, `seconds`, `best`, …), a metric (`test/accuracy`; `accuracy` is
    that of the validation data, or else of the test or training data) or a setting (`solver.learning_rate.initial`).
    The lowest value comes first, except that `best` puts the best run first, by the direction of its monitored value;
    runs with different monitored values are grouped by it. Runs without the value come last. A run that can't be read
    is listed as damaged.
    Raises `InputError` if there is no such folder, or no run has a value to sort by.

        >>> best = netspec.runs(sort="best")[0].run_dir
    """
    return [run for run, _ in _sorted_runs(Path(folder), sort, reverse=reverse)]


def runs_by_net(
    folder: str | Path = "runs", *, sort: str | None = None, reverse: bool = False
) -> dict[str, list[RunSummary]]:
    """List the runs of `runs` by the name of their net; `settings` differ between the runs of one net.

    Runs without a spec are listed under an empty name, or under the net of all others.
    """
    found = _sorted_runs(Path(folder), sort, reverse=reverse)
    nets = {run.net for run, _ in found if run.net}
    no_net = nets.pop() if len(nets) == 1 else ""  # no reason for two tables
    by_net: dict[str, list[RunAndSpec]] = {}
    for run, spec in found:
        by_net.setdefault(run.net or no_net, []).append((run, spec))
    return {net: [run for run, _ in _with_settings(group)] for net, group in by_net.items()}


def _sorted_runs(root: Path, sort: str | None, *, reverse: bool) -> list[RunAndSpec]:
    if not root.is_dir():
        raise InputError(f"folder {root} does not exist", expected="a folder with runs", hint=near_path(root))
    found = [
        _read_run(path, path.name if path == root else path.relative_to(root).as_posix())
        for path in sorted(_run_folders(root))
    ]
    return _sorted(_with_settings(found), sort, reverse=reverse)


def newer_run(folder: Path) -> Path | None:
    """Return the newest finished run of `NAME`, `NAME-2`, … that is newer than `folder` and trained the same net.

    None if there is none, or no folder `NAME`.
    """
    own = folder.resolve()
    head, _, tail = own.name.rpartition("-")
    plain = head if head and tail.isdecimal() else own.name
    series = numbered_folders(plain, own.parent)
    if own not in series or series[0].name != plain:
        return None
    name, started = _name_and_start(own)
    for other in reversed(series[series.index(own) + 1 :]):
        events = read_ends(RunDir(other).log) if RunDir(other).log.is_file() else []
        if events and state_of(other, events) == "finished":
            other_name, other_start = _name_and_start(other)
            return other if name == other_name and started < other_start else None
    return None


def _name_and_start(run: Path) -> tuple[str, str]:
    """Return the name of a run's net and the time of its first step; empty texts if it has no log."""
    log = RunDir(run).log
    starts = [event for event in (read_ends(log) if log.is_file() else []) if event["event"] == "start"]
    return (str(starts[0].get("name")), str(starts[0].get("time"))) if starts else ("", "")


def _with_settings(group: Sequence[RunAndSpec]) -> list[RunAndSpec]:
    """Return runs with the values of the settings in which they differ."""
    settings = differing_settings([spec for _, spec in group])
    return [
        (run if spec is None else replace(run, settings={name: values[at] for name, values in settings.items()}), spec)
        for at, (run, spec) in enumerate(group)
    ]


def differing_settings(specs: Sequence[Mapping[str, Any] | None]) -> dict[str, list[Any]]:
    """Return the settings that differ, by dotted field, each with its value in every spec.

    None stands for a value that a spec does not have; fields that all specs have come first. A spec that is None is not
    compared.
    """
    present = [spec for spec in specs if spec is not None]
    fields = [path for path in _differing(present, "") if not _is_ignored(path)] if present else []
    values = {path: [None if spec is None else _value(spec, path) for spec in specs] for path in fields}
    order = {name: index for index, name in enumerate(SECTIONS)}

    def rank(path: str) -> tuple[int, int]:
        absent = sum(value is None for value in values[path]) - (len(specs) - len(present))
        return absent, order.get(path.partition(".")[0], len(order))

    return {path: values[path] for path in sorted(fields, key=rank)}


def _is_ignored(path: str) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in NOT_COMPARED)


def _differing(values: Sequence[Any], path: str) -> Iterator[str]:
    """Yield the paths at which plain data differs. A missing value counts as null.

    If only some specs have a layer, a schedule, …, the fields that differ between these follow.
    """
    if all(value == values[0] for value in values[1:]):
        return
    present = [value for value in values if value is not None]
    mappings, absent = _aligned(present), len(present) < len(values)
    if mappings is None or absent or _is_reordered(present):
        yield path
    if mappings is None or (absent and not all(map(_kind, present))):
        return
    for key in dict.fromkeys(key for mapping in mappings for key in mapping):
        if not (absent and key in KIND_FIELDS):  # reported at `path`
            inner = [mapping.get(key) for mapping in mappings]
            yield from _differing(inner, f"{path}.{key}" if path else key)


def _aligned(values: Sequence[Any]) -> Sequence[Mapping[str, Any]] | None:
    """Return mappings, or lists as mappings by name or index, whose values correspond; None for other values."""
    by_name = [mapping for mapping in map(_by_name, values) if mapping is not None]
    if len(by_name) == len(values):
        return by_name
    kinds = [[_kind(item) for item in value] if isinstance(value, list) else [None] for value in values]
    if None in kinds[0] or any(other != kinds[0] for other in kinds):
        return None
    return [_items(value) for value in values]


def _is_reordered(values: Sequence[Any]) -> bool:
    """Return whether lists contain the same names in different orders."""
    names = [list(_by_name(value) or ()) for value in values if isinstance(value, list)]
    return any([name for name in names[0] if name in other] != [name for name in other if name in names[0]]
               for other in names)  # fmt: skip


def _kind(value: Any) -> str | None:
    """Return the type of a layer, a schedule, …, or the source of data; None if it has none."""
    kinds = [value[name] for name in KIND_FIELDS if isinstance(value.get(name), str)] if isinstance(value, dict) else []
    return kinds[0] if kinds else None


def _by_name(value: Any) -> Mapping[str, Any] | None:
    """Return a mapping, or a list of entries with different names as a mapping; None for anything else."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list) and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in value):
        by_name = {item["name"]: item for item in value}
        return by_name if len(by_name) == len(value) else None
    return None


def _value(tree: Any, path: str) -> Any:
    """Return the plain value at a path: a scalar, or the text of a mapping or list; None if there is none."""
    for key in _steps(tree, path):
        tree = _items(tree).get(key)
    if (kind := _kind(tree)) is not None:
        return kind
    return flow(tree) if isinstance(tree, (dict, list)) else tree


def _items(tree: Any) -> Mapping[str, Any]:
    """Return the items of a mapping or list by key, name or index."""
    if (by_name := _by_name(tree)) is not None:
        return by_name
    return {str(index): item for index, item in enumerate(tree)} if isinstance(tree, list) else {}


def _steps(tree: Any, path: str) -> Iterator[str]:
    """Split a dotted path; names of entries may contain dots."""
    while path:
        mapping = _items(tree)
        key = max((key for key in mapping if f"{path}.".startswith(f"{key}.")), key=len, default=path)
        yield key
        tree, path = mapping.get(key), path[len(key) + 1 :]


def _run_folders(root: Path) -> Iterator[Path]:
    """Yield the folders of runs, without searching inside them."""
    for count, (folder, subfolders, files) in enumerate(os.walk(root)):
        if count >= MAX_FOLDERS:
            raise InputError(f"{root} has more than {MAX_FOLDERS:,} folders", hint="name the folder of the runs")
        if "log.jsonl" in files or ("checkpoints" in subfolders and "spec.yaml" in files):
            subfolders.clear()
            yield Path(folder)
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]


def _read_run(folder: Path, name: str) -> RunAndSpec:
    """Return the summary of a run and its resolved spec; None if that can't be read."""
    files = RunDir(folder)
    summary = RunSummary(name, folder, "damaged")
    try:
        events = read_ends(files.log)
    except OSError as error:
        return replace(summary, problem=f"{files.log} cannot be read: {error.strerror}"), None
    tree, problem = _read_spec(files.spec)
    state = state_of(folder, events)
    if problem is None and state != "running" and not any(event["event"] == "start" for event in events):
        problem = f"{files.log} has no `start` event"
    if problem is not None:
        state = "damaged"
    elif state == "failed":
        problem = _failure(next(event for event in reversed(events) if event["event"] == "error"))
    net = tree["net"].get("name") if tree is not None and isinstance(tree.get("net"), dict) else None
    return replace(summary, state=state, problem=problem, net=net, **_results(events, tree or {})), tree


def _read_spec(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """Return a resolved spec as plain data, or the reason why it can't be read."""
    try:
        if path.is_file() and path.stat().st_size > MAX_SPEC_BYTES:
            return None, None  # too large to compare, not damaged
        return dict(read_yaml(path)), None
    except InputError as error:
        return None, error.problems[0].message


def read_resolved(folder: Path) -> dict[str, Any] | None:
    """Return the resolved spec of a run as plain data; None if it can't be read."""
    return _read_spec(RunDir(folder).spec)[0]


def state_of(folder: Path, events: Sequence[Event]) -> str:
    """Return the state of a run, from the last events of its log."""
    last = next((event["event"] for event in reversed(events) if event["event"] in ("start", *ENDS)), "start")
    if last == "start":
        return "running" if is_locked(folder) else "stopped"
    return ENDS[last]


def _failure(event: Event) -> str | None:
    """Return the first problem of an error."""
    with suppress(KeyError, IndexError, TypeError):
        return str(event["problems"][0]["message"])
    return None


def _results(events: Sequence[Event], tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results in the log of a run, as fields of `RunSummary`."""
    starts = [event for event in events if event["event"] == "start"]
    stepped = [event["step"] for event in events if event["event"] != "start" and isinstance(event.get("step"), int)]
    done = next((event for event in reversed(events) if event["event"] == "done"), {})
    evaluations = [event for event in events if event["event"] == "test" and isinstance(event.get("metrics"), dict)]
    results = {event.get("split", "test"): values_of(event) for event in evaluations}
    if (logged := next((event for event in reversed(events) if event["event"] == "log"), None)) is not None:
        results["train"] = values_of(logged)
    for name in ("validation", "test"):
        if isinstance(evaluation := done.get(name), dict):
            results |= {name: values_of(evaluation)}
            results |= {other: values_of(values) for other, values in evaluation.get("others", {}).items()}
    elapsed = [event["elapsed"] for event in events if isinstance(event.get("elapsed"), (int, float))]
    return {
        "started": starts[0].get("time") if starts else None,
        "seconds": elapsed[-1] if elapsed else done.get("seconds"),
        "step": stepped[-1] if stepped else None,
        "steps": starts[-1].get("steps") if starts else None,
        "metrics": {f"{name}/{key}": value for name, values in results.items() for key, value in values.items()},
        **_monitored(events, evaluations, tree),
    }


def _monitored(events: Sequence[Event], evaluations: Sequence[Event], tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the monitored value of the last and of the best evaluation."""
    splits = {event.get("split", "test") for event in evaluations}
    split = "validation" if "validation" in splits or (not splits and _holds_out_validation(tree)) else "test"
    loop = tree["train"] if isinstance(tree.get("train"), dict) else {}
    key, mode = loop.get("monitor"), loop.get("mode")
    recorded: Event = next((event for event in reversed(events) if isinstance(event.get("best"), dict)), {"best": {}})
    if not isinstance(key, str):  # a run of version 0.2 or earlier
        key, mode = recorded["best"].get("monitor", LOSS), recorded["best"].get("mode")
    name, _, value = key.partition("/")
    sets = splits | (tree["data"].get("evaluate") or {}).keys() if isinstance(tree.get("data"), dict) else splits
    if name in sets and not any(key in values_of(event) for event in evaluations):
        split, key = name, value  # of a further set
    evaluations = [event for event in evaluations if event.get("split", "test") == split]
    monitor = Monitor(monitor=key, mode=mode if mode in ("min", "max") else "min")
    best, best_step = None, None
    for event in evaluations:
        value = values_of(event).get(key)
        if isinstance(value, (int, float)) and monitor.improves(value, best):
            best, best_step = value, event.get("step")
    value = recorded["best"].get("value") if recorded["best"].get("monitor") == key else None
    if isinstance(value, (int, float)) and (best is None or monitor.improves(value, best)):
        best, best_step = value, recorded.get("weights_step")  # in the part of the log that was not read
    last = values_of(evaluations[-1]).get(key) if evaluations else None
    monitored = {"monitor": f"{split}/{key}", "mode": monitor.mode}
    return {**monitored, "last": last, "best": best, "best_step": best_step}


def _holds_out_validation(tree: Mapping[str, Any]) -> bool:
    """Return whether a resolved spec has validation data, of its own or a part of the training data."""
    data = tree["data"] if isinstance(tree.get("data"), dict) else {}
    train = data["train"] if isinstance(data.get("train"), dict) else {}
    parts = train["split"] if isinstance(train.get("split"), dict) else {}
    return bool(data.get("validation") or parts.get("validation") or parts.get("folds"))


def _sorted(found: Sequence[RunAndSpec], sort: str | None, *, reverse: bool) -> list[RunAndSpec]:
    rows = [run.row() for run, _ in found]
    names = [sort or "started", *(f"{split}/{sort}" for split in MAIN_SPLITS)]
    values = [next((row[name] for name in names if row.get(name) is not None), None) for row in rows]
    if sort is not None and not any(name in row for row in rows for name in names) and found:
        columns = list(dict.fromkeys(name for row in rows for name in row))
        raise InputError(
            f"no run has a value `{sort}` to sort by",
            expected=f"one of {listing(columns)}",
            hint=did_you_mean(sort, columns),
        )

    def order(pair_and_value: tuple[RunAndSpec, Any]) -> tuple[str, bool, float, str]:
        (run, _), value = pair_and_value
        number = float(value) if isinstance(value, (int, float)) else None
        if sort == "best" and number is not None:  # better runs first, among those that monitor the same value
            return run.monitor or "", True, -number if run.mode == "max" else number, ""
        return "", number is not None, number or 0.0, json.dumps(value)

    pairs_and_values = list(zip(found, values, strict=True))
    present = [each for each in pairs_and_values if each[1] is not None]
    absent = [each for each in pairs_and_values if each[1] is None]
    return [pair for pair, _ in [*sorted(present, key=order, reverse=reverse), *absent]]
