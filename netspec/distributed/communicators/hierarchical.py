"""Hierarchical all-reduce: within each host first, then between hosts, then all-gather within each host.

Each of w workers of a host sums 1/w of the array within the host, and then between hosts with the workers that hold the
same part: so each host sends the array once, over w connections. Goyal et al. 2017, "Accurate, large minibatch SGD",
arXiv:1706.02677, section 4. If hosts have different numbers of workers, w is the smallest of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from netspec.distributed.communicators.base import Communicator, Done, Pending
from netspec.distributed.communicators.compressed_allreduce import compressed_all_reduce


@dataclass
class HostGroups:
    """The groups that a worker is in."""

    inside: Communicator
    """The workers of its host."""
    across: Communicator
    """One worker of each host, if its rank within its host is below `columns`."""
    columns: int
    """Number of such groups: the smallest number of workers of a host."""
    waiting: tuple[deque[HierarchicalAllReduce], deque[HierarchicalAllReduce]] = field(
        default_factory=lambda: (deque(), deque())
    )
    """Sums that are on their way within hosts, and between them, in the order in which they were started."""
    counted: float = 0.0
    """Bytes that this worker had sent in the groups when that was last asked."""

    def newly_sent(self) -> float:
        """Return the bytes that this worker has sent in both groups since the last call."""
        before, self.counted = self.counted, self.inside.sent + self.across.sent
        return self.counted - before

    def cut(self, size: int) -> list[int]:
        """Return how many of `size` elements each worker of the host sums: parts as equal as possible."""
        places = [size * number // self.columns for number in range(self.columns + 1)]
        found = [end - start for start, end in pairwise(places)]
        return found + [0] * (self.inside.size - self.columns)


def make_host_groups(workers: Communicator) -> HostGroups | None:
    """Create the groups, a collective call; None unless there are several hosts with several workers each."""
    inside, hosts = workers.host_group(), workers.hosts()
    columns = min(hosts)
    if columns < 2 or len(hosts) < 2:
        return None
    across = workers.split(min(inside.rank, columns))
    return HostGroups(inside, across, columns, counted=inside.sent + across.sent)


class HierarchicalAllReduce:
    """The sum of all workers' arrays, in place; for any number of times. It is itself what is under way."""

    def __init__(self, workers: Communicator, groups: HostGroups, form: str, whole: Any) -> None:
        """`form` is the encoding between hosts; "" for none."""
        self._workers, self._groups, self._whole = workers, groups, whole
        self._counts = groups.cut(whole.size)
        rank = groups.inside.rank
        start = sum(self._counts[:rank])
        self._own = whole[start : start + self._counts[rank]]
        self._part = np.empty_like(self._own)
        self._crosses = rank < groups.columns
        self._packed = compressed_all_reduce(groups.across, form, [self._part]) if form and self._crosses else None
        self._pending: Pending | None = None
        self._done = 2
        """Number of calls within and between hosts that are complete."""

    def start(self) -> Pending:
        """Send the array on its way."""
        inside = self._groups.inside
        self._pending = inside.start_reduce_scatter(self._whole, self._part, self._counts)
        self._done = 0
        self._groups.waiting[0].append(self)
        return self

    def advance(self) -> bool:
        """Go on with the next call once one is complete; whether the sum is there."""
        while self._done < 2:
            earliest = self._earliest()
            assert earliest._pending is not None
            if not earliest._pending.advance():
                return False
            earliest._go_on()
        return self._pending is None or self._pending.advance()

    def wait(self) -> None:
        """Return when the sum is there."""
        while self._done < 2:
            earliest = self._earliest()
            assert earliest._pending is not None
            earliest._pending.wait()
            earliest._go_on()
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
        self._workers.sent += self._groups.newly_sent()

    def _earliest(self) -> HierarchicalAllReduce:
        """The first of those that wait for what this one waits for: all workers go on with them in one order."""
        return self._groups.waiting[self._done][0]

    def _go_on(self) -> None:
        assert self._pending is not None
        self._pending.wait()
        self._groups.waiting[self._done].popleft()
        self._done += 1
        if self._done == 1:
            self._pending = self._cross()
            self._groups.waiting[1].append(self)
        else:
            self._own[...] = self._part
            self._pending = self._groups.inside.start_all_gather_parts(self._whole, self._counts)

    def _cross(self) -> Pending:
        if not self._crosses:
            return Done()
        return self._groups.across.start_all_reduce(self._part) if self._packed is None else self._packed.start()
