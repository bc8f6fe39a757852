"""Places in the arena: offsets for pieces of memory of known size and lifetime.

Places are found greedily, the largest piece first (Pisarchyk and Lee 2020, arXiv:2001.03288, "greedy by size"), each
at the lowest offset where it fits. That is mostly the least there can be: what is alive at once. Where it is not, other
orders are tried: by size times lifetime, by lifetime, and such in which the pieces that stuck out come first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from netspec.graph.plan import Storage

GOOD = 1.002
"""Times the lower bound: nothing better is looked for."""
ROUNDS = 24
"""Orders that are tried at most, fewer of many pieces."""
WORK = 4_000_000
"""Pairs of pieces that are looked at, all orders together."""


def place(pieces: Sequence[Storage]) -> int:
    """Give each piece its offset so that none overlaps another alive at the same time; the size of the arena."""
    least = most_alive(pieces)
    orders = [sorted(pieces, key=key) for key in (_size, _area, _life)]
    rounds = min(ROUNDS, WORK // (1 + len(pieces) ** 2)) // len(orders)
    best, total = _placed(orders[0])
    for order in orders:
        for _ in range(rounds):
            if total <= GOOD * least:
                break
            offsets, size = _placed(order)
            if size < total:
                best, total = offsets, size
            # What sticks out comes first; `sorted` keeps the order of the rest.
            order = sorted(order, key=lambda one: offsets[id(one)] + one.size <= least)
    for piece in pieces:
        piece.offset = best[id(piece)]
    return total


def _size(piece: Storage) -> tuple[int, int]:
    return -piece.size, piece.first


def _area(piece: Storage) -> tuple[int, int]:
    return -piece.size * (1 + piece.last - piece.first), piece.first


def _life(piece: Storage) -> tuple[int, int]:
    return piece.first - piece.last, -piece.size


def most_alive(pieces: Sequence[Storage]) -> int:
    """The most bytes that pieces alive at the same time have together: no arena can be smaller."""
    change: dict[int, int] = {}
    for piece in pieces:
        change[piece.first] = change.get(piece.first, 0) + piece.size
        change[piece.last + 1] = change.get(piece.last + 1, 0) - piece.size
    most = alive = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


def _placed(order: Sequence[Storage]) -> tuple[dict[int, int], int]:
    """Offsets by the identity of pieces, each as low as those before it let it be, and where the last of them ends."""
    total = 0
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first and last use: by offset, as are `offsets`
    offsets: list[int] = []
    found: dict[int, int] = {}
    for piece in order:
        first, last = piece.first, piece.last
        offset = 0
        for begin, end, others_first, others_last in placed:
            if others_first <= last and first <= others_last:
                if begin >= offset + piece.size:
                    break
                offset = max(offset, end)
        found[id(piece)] = offset
        total = max(total, offset + piece.size)
        at = bisect_right(offsets, offset)
        offsets.insert(at, offset)
        placed.insert(at, (offset, offset + piece.size, first, last))
    return found, total
