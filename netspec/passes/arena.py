"""Arena allocation: assigns offsets to storages of known size and lifetime.

Offsets are assigned greedily, the largest storage first ("greedy by size", Pisarchyk and Lee 2020, arXiv:2001.03288),
each at the lowest offset that is free. The result is mostly optimal: as large as what is alive at the same time.
Otherwise other orders are tried: by size times lifetime, by lifetime, and orders that begin with the storages that
exceeded the lower bound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from netspec.graph.execution_plan import Storage

GOOD = 1.002
"""No better result is searched for below this factor of the lower bound."""
ROUNDS = 24
"""Largest number of orders that are tried; fewer for many storages."""
WORK = 4_000_000
"""Largest number of pairs of storages that are compared, over all orders."""


def assign_offsets(pieces: Sequence[Storage]) -> int:
    """Assign offsets such that storages alive at the same time do not overlap; return the size of the arena."""
    least = peak_live_bytes(pieces)
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
            # Storages that exceed the bound come first; `sorted` keeps the order of the rest.
            order = sorted(order, key=lambda one: offsets[id(one)] + one.size <= least)
    for piece in pieces:
        piece.offset = best[id(piece)]
    return total


def _size(piece: Storage) -> tuple[int, int]:
    return -piece.size, piece.first_use


def _area(piece: Storage) -> tuple[int, int]:
    return -piece.size * (1 + piece.last_use - piece.first_use), piece.first_use


def _life(piece: Storage) -> tuple[int, int]:
    return piece.first_use - piece.last_use, -piece.size


def peak_live_bytes(pieces: Sequence[Storage]) -> int:
    """The most bytes that are alive at the same time: a lower bound of the arena's size."""
    change: dict[int, int] = {}
    for piece in pieces:
        change[piece.first_use] = change.get(piece.first_use, 0) + piece.size
        change[piece.last_use + 1] = change.get(piece.last_use + 1, 0) - piece.size
    most = alive = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


def _placed(order: Sequence[Storage]) -> tuple[dict[int, int], int]:
    """The lowest free offset of each storage in turn, by its id, and the end of the last one."""
    total = 0
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first and last use, sorted by offset like `offsets`
    offsets: list[int] = []
    found: dict[int, int] = {}
    for piece in order:
        first, last = piece.first_use, piece.last_use
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
