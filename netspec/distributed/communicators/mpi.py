"""`MpiCommunicator`: communication between workers that MPI has started.

mpi4py finds the MPI library of the machine: the cluster's own, or one of PyPI's (MPICH, Open MPI). Importing it joins
the job, so it is imported where a job was found (`distributed/world.py`), never else.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI

from netspec.distributed.communicators.base import (
    HOW_LONG,
    Communicator,
    all_gather_volume,
    all_reduce_volume,
    all_to_all_volume,
)
from netspec.distributed.communicators.shared_memory import check_room
from netspec.distributed.launcher import control_socket
from netspec.distributed.launcher.mpi_discovery import library_name
from netspec.distributed.monitoring import abort_hooks
from netspec.distributed.monitoring.activity import ACTIVITY, wait_until
from netspec.distributed.monitoring.watchdog import Mailbox, Told

LAST_WORDS = 0.3
"""Seconds before a job is ended: a launcher may drop what a worker wrote and it has not passed on yet."""


class MpiCommunicator(Communicator):
    """Communicates between all processes of the MPI job, or a part of them."""

    def __init__(self, members: MPI.Intracomm = MPI.COMM_WORLD) -> None:
        super().__init__()
        self._members = members
        # A communicator of its own: what other users of MPI in this process send is never taken for ours.
        self._comm = members.Dup()
        # Each call meets that of the others that has the same place in the order of its communicator.
        self._following, self._apart = members.Dup(), members.Dup()
        self.rank, self.size = self._comm.rank, self._comm.size
        self._on_host = MPI.Intracomm(self._comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank))
        self.host_rank, self.host_size = self._on_host.rank, self._on_host.size
        self._windows: list[MPI.Win] = []
        self._spare: dict[int, list[Any]] = {}
        """Memory that was given back, by its size."""
        self._shared: list[Any] = []
        self.host = MPI.Get_processor_name()
        self._hosts = [one.decode() for one in self.all_gather_bytes(self.host.encode())]

    def describe(self) -> dict[str, Any]:
        """Workers, the hosts they are on, and the library."""
        return {"workers": self.size, "hosts": self._hosts, "mpi": library_name(MPI.Get_library_version())}

    def barrier(self) -> None:
        """Wait until all workers have come here."""
        for one in self._windows:
            one.Sync()
        _Request(self._comm.Ibarrier()).wait()
        for one in self._windows:
            one.Sync()

    def share_memory(self, nbytes: int) -> Any:
        """A window of MPI, which the first worker of the host has and all others see."""
        if spare := self._spare.get(nbytes):
            self._shared.append(spare.pop())
            return self._shared[-1]
        check_room(nbytes)
        _Request(self._comm.Ibarrier()).wait()  # what comes next waits where the watchdog does not see it
        window = MPI.Win.Allocate_shared(nbytes if self.host_rank == 0 else 0, 1, comm=self._on_host)
        window.Lock_all(MPI.MODE_NOCHECK)
        self._windows.append(window)
        memory: Any = window.Shared_query(0)[0]
        self._shared.append(np.frombuffer(memory, np.uint8))
        return self._shared[-1]

    def release_shared_memory(self) -> None:
        """Keep the windows: arrays of a training that has ended may still be there."""
        for one in self._shared:
            self._spare.setdefault(one.nbytes, []).append(one)
        self._shared = []

    def start_all_reduce(self, array: Any, *, apart: bool = False) -> _Request:
        """Sum in place; MPI chooses the algorithm by the size and the hosts of the workers."""
        self.sent += all_reduce_volume(array.nbytes, self.size)
        return _Request((self._apart if apart else self._comm).Iallreduce(MPI.IN_PLACE, array, MPI.SUM))

    def start_all_to_all(self, mine: Any, theirs: Any, *, apart: bool = False) -> _Request:
        """Rows of bytes, one for each worker."""
        self.sent += all_to_all_volume(mine.nbytes, self.size)
        return _Request((self._apart if apart else self._comm).Ialltoall(mine, theirs))

    def start_all_gather(self, mine: Any | None, all_: Any, *, follows: bool = False, apart: bool = False) -> _Request:
        """A row of all each."""
        self.sent += all_gather_volume(all_.nbytes / self.size, self.size)
        told = MPI.IN_PLACE if mine is None else mine
        comm = self._following if follows else self._apart if apart else self._comm
        return _Request(comm.Iallgather(told, all_))

    def start_send(self, array: Any, to: int, tag: int) -> _Request:
        """MPI reads the array where it lies, until the call is complete."""
        self.sent += array.nbytes
        return _Request(self._comm.Isend(_bytes(array), to, tag))

    def start_receive(self, array: Any, source: int, tag: int) -> _Request:
        """Of the sender's bytes as many as the array has; MPI ends the job where there are more."""
        return _Request(self._comm.Irecv(_bytes(array), source, tag))

    def start_reduce_scatter(self, whole: Any, part: Any, counts: Sequence[int]) -> _Request:
        """MPI chooses the way, as for sums."""
        self.sent += all_to_all_volume(whole.nbytes, self.size)
        return _Request(self._comm.Ireduce_scatter(whole, part, list(counts), MPI.SUM))

    def start_all_gather_parts(self, whole: Any, counts: Sequence[int]) -> _Request:
        """They follow other calls, so that they are in an order of their own."""
        self.sent += all_to_all_volume(whole.nbytes, self.size)
        return _Request(self._following.Iallgatherv(MPI.IN_PLACE, [whole, list(counts)]))

    def hosts(self) -> list[int]:
        """As those tell who are the first of a host."""
        return [size for rank, size in self.all_gather_objects([self.host_rank, self.host_size]) if rank == 0]

    def host_group(self) -> MpiCommunicator:
        """Those who can share memory."""
        return MpiCommunicator(MPI.Intracomm(self._comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)))

    def split(self, color: int) -> MpiCommunicator:
        """A communicator of MPI's own."""
        return MpiCommunicator(MPI.Intracomm(self._comm.Split(color, self.rank)))

    def gather(self, array: Any) -> Any:
        """Stack the arrays of all on worker 0."""
        mine = np.ascontiguousarray(array)
        found = np.empty((self.size, *mine.shape), mine.dtype) if self.is_first else None
        parts = None if found is None else found.reshape(-1).view(np.uint8)
        self.sent += 0 if self.is_first else mine.nbytes
        _Request(self._comm.Igather(mine.reshape(-1).view(np.uint8), parts)).wait()
        return found

    def scatter(self, arrays: Any, like: Any) -> Any:
        """Rows of what worker 0 has."""
        found = np.empty(like.shape, like.dtype)
        self.sent += found.nbytes * (self.size - 1) if self.is_first else 0
        parts = np.ascontiguousarray(arrays).reshape(-1).view(np.uint8) if self.is_first else None
        _Request(self._comm.Iscatter(parts, found.reshape(-1).view(np.uint8))).wait()
        return found

    def gather_parts(self, array: Any, counts: Sequence[int]) -> list[Any] | None:
        """Put the flat arrays of all one behind the other on worker 0."""
        mine = np.ascontiguousarray(array)
        ends = np.cumsum(counts)
        found = np.empty(int(ends[-1]), mine.dtype) if self.is_first else None
        self.sent += 0 if self.is_first else mine.nbytes
        _Request(self._comm.Igatherv(mine, None if found is None else [found, list(counts)])).wait()
        return None if found is None else np.split(found, ends[:-1])

    def scatter_parts(self, arrays: Sequence[Any] | None, counts: Sequence[int], dtype: str) -> Any:
        """Parts of what lies one behind the other on worker 0."""
        found = np.empty(counts[self.rank], dtype)
        parts = None if arrays is None else [np.concatenate(arrays), list(counts)]
        self.sent += found.itemsize * sum(counts[1:]) if self.is_first else 0
        _Request(self._comm.Iscatterv(parts, found)).wait()
        return found

    def broadcast(self, array: Any, root: int = 0) -> None:
        """Overwrite an array with the array of worker `root`."""
        self.sent += array.nbytes * (self.size - 1) if self.rank == root else 0
        _Request(self._comm.Ibcast(array, root)).wait()

    def all_gather_bytes(self, told: bytes) -> list[bytes]:
        """Return the bytes that each worker passes, in the order of ranks."""
        self.sent += all_gather_volume(HOW_LONG + len(told), self.size)
        sizes = np.empty(self.size, np.int64)
        _Request(self._comm.Iallgather(np.array([len(told)], np.int64), sizes)).wait()
        starts = np.concatenate([[0], np.cumsum(sizes)])
        data = np.empty(int(starts[-1]), np.uint8)
        counts = [int(one) for one in sizes]
        _Request(self._comm.Iallgatherv(np.frombuffer(told, np.uint8), [data, counts])).wait()
        return [data[start:end].tobytes() for start, end in pairwise(starts)]

    def regroup(self, within: float) -> None:
        """Go on with other communicators than those on which some calls of some workers wait for ever."""
        ACTIVITY.gives_up_at = time.monotonic() + within
        _Request(self._members.Ibarrier()).wait()
        self._comm, self._following, self._apart = (self._members.Dup() for _ in range(3))
        self.abandon_calls()

    def abort(self, status: int) -> NoReturn:
        """End the processes of all workers at once, those that are stopped or hang too."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # nobody takes it
                stream.flush()
        abort_hooks.run_abort_hooks()
        control_socket.request_kill(status)
        time.sleep(LAST_WORDS)
        # Why was said already; the library says only that it was asked to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        MPI.COMM_WORLD.Abort(status)
        os._exit(status)


class _Request:
    """An MPI request."""

    def __init__(self, request: MPI.Request) -> None:
        self._test: Callable[[], bool] = request.Test

    def advance(self) -> bool:
        """Let MPI do what it can without waiting; whether the call is complete."""
        return self._test()

    def wait(self) -> None:
        """Wait until the call is complete."""
        wait_until(self._test)


def _bytes(array: Any) -> Any:
    """Return the memory of a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)


class MpiMailbox(Mailbox):
    """Exchanges messages between the watchdogs on a communicator of their own."""

    def __init__(self) -> None:
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.rank, self._comm.size
        self._sent: list[tuple[MPI.Request, bytes]] = []

    def send(self, to: int, told: Told) -> None:
        """Send without waiting for it to arrive."""
        data = json.dumps(told).encode()
        self._sent = [one for one in self._sent if not one[0].Test()]
        self._sent.append((self._comm.Isend([data, MPI.BYTE], to), data))  # MPI reads it where it lies

    def receive(self) -> tuple[int, Told] | None:
        """Return the next message with the rank of its sender, if one has arrived."""
        status = MPI.Status()
        if not self._comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
            return None
        data = bytearray(status.Get_count(MPI.BYTE))
        self._comm.Recv([data, MPI.BYTE], status.source, status.tag)
        return status.source, json.loads(data)
