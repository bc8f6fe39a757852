"""Bytes that a worker sends in a collective call, as algorithms do that send the least.

The MPI library may choose another way for a call, and sends more then: `costs/collectives.py` has them.
"""

from __future__ import annotations


def reduced(nbytes: float, workers: int) -> float:
    """All-reduce: each p-th is summed up by one worker and handed round, 2 (p - 1)/p n."""
    return 2 * exchanged(nbytes, workers)


def exchanged(nbytes: float, workers: int) -> float:
    """All-to-all, where each p-th goes to another worker: (p - 1)/p n."""
    return nbytes * (workers - 1) / workers


def gathered(nbytes: float, workers: int) -> float:
    """All-gather of so many bytes of each worker: (p - 1) n."""
    return nbytes * (workers - 1)
