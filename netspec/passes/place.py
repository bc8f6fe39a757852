"""Places in the arena: offsets for pieces of memory of known size and lifetime.

Places are found greedily, the largest piece first (Pisarchyk and Lee 2020, arXiv:2001.03288, "greedy by size"), each
at the lowest offset where it fits, which is within a few per cent of the lower bound on real nets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from netspec.graph.plan import Storage


def place(pieces: Sequence[Storage]) -> int:
    """Give each piece its offset so that none overlaps another alive at the same time; the size of the arena."""
    total = 0
    placed: list[Storage] = []  # by offset, as are `offsets`
    offsets: list[int] = []
    for piece in sorted(pieces, key=lambda one: (-one.size, one.first)):
        first, last = piece.first, piece.last
        offset = 0
        for other in [one for one in placed if one.first <= last and first <= one.last]:
            if other.offset >= offset + piece.size:
                break
            offset = max(offset, other.offset + other.size)
        piece.offset = offset
        total = max(total, offset + piece.size)
        at = bisect_right(offsets, offset)
        offsets.insert(at, offset)
        placed.insert(at, piece)
    return total
