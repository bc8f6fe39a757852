"""The largest batch that fits: found by planning few sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

MOST_SAMPLES = 1 << 20
"""No larger batch is looked for."""
ATTEMPTS = 6
"""Largest number of batch sizes that are planned to find the largest one that fits."""


def largest_batch(needs: Callable[[int], int], memory: int, start: int) -> int | None:
    """Return the largest number of samples that fits into `memory` bytes; None if one sample does not fit.

    Memory grows about linearly with the batch size, so few sizes have to be planned.
    """
    fits, too_many, samples = 0, MOST_SAMPLES + 1, start
    known: dict[int, int] = {}
    for _ in range(ATTEMPTS):
        known[samples] = needs(samples)
        fits, too_many = (max(fits, samples), too_many) if known[samples] <= memory else (fits, min(too_many, samples))
        if fits + 1 >= too_many or fits >= MOST_SAMPLES:
            break
        samples = min(max(_guess(known, memory), fits + 1), too_many - 1)
    if not fits and too_many > 1:
        fits = 1 if needs(1) <= memory else 0
    return fits or None


def _guess(known: Mapping[int, int], memory: int) -> int:
    """Interpolate linearly between the two sizes nearest to the memory."""
    near = sorted(known, key=lambda samples: abs(known[samples] - memory))[:2]
    if len(near) < 2:
        return 2 * near[0]
    (low, high) = sorted(near)
    slope = (known[high] - known[low]) / (high - low)
    return int(low + (memory - known[low]) / slope) if slope > 0 else MOST_SAMPLES
