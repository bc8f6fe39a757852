"""`Rates`: what a machine computes and moves in a second, by which kernels rate themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from netspec.graph.types import Precision


@dataclass(frozen=True)
class Rates:
    """The most that a machine does. Ratings are compared with one another, so that ratios matter alone."""

    flops: float
    """Floating-point operations of float32 in a second; a multiplication and an addition are two."""
    bytes: float
    """From and to memory, in a second."""
    cached_bytes: float
    """The same of values that fit the cache."""
    cache: int
    """Bytes that it holds."""
    call: float
    """Seconds that a call takes at least."""
    products: Mapping[Precision, float] = field(default_factory=dict)
    """Operations in a second of products and sums of products, where there are units that do these alone."""

    def of_products(self, precision: Precision) -> float:
        """Operations of products in a second: as those of float32 where nothing is faster."""
        return self.products.get(precision, self.flops)

    def moving(self, nbytes: float) -> float:
        """Seconds that it takes to read or write so many bytes."""
        return nbytes / (self.cached_bytes if nbytes <= self.cache else self.bytes)


CORE = Rates(flops=1e11, bytes=1e10, cached_bytes=1e11, cache=1 << 20, call=5e-7)
"""About those of a core of a processor."""

_current: ContextVar[Rates] = ContextVar("rates", default=CORE)


def rates() -> Rates:
    """Those of the machine that is planned for."""
    return _current.get()


@contextmanager
def rated(other: Rates) -> Iterator[None]:
    """Plan for another machine meanwhile."""
    token = _current.set(other)
    try:
        yield
    finally:
        _current.reset(token)
