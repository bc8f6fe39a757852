"""Dynamic batching: requests that arrive within a few milliseconds are computed together."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Arrays: TypeAlias = "dict[str, NDArray[Any]]"
MAX_SIZES = 7
"""Number of batch sizes to compile; the compiler keeps eight programs."""


@dataclass
class _Job:
    """Samples of one request that wait to be computed."""

    arrays: Mapping[str, NDArray[Any]]
    samples: int
    result: Future[Arrays] = field(default_factory=Future)
    arrival: float = field(default_factory=time.monotonic)


def batch_sizes(most: int) -> list[int]:
    """Return the batch sizes to compile: powers of two, or of four if these are too many, and `most` itself."""
    for base in (2, 4, 8, 16):
        sizes = [1]
        while sizes[-1] * base < most:
            sizes.append(sizes[-1] * base)
        sizes += [most] if most > 1 else []
        if len(sizes) <= MAX_SIZES:
            return sizes
    return [1, most]


class Batcher:
    """Computes the samples of several requests in one batch, in a thread of its own.

    A batch starts when it has `sizes[-1]` samples, or when its oldest request has waited `max_delay` seconds. It is
    padded to the next of `sizes`, for which programs are compiled. `compute` receives arrays by the names of inputs
    and returns the outputs; `observe` is called with the number of samples and the seconds of each computed batch.
    """

    def __init__(
        self,
        compute: Callable[[Arrays], Arrays],
        sizes: Sequence[int],
        max_delay: float,
        observe: Callable[[int, float], object] = lambda samples, seconds: None,
    ) -> None:
        self._compute = compute
        self._sizes = sorted(sizes)
        self.max_delay = max_delay
        self._observe = observe
        self._waiting: deque[_Job] = deque()
        self._samples = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._loop, name="netspec-batches", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of requests that wait to be computed."""
        return len(self._waiting)

    def submit(self, arrays: Mapping[str, NDArray[Any]], samples: int) -> Future[Arrays]:
        """Queue the samples of a request; the future returns their outputs. A canceled future is not computed."""
        job = _Job(arrays, samples)
        with self._changed:
            if self._closed:
                raise RuntimeError("the batcher is closed")
            self._waiting.append(job)
            self._samples += samples
            self._changed.notify()
        return job.result

    def close(self) -> None:
        """Compute all requests that wait, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _loop(self) -> None:
        while jobs := self._next_batch():
            alive = [job for job in jobs if job.result.set_running_or_notify_cancel()]
            if alive:
                self._finish(alive)

    def _next_batch(self) -> list[_Job]:
        """Wait for the requests of the next batch. Empty if the batcher is closed and nothing waits."""
        most = self._sizes[-1]
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return []
                self._changed.wait()
            due = self._waiting[0].arrival + self.max_delay
            while self._samples < most and not self._closed and (left := due - time.monotonic()) > 0:
                self._changed.wait(left)
            jobs = [self._waiting.popleft()]
            samples = jobs[0].samples
            while self._waiting and samples + self._waiting[0].samples <= most:
                jobs.append(self._waiting.popleft())
                samples += jobs[-1].samples
            self._samples -= samples
            return jobs

    def _finish(self, jobs: list[_Job]) -> None:
        """Compute requests together, and pass each its outputs, or the error."""
        try:
            names = jobs[0].arrays
            outputs = self._outputs({name: np.concatenate([job.arrays[name] for job in jobs]) for name in names})
        except Exception as error:
            for job in jobs:
                job.result.set_exception(error)
            return
        start = 0
        for job in jobs:
            stop = start + job.samples
            job.result.set_result({name: array[start:stop] for name, array in outputs.items()})
            start = stop

    def _outputs(self, arrays: Arrays) -> Arrays:
        total, most = len(next(iter(arrays.values()))), self._sizes[-1]
        parts = []
        for start in range(0, total, most):
            samples = min(most, total - start)
            size = next(size for size in self._sizes if size >= samples)
            began = time.perf_counter()
            outputs = self._compute(
                {name: _padded(array[start : start + samples], size) for name, array in arrays.items()}
            )
            self._observe(samples, time.perf_counter() - began)
            parts.append({name: array[:samples] for name, array in outputs.items()})
        return parts[0] if len(parts) == 1 else {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }  # fmt: skip


def _padded(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Repeat the last sample until there are `size`: a valid one, whatever the net expects."""
    missing = size - len(array)
    return array if not missing else np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
