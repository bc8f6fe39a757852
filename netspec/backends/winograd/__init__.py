"""The Winograd backend: convolutions with fewer multiplications than taps, which round more than direct ones.

A backend of its own, so that it can be left out as a whole. Its code is compiled by numba's backend.
"""

from __future__ import annotations

from netspec.backends import numba

ROUNDS_MORE = True
"""See `netspec.backends.base.Device.direct`."""


def missing() -> str | None:
    """Why this backend cannot be used, or None."""
    return numba.missing()


def about() -> str:
    """What compiles and runs it."""
    return numba.about()
