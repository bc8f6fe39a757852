"""Runs the process that reads damaged files, and restarts it after each file that ends it or on which it hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Self

from tests.fuzz.worker import SECONDS

STATES = ("accepted", "refused", "unlocated", "wrong", "traceback", "crash", "hang", "memory")
"""Outcomes: a file is accepted or refused, or one of the failures. `unlocated`: refused by a message that names no
file; `wrong`: accepted, although the content cannot be right; `memory`: refused because memory ran out."""
FILES_PER_PROCESS = 1000
"""Number of files after which the process is restarted: libraries keep some memory for each."""
WAIT = 60 * SECONDS
"""Wall-clock seconds for one file: much more than its CPU time, since the machine may be busy."""


@dataclass
class Tally:
    """Outcomes of the files of a reader."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


class Fuzzer:
    """Reads damaged files, and counts the outcomes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.process: subprocess.Popen[str] | None = None
        self.lines: Queue[str | None] = Queue()
        self._files = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, reader: str, first: int, count: int) -> Tally:
        """Damage and read `count` files, from number `first` on."""
        tally, number, stop = Tally(), first, first + count
        while number < stop:
            process = self._started()
            assert process.stdin is not None
            request = [reader, number, min(stop - number, FILES_PER_PROCESS)]
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            last_number = number - 1
            while (outcome := self._outcome()) is not None and outcome["state"] != "done":
                if outcome["state"] == "begun":
                    last_number = outcome["number"]
                    continue
                number = last_number + 1
                self._count(tally, reader, last_number, outcome["state"], outcome["what"])
            if outcome is None:
                if last_number < number:
                    raise RuntimeError(f"{reader}: the intact files are not read\n{self._end()}")
                hangs = process.poll() is None
                event = f"nothing after {WAIT} seconds" if hangs else ""
                event += self._end()
                self._count(tally, reader, last_number, "hang" if hangs else "crash", event)
                number = last_number + 1
        return tally

    def _count(self, tally: Tally, reader: str, number: int, state: str, event: str) -> None:
        tally.counts[state] += 1
        self._files += 1
        if state not in ("accepted", "refused"):
            tally.failures.append(f"{state}: --only {reader!r} --seed {self.seed} --first {number} --files 1: {event}")

    def _started(self) -> subprocess.Popen[str]:
        if self._files >= FILES_PER_PROCESS:
            self._end()
        if self.process is None:
            self._files = 0
            self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  open as long as the process
            command = [sys.executable, "-m", "tests.fuzz.worker", str(self.seed)]
            # By default, every thread reserves 64 MB of addresses, which count towards the limit of memory.
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
                cwd=Path(__file__).parents[2], env={**os.environ, "MALLOC_ARENA_MAX": "2"},
            )  # fmt: skip
            self.lines = Queue()
            self.reader = threading.Thread(target=_forward, args=(self.process, self.lines), daemon=True)
            self.reader.start()
        return self.process

    def _outcome(self) -> dict[str, Any] | None:
        """The next outcome; None if the process ended, or hangs."""
        try:
            line = self.lines.get(timeout=WAIT)
        except Empty:
            return None
        outcome: dict[str, Any] | None = None if line is None else json.loads(line)
        return outcome

    def _end(self) -> str:
        """End the process; returns its exit status and the end of its error output."""
        if self.process is None:
            return ""
        self.process.kill()
        status = self.process.wait()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.reader.join()
        self.errors.seek(0)
        text = self.errors.read()[-600:]
        self.errors.close()
        self.process = None
        return f"the process ended with {status}: {text}"


def _forward(process: subprocess.Popen[str], lines: Queue[str | None]) -> None:
    """Put the lines of a process into a queue, and None at its end."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    process.wait()
    lines.put(None)
