"""The Winograd backend: convolutions with fewer multiplications than direct ones, but larger rounding errors.

It is a separate backend, so that it can be excluded. Numba compiles its code.
"""

from __future__ import annotations

from netspec.backends import numba

ROUNDS_MORE = True
"""See `netspec.backends.device.Device.no_fast_rounding`."""


def unavailable_reason() -> str | None:
    """Return why this backend cannot be used; None if it can."""
    return numba.unavailable_reason()


def description() -> str:
    """The compiler, and the number of threads."""
    return numba.description()
