"""`Lines`: the ends of the workers' lines (`tether.py`) at the command that started them."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

LONGEST = 1 << 20
"""Bytes that a worker may say in one line."""
FATAL = b"Fatal Python error: "
"""What Python says first of a signal by which it dies; the system's word for it follows."""


class Worker:
    """A worker's line, and what was said over it."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.pid: int | None = None
        self.rank = 0
        self.status: int | None = None
        """The exit status that it left with; None while it runs, and of one that died."""
        self.run_dir: str | None = None
        self.failure: str | None = None
        """Why it ended the job."""
        self.ends_all = False
        """Whether all workers are to be killed."""
        self.crashed: str | None = None
        """The name of the signal by which it died, where it could say so."""
        self._rest = b""

    def listen(self) -> bool:
        """Take in what is there; whether the line still stands."""
        try:
            said = self.line.recv(65536)
        except OSError:
            said = b""
        *whole, self._rest = (self._rest + said).split(b"\n")
        for one in whole:
            if FATAL in one:
                self.crashed = _signal(one.partition(FATAL)[2].decode())
            elif one.startswith(b"{"):  # else where Python was then
                self._take(json.loads(one))
        return bool(said) and len(self._rest) < LONGEST

    def send(self, number: int) -> None:
        """Send it a signal."""
        if self.pid is not None:
            with suppress(OSError):
                os.kill(self.pid, number)

    def describe(self) -> str:
        """Which one it is, as a message begins."""
        return f"worker {self.rank} (pid {self.pid})"

    def _take(self, facts: dict[str, Any]) -> None:
        for name in ("pid", "rank", "status", "run_dir", "failure", "ends_all"):
            if name in facts:
                setattr(self, name, facts[name])


def _signal(word: str) -> str | None:
    """The name of a signal that has this name in words."""
    said = word.strip().replace("-", " ")
    return next((one.name for one in signal.Signals if signal.strsignal(one) == said), None)


class Lines:
    """The lines of all workers."""

    def __init__(self, path: Path, streams: Sequence[int]) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1024)
        self.died: Worker | None = None
        """The first worker that ended without a word, if nothing had ended the job before."""
        self.first_status = 0
        """What the first worker left with that did not leave with 0."""
        self._streams = list(streams)
        self._workers: list[Worker] = []
        self._ended: list[Worker] = []

    def accept(self) -> Worker:
        """Take up the line of a worker, and hand it the standard streams."""
        line, _ = self.listener.accept()
        with suppress(OSError):
            socket.send_fds(line, [b"."], self._streams)
        self._workers.append(Worker(line))
        return self._workers[-1]

    @property
    def count(self) -> int:
        """How many workers there have been."""
        return len(self._workers)

    def there(self) -> list[Worker]:
        """The workers that have said who they are, and whose lines stand: a process id is theirs as long as they do."""
        return [one for one in self._workers if one.pid is not None and one not in self._ended]

    def listen(self, worker: Worker) -> bool:
        """Take in what a worker says; whether its line still stands."""
        stands = worker.listen()
        if worker.status and not self.first_status:
            self.first_status = worker.status
        if not stands:
            self._ended.append(worker)
        return stands

    def settle(self) -> None:
        """See who died, once all that is there was heard: who ends the job says so before the others are killed."""
        if self.died is None and not self.first_status:
            self.died = next((one for one in self._ended if one.status is None), None)

    def crashed(self) -> Worker | None:
        """The first worker that said that it died by a signal."""
        return next((one for one in self._ended if one.crashed), None)

    def run_dir(self) -> str | None:
        """Where the run is, once it has begun."""
        return next((one.run_dir for one in self._workers if one.run_dir), None)

    def failure(self) -> str | None:
        """Why a worker ended the job, if one did."""
        return next((one.failure for one in self._workers if one.failure), None)

    def close(self) -> None:
        """Let go of all lines, which ends the workers that are still there."""
        for one in (self.listener, *(worker.line for worker in self._workers)):
            one.close()
        for stream in self._streams:
            os.close(stream)
