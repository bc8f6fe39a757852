"""Counts and durations of a service, in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass
class _Histogram:
    """Values counted by upper bounds."""

    bounds: Sequence[float]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        """Yield the series of the histogram; `labels` are written before `le`."""
        total = 0
        for bound, number in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            total += number
            yield f'{name}_bucket{{{labels}{"," if labels else ""}le="{bound}"}} {total}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self.total:.9g}"
        yield f"{name}_count{braces} {total}"


class ServiceMetrics:
    """Metrics of one service. All methods may be called from any thread."""

    def __init__(self) -> None:
        self.in_progress = 0
        """Number of requests that have begun and not ended."""
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = {}
        self._seconds: dict[str, _Histogram] = {}
        self._batches = _Histogram(SAMPLES)
        self._compute = _Histogram(SECONDS)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended. `route` is one of a fixed set of names."""
        with self._lock:
            self._requests[route, status] = self._requests.get((route, status), 0) + 1
            self._seconds.setdefault(route, _Histogram(SECONDS)).add(seconds)

    def batch(self, samples: int, seconds: float) -> None:
        """Count a computed batch."""
        with self._lock:
            self._batches.add(samples)
            self._compute.add(seconds)

    def text(self, waiting: int) -> str:
        """Return all metrics; `waiting` is the number of requests that wait to be computed."""
        with self._lock:
            return "\n".join([*self._lines(waiting), ""])

    def _lines(self, waiting: int) -> Iterator[str]:
        yield from _head("netspec_requests_total", "counter", "Requests by route and status.")
        for (route, status), number in sorted(self._requests.items()):
            yield f'netspec_requests_total{{route="{route}",status="{status}"}} {number}'
        yield from _head("netspec_request_seconds", "histogram", "Duration of requests in seconds.")
        for route, histogram in sorted(self._seconds.items()):
            yield from histogram.lines("netspec_request_seconds", f'route="{route}"')
        yield from _head("netspec_batch_samples", "histogram", "Samples per computed batch.")
        yield from self._batches.lines("netspec_batch_samples")
        yield from _head("netspec_compute_seconds", "histogram", "Duration of computed batches in seconds.")
        yield from self._compute.lines("netspec_compute_seconds")
        yield from _head("netspec_requests_in_progress", "gauge", "Requests that have begun and not ended.")
        yield f"netspec_requests_in_progress {self.in_progress}"
        yield from _head("netspec_requests_waiting", "gauge", "Requests that wait to be computed.")
        yield f"netspec_requests_waiting {waiting}"


def _head(name: str, kind: str, description: str) -> tuple[str, str]:
    return f"# HELP {name} {description}", f"# TYPE {name} {kind}"
