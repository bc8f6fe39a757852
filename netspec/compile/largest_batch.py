"""Find the largest batch that fits into memory by planning a few sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

MAX_SAMPLES = 1 << 20
"""Upper limit of the search."""
ATTEMPTS = 6
"""Largest number of batch sizes that are planned for a note in an error message."""
INTERPOLATIONS = 5
"""Number of sizes after which the search bisects: memory jumps if larger batches have other kernels."""


def largest_batch(bytes_of: Callable[[int], int], memory: int, start: int, attempts: int = ATTEMPTS) -> int | None:
    """Return the largest number of samples that fits into `memory` bytes; None if one sample does not fit.

    Memory grows about linearly with the batch size, so few sizes have to be planned: at most `attempts`, and size 1.
    """
    fits, exceeds, samples = 0, MAX_SAMPLES + 1, start
    planned: dict[int, int] = {}
    for attempt in range(attempts):
        planned[samples] = bytes_of(samples)
        fits, exceeds = (max(fits, samples), exceeds) if planned[samples] <= memory else (fits, min(exceeds, samples))
        if fits + 1 >= exceeds or fits >= MAX_SAMPLES:
            break
        guess = _guess(planned, memory) if attempt < INTERPOLATIONS else (fits + exceeds) // 2
        samples = min(max(guess, fits + 1), exceeds - 1)
    if not fits and exceeds > 1:
        fits = 1 if bytes_of(1) <= memory else 0
    return fits or None


def _guess(measured: Mapping[int, int], memory: int) -> int:
    """Interpolate linearly between the two sizes whose memory is nearest to `memory`."""
    nearest = sorted(measured, key=lambda samples: abs(measured[samples] - memory))[:2]
    if len(nearest) < 2:
        return 2 * nearest[0]
    low, high = sorted(nearest)
    slope = (measured[high] - measured[low]) / (high - low)
    return int(low + (memory - measured[low]) / slope) if slope > 0 else MAX_SAMPLES
