"""`MachineModel`: the arithmetic and memory throughput of a machine, from which kernels estimate their time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from netspec.graph.types import Precision


@dataclass(frozen=True)
class MachineModel:
    """Peak throughput of a machine. Estimates are only compared with each other, so only ratios matter."""

    flops_per_second: float
    """Float32 operations per second; a multiplication and an addition count as two."""
    bytes_per_second: float
    """Bytes read from and written to memory per second."""
    cached_bytes_per_second: float
    """Bytes per second for values that fit the cache."""
    cache_bytes: int
    """Size of the cache in bytes."""
    call_seconds: float
    """Minimum duration of a kernel call in seconds."""
    contraction_flops: Mapping[Precision, float] = field(default_factory=dict)
    """Operations per second in matrix products, by precision, if the machine has units for them."""

    def contraction_rate(self, precision: Precision) -> float:
        """Operations per second in matrix products; the float32 rate if no unit is faster."""
        return self.contraction_flops.get(precision, self.flops_per_second)

    def transfer_seconds(self, nbytes: float) -> float:
        """Seconds to read or write `nbytes` bytes."""
        return nbytes / (self.cached_bytes_per_second if nbytes <= self.cache_bytes else self.bytes_per_second)


DEFAULT_CORE = MachineModel(
    flops_per_second=1e11, bytes_per_second=1e10, cached_bytes_per_second=1e11, cache_bytes=1 << 20, call_seconds=5e-7
)
"""Approximate figures of one CPU core."""

_current: ContextVar[MachineModel] = ContextVar("machine_model", default=DEFAULT_CORE)


def machine_model() -> MachineModel:
    """The model of the machine that the graph is being planned for."""
    return _current.get()


@contextmanager
def use_machine_model(model: MachineModel) -> Iterator[None]:
    """Plan for another machine inside the block."""
    token = _current.set(model)
    try:
        yield
    finally:
        _current.reset(token)
