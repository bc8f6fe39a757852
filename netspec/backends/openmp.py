"""How idle OpenMP threads wait; said once, before libgomp is loaded."""

from __future__ import annotations

import os

SPINS = "1000"
"""Turns of a waiting thread before it sleeps, some microseconds: as long as the gap between two kernels of a step.

libgomp's own default is 300,000 and more. Where other programs want the cores too, a thread that spins keeps the very
one from running that it waits for: a step of LeNet took 432 ms so, and 26 ms with this setting (2 cores, load 8).
"""


def wait_briefly() -> None:
    """Set GOMP_SPINCOUNT, unless the user said how to wait."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
