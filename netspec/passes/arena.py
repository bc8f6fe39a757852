"""Arena allocation: assigns offsets to storages of known size and lifetime.

Offsets are assigned greedily, the largest storage first ("greedy by size", Pisarchyk and Lee 2020, arXiv:2001.03288),
each at the lowest offset that is free. The result is usually optimal: no larger than the peak of live bytes. Otherwise
other orders are tried: by size times lifetime, by lifetime, and orders that begin with the storages that exceeded this
lower bound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from netspec.graph.execution_plan import Storage

GOOD = 1.002
"""The search ends when the arena is at most this factor larger than the lower bound."""
ROUNDS = 24
"""Largest number of orders that are tried; fewer for many storages."""
WORK = 4_000_000
"""Largest number of pairs of storages that are compared, over all orders."""


def assign_offsets(storages: Sequence[Storage]) -> int:
    """Assign offsets such that storages alive at the same time do not overlap; return the size of the arena."""
    lower_bound = peak_live_bytes(storages)
    orders = [sorted(storages, key=key) for key in (_by_size, _by_area, _by_lifetime)]
    rounds = min(ROUNDS, WORK // (1 + len(storages) ** 2)) // len(orders)
    first = _first_fit(orders[0])
    best, total = first
    for order in orders:
        tried: set[tuple[int, ...]] = set()
        for _ in range(rounds):
            ids = tuple(map(id, order))
            if total <= GOOD * lower_bound or ids in tried:
                break  # a repeated order would repeat the same sequence
            tried.add(ids)
            offsets, size = first if order is orders[0] else _first_fit(order)
            if size < total:
                best, total = offsets, size
            # Storages that exceed the bound come first; `sorted` keeps the order of the rest.
            order = sorted(order, key=lambda storage: offsets[id(storage)] + storage.size <= lower_bound)
    for storage in storages:
        storage.offset = best[id(storage)]
    return total


def _by_size(storage: Storage) -> tuple[int, int]:
    return -storage.size, storage.first_use


def _by_area(storage: Storage) -> tuple[int, int]:
    return -storage.size * (1 + storage.last_use - storage.first_use), storage.first_use


def _by_lifetime(storage: Storage) -> tuple[int, int]:
    return storage.first_use - storage.last_use, -storage.size


def peak_live_bytes(storages: Sequence[Storage]) -> int:
    """The most bytes that are alive at the same time: a lower bound of the arena's size."""
    change: dict[int, int] = {}
    for storage in storages:
        change[storage.first_use] = change.get(storage.first_use, 0) + storage.size
        change[storage.last_use + 1] = change.get(storage.last_use + 1, 0) - storage.size
    most = alive = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


def _first_fit(order: Sequence[Storage]) -> tuple[dict[int, int], int]:
    """Place the storages in this order, each at its lowest free offset; return offsets by id, and the total size."""
    total = 0
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first and last use, sorted by offset like `offsets`
    offsets: list[int] = []
    offset_of: dict[int, int] = {}
    for storage in order:
        first, last = storage.first_use, storage.last_use
        offset = 0
        for begin, end, others_first, others_last in placed:
            if others_first <= last and first <= others_last:
                if begin >= offset + storage.size:
                    break
                offset = max(offset, end)
        offset_of[id(storage)] = offset
        total = max(total, offset + storage.size)
        index = bisect_right(offsets, offset)
        offsets.insert(index, offset)
        placed.insert(index, (offset, offset + storage.size, first, last))
    return offset_of, total
