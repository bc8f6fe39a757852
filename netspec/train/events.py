"""What a training tells while it runs: a stream of events, each a plain mapping with the key `event`.

The log files, the progress display and `--json` all listen to the same stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO, TypeAlias

from netspec.errors import RunError, counted
from netspec.schema.plainjson import json_text

Event: TypeAlias = dict[str, Any]
"""`start`, `progress` (several times a second, not logged), `log`, `test`, `checkpoint`, `init_from`, `warning`,
`note`, `skipped`, `done`."""
Listener: TypeAlias = Callable[[Event], None]


MOST_EXAMPLES = 3
"""So many of the damaged samples that were left out are named; the others are counted."""
WAITS = ("heartbeat", "stall")
"""Settings of strategies that do not alter how workers train."""
MOST_PARTS = 4
"""Of a batch: so many workers' parts are listed, of more how often each size occurs."""
SPLITS = {"train": "training", "test": "test"}


class LogFiles:
    """Writes every event but `progress` to `log.jsonl` as JSON and to `log.txt` as text, at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.jsonl"
        self._open()

    def _open(self) -> None:
        self._json, self._text = _appended(self.path), _appended(self.path.with_suffix(".txt"))

    def __call__(self, event: Event) -> None:
        """Write one event. Raises `RunError` where the disk does not take it."""
        if event["event"] == "progress":
            return
        if self.path.parent.is_dir() and not self.path.exists():  # somebody removed them
            self.__exit__(None, None, None)
            self._open()
        for file, line in ((self._json, json_text(event)), (self._text, as_text(event))):
            try:
                file.write(line + "\n")
                file.flush()
            except OSError as error:
                raise RunError(f"cannot write {file.name}", got=error.strerror) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._json, self._text):
            with suppress(OSError):  # what could not be written has been told
                file.close()


def _appended(path: Path) -> TextIO:
    """The file, opened to write on. A process that was killed may have left its last line without an end."""
    torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    file = path.open("a", encoding="utf-8", errors="backslashreplace")  # names of files may be any bytes
    if torn:
        file.write("\n")
    return file


def tell(listeners: Iterable[Listener], event: str, **facts: Any) -> None:
    """Send an event to all listeners."""
    made: Event = {"event": event, **facts}
    for listener in listeners:
        listener(made)


def tell_skipped(
    listeners: Iterable[Listener], split: str, samples: int, examples: Sequence[str], *, epoch: int | None = None
) -> None:
    """Tell how many damaged samples of `train` or `test` were left out: in an epoch, an evaluation, or at opening."""
    when = {} if epoch is None else {"epoch": epoch}
    tell(listeners, "skipped", split=split, **when, samples=samples, examples=list(examples[:MOST_EXAMPLES]))


def as_text(event: Event) -> str:
    """One line for a person."""
    match event["event"]:
        case "start":
            parts = event.get("split", ())
            split = f" = {_sum_of(parts)} on {counted(len(parts), 'worker')}" if parts else ""
            if many := (event.get("parallel") or {}).get("micro_batches"):
                split = f" through {counted(event['workers'], 'stage')}, micro-batches: {many}"
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
            skipped = f" skipped {event['skipped_steps']:,}" if event.get("skipped_steps") else ""
            skipped += f" late gradients {event['late_gradients']:,}" if event.get("late_gradients") else ""
            return (
                f"step {event['step']:,} epoch {event['epoch']:.2f} loss {event['loss']:.5f} "
                f"learning rate {event['learning_rate']:.6g}{skipped} {rate:,.0f} samples/s"
            )
        case "test":
            return f"step {event['step']:,} test {figures(event)}"
        case "checkpoint":
            return f"step {event['step']:,} checkpoint {event['path']}"
        case "init_from":
            return f"weights from {event['file']}:\n{event['table']}"
        case "warning" | "note" as kind:
            return f"{kind}: {event['message']}"
        case "skipped":
            when = f" in epoch {event['epoch']:,}" if "epoch" in event else ""
            which = f" ({'; '.join(event['examples'])})" if event["examples"] else ""
            left_out = f"{counted(event['samples'], 'damaged sample')} of the {SPLITS[event['split']]} data left out"
            return f"skipped: {left_out}{when}{which}"
        case "done":
            test = f", test {figures(event['test'])}" if event["test"] else ""
            skipped = f", {counted(event['skipped'], 'damaged sample')} left out" if event.get("skipped") else ""
            return f"done: {counted(event['steps'], 'step')} in {event['seconds']:.1f} s{test}{skipped}"
    return json_text(event)


def _strategy_of(event: Event) -> str:
    """How several workers train: `, by top_k: density 0.01, smallest 1000`; without how long they wait."""
    told = dict(event.get("parallel") or {})
    if not told:
        return ""
    told |= {"hierarchical": event["by_host"]} if "hierarchical" in told else {}
    if not told.get("deterministic", True):
        told.pop("shards", None)
    name = told.pop("strategy")
    shown = [f"{key} {json_text(one)}".replace('"', "") for key, one in told.items() if key not in WAITS]
    return f", by {name}: {', '.join(shown)}" if shown else f", by {name}"


def _sum_of(parts: Sequence[int]) -> str:
    """`16 + 16 + 16 + 16`; of many, how often each: `64 × 16`."""
    if len(parts) <= MOST_PARTS:
        return " + ".join(map(str, parts))
    return " + ".join(f"{parts.count(size)} × {size}" for size in dict.fromkeys(parts))


def figures(test: Event) -> str:
    """Loss, metrics and sample count of an evaluation."""
    loss = [] if test["loss"] is None else [f"loss {test['loss']:.5f}"]
    metrics = [f"{name} {value:.5f}" for name, value in test["metrics"].items()]
    samples = f"over {counted(test['samples'], 'sample')}"
    skipped = f", {test['skipped']:,} left out" if test.get("skipped") else ""
    return " ".join([*loss, *metrics, samples]) + skipped + (" (not finite)" if test.get("non_finite") else "")
