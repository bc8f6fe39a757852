"""Events of a training: plain mappings with the key `event`.

The log files, the progress display and `--json` all listen to the same stream.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TextIO, TypeAlias

from netspec.data.files import explain_read_errors
from netspec.errors import RunError, counted, format_digits
from netspec.schema.plain_json import json_text

Event: TypeAlias = dict[str, Any]
"""`start`, `progress` (several times a second, not logged), `log`, `test`, `checkpoint`, `init_from`, `warning`,
`note`, `skipped`, `done`; in the log files also `error` (with the problems and the exit status) and `stopped`. All have
the fields of `Clock.stamp`."""
Listener: TypeAlias = Callable[[Event], None]

HEAD_BYTES, TAIL_BYTES = 2**16, 2**18
"""Bytes that `read_ends` reads from the beginning and from the end of a log."""

MAX_EXAMPLES = 3
"""Number of damaged samples that are named; the others are counted."""
WAITS = ("heartbeat", "stall")
"""Fields of strategies that do not change results."""
BUCKETS = ("bucket", "first_bucket")
"""Fields of strategies that are sizes in bytes."""
MAX_LISTED_WORKERS = 4
"""Number of workers up to which the batch size of each is listed; for more workers, the number of each size."""
IN_UNIT = " in the target's unit"
"""Suffix of the name of a metric that is converted to the unit of the data."""
REPORTED_APART = "skipped", "skipped_steps", "late_gradients", "gradient_norm"
"""Facts of a log event or an evaluation for which each has a line of its own."""
SPLITS = {"train": "training", "validation": "validation", "test": "test"}
"""Splits of the data by name, and their names in sentences."""


def duration(seconds: float) -> str:
    """Format a duration: `12.3 s`, `4 min 05 s`, `2 h 07 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def short_duration(seconds: float) -> str:
    """Format the duration of a step with three digits: `1.25 ms`; from a minute on as `duration` does."""
    if seconds >= 60:
        return duration(seconds)
    unit, factor = next(((unit, factor) for unit, factor in (("s", 1.0), ("ms", 1e3)) if seconds * factor >= 0.9995),
                        ("µs", 1e6))  # fmt: skip
    return f"{seconds * factor:.3g} {unit}"


def format_bytes(nbytes: float) -> str:
    """Format a number of bytes with three digits: `1.72 MB`. Units are powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.5 or unit == "GB":
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    raise AssertionError


def data_name(split: str) -> str:
    """Return what messages call the samples of a split: `training data`, "`night` data"."""
    return f"{SPLITS.get(split, f'`{split}`')} data"


class Clock:
    """Stamps the events of a run with the time."""

    def __init__(self, log: Path, began: float | None = None) -> None:
        """`began` is the time of `time.perf_counter` at which this part of the run began; by default now."""
        self._earlier_seconds = elapsed(log)
        self._began = (time.perf_counter() if began is None else began) - self._earlier_seconds
        """Time at which the run would have begun without interruptions."""
        self._includes_call = True

    def exclude_call(self) -> None:
        """Exclude this call, which had nothing to do, from the duration of the run."""
        self._includes_call = False

    @property
    def elapsed(self) -> float:
        """Duration of the run so far in seconds: from the call on, without the time between a stop and a resume."""
        return round(time.perf_counter() - self._began, 3) if self._includes_call else self._earlier_seconds

    def stamp(self, event: Event) -> Event:
        """Add `time` (UTC), and `elapsed` unless the event has it."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        return {**event, "time": f"{now}Z", "elapsed": event.get("elapsed", self.elapsed)}


class LogFiles:
    """Writes every event but `progress` to `log.jsonl` as JSON and to `log.txt` as text, at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.jsonl"
        self._files: tuple[TextIO, ...] = ()
        """Both files, once there was an event."""

    def _open(self) -> None:
        self._files = tuple(map(_open_to_append, (self.path, self.path.with_suffix(".txt"))))

    def __call__(self, event: Event) -> None:
        """Write one event. Raises `RunError` if writing fails."""
        if event["event"] == "progress":
            return
        if not self._files or (self.path.parent.is_dir() and not self.path.exists()):  # somebody removed them
            self.close()
            self._open()
        for file, line in zip(self._files, (json_text(event), format_event(event)), strict=True):
            with _writing(file.name):
                file.write(line + "\n")
                file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close both files."""
        for file in self._files:
            with suppress(OSError):  # the error of the write was reported
                file.close()


@contextmanager
def _writing(name: str | Path) -> Iterator[None]:
    """Turn an `OSError` in the block, which writes a file, into a `RunError` that names the file."""
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot write {name}", got=error.strerror) from error


def _open_to_append(path: Path) -> TextIO:
    """Open a file to append to. A process that was killed may have left its last line incomplete.

    Raises `RunError` if it can't be opened.
    """
    with _writing(path):
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        file = path.open("a", encoding="utf-8", errors="backslashreplace")  # names of files may be any bytes
    if torn:
        file.write("\n")
    return file


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, after completing a last line that a killed process left. Raises `RunError`."""
    with _writing(path), _open_to_append(path) as file:
        file.write(line + "\n")


def read_log(path: Path) -> Iterator[Event]:
    """Yield the events of a log that have a step. Damaged lines (the process was killed) are skipped.

    Raises `InputError` if the log cannot be read.
    """
    with explain_read_errors(f"the log {path}"), path.open(encoding="utf-8", errors="replace") as lines:
        for event in parse_events(lines):
            if isinstance(event.get("step"), int):
                yield event


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events in the lines of a log. Damaged lines are skipped."""
    for line in lines:
        with suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                yield event


def read_ends(path: Path) -> list[Event]:
    """Return the first and the last events of a log, at most `HEAD_BYTES` and `TAIL_BYTES` of it."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size <= HEAD_BYTES + TAIL_BYTES:
            text = file.read(HEAD_BYTES + TAIL_BYTES)
        else:
            text = file.read(HEAD_BYTES).rpartition(b"\n")[0] + b"\n"
            file.seek(size - TAIL_BYTES)
            text += file.read(TAIL_BYTES).partition(b"\n")[2]
    return list(parse_events(text.decode("utf-8", errors="replace").splitlines()))


def elapsed(log: Path) -> float:
    """Return the duration of a run up to the last event of its log, in seconds; 0 if there is no log."""
    events = read_ends(log) if log.is_file() else []
    times = (event["elapsed"] for event in reversed(events) if isinstance(event.get("elapsed"), (int, float)))
    return float(next(times, 0.0))


def done_event(run: Path) -> Event | None:
    """Return the `done` event of a run; None if the run has not finished, or has no log."""
    last = None
    with suppress(OSError), (run / "log.jsonl").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") == "done" and isinstance(event.get("steps"), int):
                    last = event
    return last


def format_event(event: Event) -> str:
    """Return an event as one line of text."""
    match event["event"]:
        case "start":
            parts = event.get("split", ())
            split = f" = {_format_split(parts)} on {counted(len(parts), 'worker')}" if parts else ""
            if micro_batches := (event.get("parallel") or {}).get("micro_batches"):
                split = f" through {counted(event['workers'], 'stage')}, micro-batches: {micro_batches}"
            split += f" and {counted(event['servers'], 'server')}" if event.get("servers") else ""
            resumed = f", resumed at step {event['step']}" if event["step"] else ""
            precision = "" if event["precision"] == "float32" else f" in {event['precision']}"
            return (
                f"{event['name']}: {counted(event['parameters'], 'parameter')}, "
                f"{counted(event['samples'], 'sample')}, batch {event['batch_size']}{split}, "
                f"{counted(event['steps'], 'step')} on {event['device']}{precision}{_strategy_of(event)}{resumed}"
            )
        case "log" | "progress":
            rate = event["samples_per_second"]
            momentum = f" momentum {event['momentum']:.6g}" if "momentum" in event else ""
            metrics = "".join(f" {name} {value:.5f}" for name, value in event.get("metrics", {}).items())
            norm = f" gradient norm {event['gradient_norm']:.4g}" if event.get("gradient_norm") is not None else ""
            skipped = f" skipped {event['skipped_steps']:,}" if event.get("skipped_steps") else ""
            skipped += f" late gradients {event['late_gradients']:,}" if event.get("late_gradients") else ""
            return (
                f"step {event['step']:,} epoch {event['epoch']:.2f} loss {event['loss']:.5f}{metrics} "
                f"learning rate {event['learning_rate']:.6g}{momentum}{norm}{skipped} {rate:,.0f} samples/s"
            )
        case "test":
            weights = " (best weights)" if event.get("best_weights") else ""  # of an earlier step
            return f"step {event['step']:,}{weights} {event.get('split', 'test')} {format_evaluation(event)}"
        case "checkpoint":
            return f"step {event['step']:,} checkpoint {event['path']}"
        case "init_from":
            return f"weights from {event['file']}:\n{event['table']}"
        case "warning" | "note" as kind:
            return f"{kind}: {event['message']}"
        case "skipped":
            when = f" in epoch {event['epoch']:,}" if "epoch" in event else ""
            examples = f" ({'; '.join(event['examples'])})" if event["examples"] else ""
            left_out = f"{counted(event['samples'], 'damaged sample')} of the {data_name(event['split'])} left out"
            return f"skipped: {left_out}{when}{examples}"
        case "error":
            return "\n".join(map(_format_problem, event["problems"])) + f" (exit status {event['exit_status']})"
        case "stopped":
            return f"stopped after step {event['step']:,}{stop_reason_suffix(event.get('reason'))}"
        case "done":
            evaluations = {split: event[split] for split in ("validation", "test") if event.get(split)}
            for evaluation in list(evaluations.values()):
                evaluations |= evaluation.get("others", {})
            results = "".join(f", {split} {format_evaluation(values)}" for split, values in evaluations.items())
            damaged = counted(event.get("skipped", 0), "damaged sample")
            skipped = f", {damaged} of the training data left out" if event.get("skipped") else ""
            best = f", {describe_best(event)}" if event.get("best") else ""
            return f"done: {counted(event['steps'], 'step')} in {duration(event['seconds'])}{best}{results}{skipped}"
    return json_text(event)


def stop_reason_suffix(reason: str | None) -> str:
    """The reason why a training was interrupted, after a colon; empty for Ctrl-C, whose user knows it."""
    return "" if reason in (None, "SIGINT") else f": {reason}"


def format_epoch(log: Event | None, test: Event) -> str | None:
    """Return the training loss up to an evaluation and its results as one line of text.

    None if they are not of the same weights, if the results are not finite, or if there is more to report.
    """
    if log is None or log["step"] != test["step"] or test.get("best_weights") or test.get("non_finite"):
        return None
    if any(event.get(name) for event in (log, test) for name in REPORTED_APART):
        return None
    values = {"loss": log["loss"], **log.get("metrics", {})}
    train = " ".join(f"{name} {value:.5f}" for name, value in values.items())
    results = format_results(test)
    return f"step {log['step']:,} epoch {log['epoch']:.2f} train {train}, {test.get('split', 'test')} {results}"


def _format_problem(problem: Mapping[str, Any]) -> str:
    """Return a problem in one line, with its location."""
    file, line, column = (problem[key] for key in ("file", "line", "column"))
    location = f"{file}:{line}:{column}: " if file else ""
    details = "".join(f"; {key}: {problem[key]}" for key in ("expected", "got", "hint") if problem[key])
    return f"{location}error: {problem['message']}{details}"


def describe_best(done: Event) -> str:
    """Return what distinguishes the final weights: `best at step 16 (highest validation accuracy)`."""
    best = done["best"]
    extreme = "highest" if best["mode"] == "max" else "lowest"
    return f"best at step {done['weights_step']:,} ({extreme} {best['split']} {best['monitor']})"


def _strategy_of(event: Event) -> str:
    """Format the strategy of several workers: `, by top_k: bucket 4MiB, density 0.01`.

    Timeouts and options that are off are left out.
    """
    shown_fields = dict(event.get("parallel") or {})
    if not shown_fields:
        return ""
    shown_fields |= {"hierarchical": event["by_host"]} if "hierarchical" in shown_fields else {}
    if not shown_fields.get("deterministic", True):
        shown_fields.pop("shards", None)
    name = shown_fields.pop("strategy")
    options = [
        key
        if value is True
        else f"{key} {_binary_size(value) if key in BUCKETS else json_text(value)}".replace('"', "")
        for key, value in shown_fields.items()
        if key not in WAITS and value is not False
    ]
    return f", by {name}: {', '.join(options)}" if options else f", by {name}"


def _binary_size(size: int) -> str:
    """Format a number of bytes as a spec can write it, such as `4MiB`."""
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _format_split(parts: Sequence[int]) -> str:
    """Format the batch sizes of the workers: `16 + 16 + 16 + 16`, or `64 × 16` for many workers."""
    if len(parts) <= MAX_LISTED_WORKERS:
        return " + ".join(map(str, parts))
    return " + ".join(f"{parts.count(size)} × {size}" for size in dict.fromkeys(parts))


def values_of(event: Event) -> dict[str, Any]:
    """Return the loss and the metrics of an event, including those in the target's unit; None for values not finite."""
    metrics = event["metrics"] if isinstance(event.get("metrics"), dict) else {}
    in_units = event["in_units"] if isinstance(event.get("in_units"), dict) else {}
    return {"loss": event.get("loss"), **metrics, **{f"{name}{IN_UNIT}": value for name, value in in_units.items()}}


def format_evaluation(test: Event) -> str:
    """Return loss, metrics and sample count of an evaluation as text."""
    samples = f"over {counted(test['samples'], 'sample')}"
    skipped = f", {test['skipped']:,} left out" if test.get("skipped") else ""
    return f"{format_results(test)} {samples}".lstrip() + skipped + (" (not finite)" if test.get("non_finite") else "")


def format_results(test: Event) -> str:
    """Return loss and metrics of an evaluation as text."""
    loss = [] if test["loss"] is None else [f"loss {test['loss']:.5f}"]
    in_units = {
        name: f" ({format_digits(value, 5)} in the target's unit)" for name, value in test.get("in_units", {}).items()
    }
    metrics = [f"{name} {value:.5f}{in_units.get(name, '')}" for name, value in test["metrics"].items()]
    return " ".join([*loss, *metrics])
