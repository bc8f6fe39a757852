"""What a training tells while it runs: a stream of events, each a plain mapping with the key `event`.

The log files, the progress display and `--json` all listen to the same stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

Event: TypeAlias = dict[str, Any]
"""`start`, `progress` (several times a second, not logged), `log`, `test`, `checkpoint`, `warning`, `note`, `done`."""
Listener: TypeAlias = Callable[[Event], None]


class LogFiles:
    """Writes every event but `progress` to `log.jsonl` as JSON and to `log.txt` as text, at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.jsonl"
        self._json = self.path.open("a", encoding="utf-8")
        self._text = (folder / "log.txt").open("a", encoding="utf-8")

    def __call__(self, event: Event) -> None:
        """Write one event."""
        if event["event"] == "progress":
            return
        self._json.write(json.dumps(event) + "\n")
        self._json.flush()
        self._text.write(as_text(event) + "\n")
        self._text.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._json.close()
        self._text.close()


def tell(listeners: Iterable[Listener], event: str, **facts: Any) -> None:
    """Send an event to all listeners."""
    made: Event = {"event": event, **facts}
    for listener in listeners:
        listener(made)


def as_text(event: Event) -> str:
    """One line for a person."""
    match event["event"]:
        case "start":
            resumed = f", resumed at step {event['step']}" if event["step"] else ""
            return (
                f"{event['name']}: {event['parameters']:,} parameters, {event['samples']:,} samples, "
                f"batch {event['batch_size']}, {event['steps']:,} steps on {event['device']}{resumed}"
            )
        case "log" | "progress":
            rate = event["samples_per_second"]
            return (
                f"step {event['step']:,} epoch {event['epoch']:.2f} loss {event['loss']:.5f} "
                f"learning rate {event['learning_rate']:.6g} {rate:,.0f} samples/s"
            )
        case "test":
            return f"step {event['step']:,} test {figures(event)}"
        case "checkpoint":
            return f"step {event['step']:,} checkpoint {event['path']}"
        case "warning" | "note" as kind:
            return f"{kind}: {event['message']}"
        case "done":
            test = f", test {figures(event['test'])}" if event["test"] else ""
            return f"done: {event['steps']:,} steps in {event['seconds']:.1f} s{test}"
    return json.dumps(event)


def figures(test: Event) -> str:
    """Loss, metrics and sample count of an evaluation."""
    loss = [] if test["loss"] is None else [f"loss {test['loss']:.5f}"]
    metrics = [f"{name} {value:.5f}" for name, value in test["metrics"].items()]
    return " ".join([*loss, *metrics, f"over {test['samples']:,} samples"])
