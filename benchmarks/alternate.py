"""Starting subjects, each in a process of its own, and measuring them in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[1]
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
PAUSE = 0.02
"""Seconds between two measurements: a pool of threads spins on for some milliseconds after its last work."""


class BenchmarkError(Exception):
    """A subject failed; the message is for whoever runs the benchmark."""


class Worker:
    """One subject in a process of its own."""

    def __init__(self, threads: int, **wanted: Any) -> None:
        self.name = wanted["subject"]
        environment = {**os.environ, **dict.fromkeys(POOLS, str(threads))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", json.dumps({**wanted, "threads": threads})],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts = self._answer()

    def ask(self, what: str, **details: Any) -> dict[str, Any]:
        """Have it do something, and wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **details}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError(f"{self.name} ended with status {self._process.wait()}; what it said is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class LocalWorker:
    """One subject in this process, beside all others: to see what that does to them."""

    def __init__(self, threads: int, **wanted: Any) -> None:
        from benchmarks.worker import Host

        self.name = wanted["subject"]
        self._host = Host({**wanted, "threads": threads})
        self.facts = self._host.ready()

    def ask(self, what: str, **details: Any) -> dict[str, Any]:
        """Do something."""
        answer: dict[str, Any] = getattr(self._host, what)(**details)
        return answer

    def close(self) -> None:
        """Let it go."""
        del self._host


class Workers:
    """Several subjects by name, closed together."""

    def __init__(self) -> None:
        self.by_name: dict[str, Worker | LocalWorker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.by_name.values():
            worker.close()

    def start(self, threads: int, *, local: bool = False, **wanted: Any) -> Worker | LocalWorker:
        """Start a subject and wait until it has run its first step."""
        made = (LocalWorker if local else Worker)(threads, **wanted)
        self.by_name[wanted["subject"]] = made
        return made


@dataclass(frozen=True)
class Times:
    """Seconds of the steps of one subject, over all rounds."""

    seconds: Sequence[float]

    @property
    def median(self) -> float:
        """The middle one."""
        return median(self.seconds)

    @property
    def fastest(self) -> float:
        """The least: the best guess at a quiet machine where other work shares this one."""
        return min(self.seconds)


def alternate(
    workers: Mapping[str, Worker | LocalWorker], *, rounds: int, seconds: float, least: int
) -> dict[str, Times]:
    """Measure all subjects in turn, `rounds` times over, each round starting with another one."""
    found: dict[str, list[float]] = {name: [] for name in workers}
    names = list(workers)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            time.sleep(PAUSE)
            found[name] += workers[name].ask("measure", seconds=seconds, least=least)["times"]
    return {name: Times(times) for name, times in found.items()}
