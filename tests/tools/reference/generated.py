"""The pages of the reference, generated once for all tests of a process: it takes seconds."""

from __future__ import annotations

from functools import cache

from netspec.tools.reference import pages


@cache
def generated() -> dict[str, str]:
    """Pages of netspec's own classes by path."""
    return pages("netspec.")
