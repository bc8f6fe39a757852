"""Which GPU kernels are planned for: one that is not there, or the current one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_target: ContextVar[str | None] = ContextVar("target", default=None)


def target() -> str | None:
    """The name, in `GPUS`, of the GPU that is planned for and need not be there; None for the current one."""
    return _target.get()


@contextmanager
def planned_for(name: str) -> Iterator[None]:
    """Plan for another GPU meanwhile."""
    token = _target.set(name)
    try:
        yield
    finally:
        _target.reset(token)
