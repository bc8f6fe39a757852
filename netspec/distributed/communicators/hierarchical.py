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

from netspec.distributed.communicators.base import Communicator, CompletedCall, Pending
from netspec.distributed.communicators.compressed_allreduce import compressed_all_reduce


@dataclass
class HostGroups:
    """The groups of a worker within its host and between hosts."""

    intra_host: Communicator
    """Workers of its host."""
    inter_host: Communicator
    """One worker of each host, if its rank within its host is below `width`."""
    width: int
    """Number of groups between hosts: the smallest number of workers of a host."""
    queues: tuple[deque[HierarchicalAllReduce], deque[HierarchicalAllReduce]] = field(
        default_factory=lambda: (deque(), deque())
    )
    """Pending sums within hosts, and between hosts, in the order in which they were started."""
    counted: float = 0.0
    """Bytes that this worker had sent in both groups at the last call of `newly_sent`."""

    def newly_sent(self) -> float:
        """Return the bytes that this worker has sent in both groups since the last call."""
        before, self.counted = self.counted, self.intra_host.sent + self.inter_host.sent
        return self.counted - before

    def part_sizes(self, size: int) -> list[int]:
        """Return how many of `size` elements each worker of the host sums: parts as equal as possible."""
        offsets = [size * number // self.width for number in range(self.width + 1)]
        sizes = [end - start for start, end in pairwise(offsets)]
        return sizes + [0] * (self.intra_host.size - self.width)


def make_host_groups(workers: Communicator) -> HostGroups | None:
    """Create the groups, a collective call; None unless there are several hosts with several workers each."""
    intra_host, hosts = workers.host_group(), workers.hosts()
    width = min(hosts)
    if width < 2 or len(hosts) < 2:
        return None
    inter_host = workers.split(min(intra_host.rank, width))
    return HostGroups(intra_host, inter_host, width, counted=intra_host.sent + inter_host.sent)


class HierarchicalAllReduce:
    """Sums an array over all workers, in place, any number of times. The object is also the pending call."""

    def __init__(self, workers: Communicator, groups: HostGroups, form: str, array: Any) -> None:
        """`form` is the encoding between hosts; "" for none."""
        self._workers, self._groups, self._array = workers, groups, array
        self._counts = groups.part_sizes(array.size)
        rank = groups.intra_host.rank
        start = sum(self._counts[:rank])
        self._own = array[start : start + self._counts[rank]]
        self._part = np.empty_like(self._own)
        self._takes_part = rank < groups.width
        self._compressed = (
            compressed_all_reduce(groups.inter_host, form, [self._part]) if form and self._takes_part else None
        )
        self._pending: Pending | None = None
        self._done = 2
        """Number of calls within and between hosts that are complete."""

    def start(self) -> Pending:
        """Start to send the array."""
        intra_host = self._groups.intra_host
        self._pending = intra_host.start_reduce_scatter(self._array, self._part, self._counts)
        self._done = 0
        self._groups.queues[0].append(self)
        return self

    def advance(self) -> bool:
        """Start the next call when the previous one is complete; return whether the sum is complete."""
        while self._done < 2:
            earliest = self._earliest()
            assert earliest._pending is not None
            if not earliest._pending.advance():
                return False
            earliest._start_next()
        return self._pending is None or self._pending.advance()

    def wait(self) -> None:
        """Wait until the sum is complete."""
        while self._done < 2:
            earliest = self._earliest()
            assert earliest._pending is not None
            earliest._pending.wait()
            earliest._start_next()
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
        self._workers.sent += self._groups.newly_sent()

    def _earliest(self) -> HierarchicalAllReduce:
        """Return the oldest sum in the phase of this sum: all workers must advance their sums in the same order."""
        return self._groups.queues[self._done][0]

    def _start_next(self) -> None:
        assert self._pending is not None
        self._pending.wait()
        self._groups.queues[self._done].popleft()
        self._done += 1
        if self._done == 1:
            self._pending = self._start_inter_host()
            self._groups.queues[1].append(self)
        else:
            self._own[...] = self._part
            self._pending = self._groups.intra_host.start_all_gatherv(self._array, self._counts)

    def _start_inter_host(self) -> Pending:
        if not self._takes_part:
            return CompletedCall()
        return (
            self._groups.inter_host.start_all_reduce(self._part)
            if self._compressed is None
            else self._compressed.start()
        )
