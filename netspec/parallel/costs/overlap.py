"""Communication beside computation: buckets of gradients, ready one by one during backward, and one channel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FIRST_BUCKET = 256 * 2**10
"""Bytes of the first bucket: small, so that communication begins early (Li et al. 2020, "PyTorch Distributed")."""
BUCKET = 4 * 2**20
"""Bytes of the others; both as `parallel: {strategy: all_reduce}` has them by default."""


@dataclass(frozen=True)
class Bucket:
    """Gradients that are sent together."""

    bytes: float
    """That are sent."""
    ready: float
    """Seconds from the begin of backward until the last of them is there."""


@dataclass(frozen=True)
class Schedule:
    """When a channel had done its work."""

    busy: float
    """Seconds that it worked."""
    end: float
    """Seconds from the begin of backward until the last bucket is through; 0 where there is none."""


def bucketed(
    gradients: Iterable[tuple[float, float, float]], first: float = FIRST_BUCKET, others: float = BUCKET
) -> list[Bucket]:
    """Gradients in backward order put together until a bucket is full.

    Of each: its bytes, the bytes that it is sent in, and when it is ready. None is split: a bucket is at least as large
    as its largest one.
    """
    found, held, sent, ready = list[Bucket](), 0.0, 0.0, 0.0
    for nbytes, packed, at in gradients:
        if not nbytes:
            continue
        held, sent, ready = held + nbytes, sent + packed, max(ready, at)
        if held >= (others if found else first):
            found.append(Bucket(sent, ready))
            held = sent = 0.0
    return [*found, Bucket(sent, ready)] if held else found


def serve(messages: Iterable[tuple[float, float]]) -> Schedule:
    """One message after the other, in their order, each when it is ready and the channel free.

    Of each: when it is ready, and the seconds that it takes.
    """
    free = busy = 0.0
    for ready, taken in messages:
        free, busy = max(free, ready) + taken, busy + taken
    return Schedule(busy, free)
