"""Starting subjects, each in a process of its own, and measuring them in turn."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[1]
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NPROC")
"""What the libraries read the number of their threads from; NPROC is XLA's."""
PAUSE = 0.02
"""Seconds between two measurements: a pool of threads spins on for some milliseconds after its last work."""
PATIENCE = 600.0
"""Seconds that a subject may take to answer, unless a benchmark says otherwise."""


class BenchmarkError(Exception):
    """A subject failed; the message is for whoever runs the benchmark."""


class Worker:
    """One subject in a process of its own, given up where it takes longer than `limit` seconds to start."""

    def __init__(self, threads: int, *, limit: float = PATIENCE, **wanted: Any) -> None:
        self.name = wanted["subject"]
        environment = {**os.environ, **dict.fromkeys(POOLS, str(threads))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", json.dumps({**wanted, "threads": threads})],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._rest = b""
        try:
            self.facts = self._answer(limit)
        except BenchmarkError:
            self.close()
            raise

    def ask(self, what: str, **details: Any) -> dict[str, Any]:
        """Have it do something, and wait for the answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps({"do": what, **details}) + "\n").encode())
        except BrokenPipeError:
            raise self._ended() from None
        return self._answer(PATIENCE)

    def _answer(self, limit: float) -> dict[str, Any]:
        """The next line of its output. Raises `BenchmarkError` where it ends, or is silent for too long."""
        assert self._process.stdout is not None
        end = time.monotonic() + limit
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not ready.select(max(0.0, end - time.monotonic())):
                    self._process.kill()
                    raise BenchmarkError(f"{self.name} gave no answer for {limit:.0f} s")
                read = os.read(self._process.stdout.fileno(), 1 << 16)
                if not read:
                    raise self._ended()
                self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self) -> BenchmarkError:
        return BenchmarkError(f"{self.name} ended with status {self._process.wait()}; what it said is above")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class LocalWorker:
    """One subject in this process, beside all others: to see what that does to them."""

    def __init__(self, threads: int, *, limit: float = PATIENCE, **wanted: Any) -> None:
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
    """Several subjects by name, closed together. One that fails is left out, its failure kept."""

    def __init__(self) -> None:
        self.by_name: dict[str, Worker | LocalWorker] = {}
        self.failed: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.by_name.values():
            worker.close()

    def start(self, threads: int, *, local: bool = False, **wanted: Any) -> Worker | LocalWorker:
        """Start a subject and wait until it has run its first step. Raises `BenchmarkError` where it does not."""
        made = (LocalWorker if local else Worker)(threads, **wanted)
        self.by_name[wanted["subject"]] = made
        return made

    def try_start(self, threads: int, **wanted: Any) -> None:
        """As `start`; a failure is kept in `failed`."""
        try:
            self.start(threads, **wanted)
        except BenchmarkError as error:
            self.failed[wanted["subject"]] = str(error)

    def drop(self, name: str, why: str) -> None:
        """Leave a subject out from now on."""
        self.failed[name] = why
        self.by_name.pop(name).close()


@dataclass
class Times:
    """Seconds of the steps of one subject, over all rounds."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The middle one."""
        return median(self.seconds)

    @property
    def fastest(self) -> float:
        """The least: the best guess at a quiet machine where other work shares this one."""
        return min(self.seconds)


def alternate(workers: Workers, *, rounds: int, seconds: float, least: int) -> Mapping[str, Times]:
    """Measure all subjects in turn, `rounds` times over, each round starting with another one.

    One that fails is dropped from `workers`, and from the result.
    """
    names: Sequence[str] = list(workers.by_name)
    found = {name: Times() for name in names}
    for turn in range(rounds):
        for name in [*names[turn % len(names) :], *names[: turn % len(names)]]:
            if name not in workers.by_name:
                continue
            time.sleep(PAUSE)
            try:
                found[name].seconds += workers.by_name[name].ask("measure", seconds=seconds, least=least)["times"]
            except BenchmarkError as error:
                workers.drop(name, str(error))
    return {name: found[name] for name in workers.by_name}
