"""Starts subjects, each in its own process, and measures them in turn."""

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
"""Environment variables from which libraries read their number of threads; NPROC is XLA's."""
PAUSE = 0.02
"""Seconds between two measurements: idle threads of a pool spin for some milliseconds."""
PATIENCE = 600.0
"""Default number of seconds in which a subject must answer."""


class BenchmarkError(Exception):
    """A subject failed; the message is for the user."""


class Worker:
    """One subject in its own process, which must start within `limit` seconds."""

    def __init__(self, threads: int, *, limit: float = PATIENCE, **request: Any) -> None:
        self.name = request["subject"]
        environment = {**os.environ, **dict.fromkeys(POOLS, str(threads))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", json.dumps({**request, "threads": threads})],
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

    def ask(self, action: str, **details: Any) -> dict[str, Any]:
        """Send a request, and wait for the answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps({"do": action, **details}) + "\n").encode())
        except BrokenPipeError:
            raise self._ended() from None
        return self._answer(PATIENCE)

    def _answer(self, limit: float) -> dict[str, Any]:
        """Return the next line of its output. Raises `BenchmarkError` if it ends or does not answer in time."""
        assert self._process.stdout is not None
        end = time.monotonic() + limit
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not ready.select(max(0.0, end - time.monotonic())):
                    self._process.kill()
                    raise BenchmarkError(f"{self.name} did not answer for {limit:.0f} s")
                read = os.read(self._process.stdout.fileno(), 1 << 16)
                if not read:
                    raise self._ended()
                self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self) -> BenchmarkError:
        return BenchmarkError(f"{self.name} ended with status {self._process.wait()}; see its output above")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class LocalWorker:
    """One subject in this process, together with all others: to measure how they disturb each other."""

    def __init__(self, threads: int, *, limit: float = PATIENCE, **request: Any) -> None:
        from benchmarks.worker import Host

        self.name = request["subject"]
        self._host = Host({**request, "threads": threads})
        self.facts = self._host.ready()

    def ask(self, action: str, **details: Any) -> dict[str, Any]:
        """Handle a request."""
        answer: dict[str, Any] = getattr(self._host, action)(**details)
        return answer

    def close(self) -> None:
        """Release the subject."""
        del self._host


class Workers:
    """Several subjects by name, closed together. A subject that fails is left out, and its failure is recorded."""

    def __init__(self) -> None:
        self.by_name: dict[str, Worker | LocalWorker] = {}
        self.failed: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.by_name.values():
            worker.close()

    def start(self, threads: int, *, local: bool = False, **request: Any) -> Worker | LocalWorker:
        """Start a subject and wait until it has run its first step. Raises `BenchmarkError` if it fails."""
        worker = (LocalWorker if local else Worker)(threads, **request)
        self.by_name[request["subject"]] = worker
        return worker

    def try_start(self, threads: int, **request: Any) -> None:
        """Start a subject; record a failure in `failed`."""
        try:
            self.start(threads, **request)
        except BenchmarkError as error:
            self.failed[request["subject"]] = str(error)

    def drop(self, name: str, why: str) -> None:
        """Leave a subject out from now on."""
        self.failed[name] = why
        self.by_name.pop(name).close()


@dataclass
class Times:
    """Seconds of the steps of one subject, over all rounds."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """Processor time of a step, in seconds: the mean of each round."""

    @property
    def median(self) -> float:
        """The median."""
        return median(self.seconds)

    @property
    def fastest(self) -> float:
        """The minimum: the best estimate for an idle machine if other work shares it."""
        return min(self.seconds)


def alternate(
    workers: Workers, *, rounds: int, seconds: float, least: int, what: str = "step"
) -> Mapping[str, Times]:  # fmt: skip
    """Measure all subjects in turn, for `rounds` rounds, each of which starts with a different subject.

    `what` is the method of the subjects that is measured. A subject that fails is dropped from `workers` and from the
    result.
    """
    names: Sequence[str] = list(workers.by_name)
    times = {name: Times() for name in names}
    for turn in range(rounds):
        for name in [*names[turn % len(names) :], *names[: turn % len(names)]]:
            if name not in workers.by_name:
                continue
            time.sleep(PAUSE)
            try:
                answer = workers.by_name[name].ask("measure", seconds=seconds, least=least, what=what)
                times[name].seconds += answer["times"]
                times[name].processor.append(answer["processor"])
            except BenchmarkError as error:
                workers.drop(name, str(error))
    return {name: times[name] for name in workers.by_name}
