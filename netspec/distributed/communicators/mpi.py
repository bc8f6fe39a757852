"""`MpiCommunicator`: communication between workers that MPI has started.

mpi4py finds the MPI library of the machine: the cluster's own, or one from PyPI (MPICH, Open MPI). Importing it joins
the job, so it is only imported if a job was found (`distributed/world.py`).
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
    LENGTH_BYTES,
    Communicator,
    all_gather_volume,
    all_reduce_volume,
    all_to_all_volume,
)
from netspec.distributed.communicators.shared_memory import check_space
from netspec.distributed.launcher import control_socket
from netspec.distributed.launcher.mpi_discovery import library_name
from netspec.distributed.monitoring import abort_hooks
from netspec.distributed.monitoring.activity import ACTIVITY, wait_until
from netspec.distributed.monitoring.watchdog import Mailbox, WatchdogMessage

FLUSH_SECONDS = 0.3
"""Seconds before a job is ended, in which the launcher can pass on the output of its workers."""


class MpiCommunicator(Communicator):
    """Communicates between all processes of the MPI job, or a part of them."""

    def __init__(self, members: MPI.Intracomm = MPI.COMM_WORLD) -> None:
        super().__init__()
        self._members = members
        # A duplicate: messages of other users of MPI in this process can't be mistaken for ours.
        self._comm = members.Dup()
        # The n-th call on a communicator matches the n-th call of the other workers.
        self._second_phase, self._blocking = members.Dup(), members.Dup()
        self.rank, self.size = self._comm.rank, self._comm.size
        self._on_host = MPI.Intracomm(self._comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank))
        self.host_rank, self.host_size = self._on_host.rank, self._on_host.size
        self._windows: list[MPI.Win] = []
        self._spare: dict[int, list[Any]] = {}
        """Released shared memory, by size in bytes."""
        self._shared: list[Any] = []
        self.host = MPI.Get_processor_name()
        self._hosts = [name.decode() for name in self.all_gather_bytes(self.host.encode())]

    def describe(self) -> dict[str, Any]:
        """Describe the number of workers, the host of each, and the MPI library."""
        return {"workers": self.size, "hosts": self._hosts, "mpi": library_name(MPI.Get_library_version())}

    def barrier(self) -> None:
        """Wait for all workers; writes to shared memory are visible to all afterwards."""
        for window in self._windows:
            window.Sync()
        _Request(self._comm.Ibarrier()).wait()
        for window in self._windows:
            window.Sync()

    def share_memory(self, nbytes: int) -> Any:
        """Return a window of MPI that the first worker of the host allocates."""
        if spare := self._spare.get(nbytes):
            self._shared.append(spare.pop())
            return self._shared[-1]
        check_space(nbytes)
        _Request(self._comm.Ibarrier()).wait()  # here the watchdog sees the wait; it can't see one in the next call
        window = MPI.Win.Allocate_shared(nbytes if self.host_rank == 0 else 0, 1, comm=self._on_host)
        window.Lock_all(MPI.MODE_NOCHECK)
        self._windows.append(window)
        memory: Any = window.Shared_query(0)[0]
        self._shared.append(np.frombuffer(memory, np.uint8))
        return self._shared[-1]

    def release_shared_memory(self) -> None:
        """Keep the windows for reuse: arrays of a finished training run may still refer to them."""
        for memory in self._shared:
            self._spare.setdefault(memory.nbytes, []).append(memory)
        self._shared = []

    def start_all_reduce(self, array: Any, *, blocking: bool = False) -> _Request:
        """Sum in place; MPI chooses the algorithm by the size and the hosts of the workers."""
        self.sent += all_reduce_volume(array.nbytes, self.size)
        return _Request((self._blocking if blocking else self._comm).Iallreduce(MPI.IN_PLACE, array, MPI.SUM))

    def start_all_to_all(self, send: Any, receive: Any, *, blocking: bool = False) -> _Request:
        """Exchange rows of bytes, one for each worker."""
        self.sent += all_to_all_volume(send.nbytes, self.size)
        return _Request((self._blocking if blocking else self._comm).Ialltoall(send, receive))

    def start_all_gather(
        self, send: Any | None, receive: Any, *, second_phase: bool = False, blocking: bool = False
    ) -> _Request:
        """Gather one row of each worker."""
        self.sent += all_gather_volume(receive.nbytes / self.size, self.size)
        source = MPI.IN_PLACE if send is None else send
        comm = self._second_phase if second_phase else self._blocking if blocking else self._comm
        return _Request(comm.Iallgather(source, receive))

    def start_send(self, array: Any, to: int, tag: int) -> _Request:
        """Send from the array's own memory, which MPI reads until the call is complete."""
        self.sent += array.nbytes
        return _Request(self._comm.Isend(_bytes(array), to, tag))

    def start_receive(self, array: Any, source: int, tag: int) -> _Request:
        """Receive into the array; MPI aborts the job if the message is longer."""
        return _Request(self._comm.Irecv(_bytes(array), source, tag))

    def start_reduce_scatter(self, full: Any, part: Any, counts: Sequence[int]) -> _Request:
        """Reduce-scatter by the algorithm that MPI chooses."""
        self.sent += all_to_all_volume(full.nbytes, self.size)
        return _Request(self._comm.Ireduce_scatter(full, part, list(counts), MPI.SUM))

    def start_all_gatherv(self, full: Any, counts: Sequence[int]) -> _Request:
        """Gather in place, in the order of second-phase calls."""
        self.sent += all_to_all_volume(full.nbytes, self.size)
        return _Request(self._second_phase.Iallgatherv(MPI.IN_PLACE, [full, list(counts)]))

    def hosts(self) -> list[int]:
        """Return the number of workers of each host, as reported by the first worker of the host."""
        return [size for rank, size in self.all_gather_objects([self.host_rank, self.host_size]) if rank == 0]

    def host_group(self) -> MpiCommunicator:
        """Create the group of the workers that can share memory."""
        return MpiCommunicator(MPI.Intracomm(self._comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)))

    def split(self, color: int) -> MpiCommunicator:
        """Create a group by `MPI_Comm_split`."""
        return MpiCommunicator(MPI.Intracomm(self._comm.Split(color, self.rank)))

    def gather(self, array: Any) -> Any:
        """Stack the arrays of all workers on worker 0."""
        send = np.ascontiguousarray(array)
        stacked = np.empty((self.size, *send.shape), send.dtype) if self.is_first else None
        rows = None if stacked is None else stacked.reshape(-1).view(np.uint8)
        self.sent += 0 if self.is_first else send.nbytes
        _Request(self._comm.Igather(send.reshape(-1).view(np.uint8), rows)).wait()
        return stacked

    def scatter(self, arrays: Any, like: Any) -> Any:
        """Return this worker's row of worker 0's array."""
        row = np.empty(like.shape, like.dtype)
        self.sent += row.nbytes * (self.size - 1) if self.is_first else 0
        parts = np.ascontiguousarray(arrays).reshape(-1).view(np.uint8) if self.is_first else None
        _Request(self._comm.Iscatter(parts, row.reshape(-1).view(np.uint8))).wait()
        return row

    def gatherv(self, array: Any, counts: Sequence[int]) -> list[Any] | None:
        """Concatenate the flat arrays of all workers on worker 0, then split them."""
        send = np.ascontiguousarray(array)
        ends = np.cumsum(counts)
        flat = np.empty(int(ends[-1]), send.dtype) if self.is_first else None
        self.sent += 0 if self.is_first else send.nbytes
        _Request(self._comm.Igatherv(send, None if flat is None else [flat, list(counts)])).wait()
        return None if flat is None else np.split(flat, ends[:-1])

    def scatterv(self, arrays: Sequence[Any] | None, counts: Sequence[int], dtype: str) -> Any:
        """Return this worker's part of worker 0's concatenated arrays."""
        part = np.empty(counts[self.rank], dtype)
        parts = None if arrays is None else [np.concatenate(arrays), list(counts)]
        self.sent += part.itemsize * sum(counts[1:]) if self.is_first else 0
        _Request(self._comm.Iscatterv(parts, part)).wait()
        return part

    def broadcast(self, array: Any, root: int = 0) -> None:
        """Overwrite an array with the array of worker `root`."""
        self.sent += array.nbytes * (self.size - 1) if self.rank == root else 0
        _Request(self._comm.Ibcast(array, root)).wait()

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the bytes that each worker passes, in the order of ranks."""
        self.sent += all_gather_volume(LENGTH_BYTES + len(data), self.size)
        sizes = np.empty(self.size, np.int64)
        _Request(self._comm.Iallgather(np.array([len(data)], np.int64), sizes)).wait()
        starts = np.concatenate([[0], np.cumsum(sizes)])
        gathered = np.empty(int(starts[-1]), np.uint8)
        counts = [int(size) for size in sizes]
        _Request(self._comm.Iallgatherv(np.frombuffer(data, np.uint8), [gathered, counts])).wait()
        return [gathered[start:end].tobytes() for start, end in pairwise(starts)]

    def regroup(self, within: float) -> None:
        """Continue on new communicators: some calls on the old ones can never complete."""
        ACTIVITY.gives_up_at = time.monotonic() + within
        _Request(self._members.Ibarrier()).wait()
        self._comm, self._second_phase, self._blocking = (self._members.Dup() for _ in range(3))
        self.abandon_calls()

    def abort(self, status: int) -> NoReturn:
        """End the processes of all workers at once, including those that are stopped or hang."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # nobody reads it
                stream.flush()
        abort_hooks.run_abort_hooks()
        control_socket.request_kill(status)
        time.sleep(FLUSH_SECONDS)
        # The reason has been reported; MPI would only print that abort was called.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        MPI.COMM_WORLD.Abort(status)
        os._exit(status)


class _Request:
    """An MPI request."""

    def __init__(self, request: MPI.Request) -> None:
        self._test: Callable[[], bool] = request.Test

    def advance(self) -> bool:
        """Progress MPI without waiting; return whether the call is complete."""
        return self._test()

    def wait(self) -> None:
        """Wait until the call is complete."""
        wait_until(self._test)


def _bytes(array: Any) -> Any:
    """Return the memory of a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)


class MpiMailbox(Mailbox):
    """Exchanges messages between the watchdogs on a separate communicator."""

    def __init__(self) -> None:
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.rank, self._comm.size
        self._sent: list[tuple[MPI.Request, bytes]] = []

    def send(self, to: int, message: WatchdogMessage) -> None:
        """Send without waiting for it to arrive."""
        data = json.dumps(message).encode()
        self._sent = [sent for sent in self._sent if not sent[0].Test()]
        self._sent.append(
            (self._comm.Isend([data, MPI.BYTE], to), data)
        )  # MPI reads the bytes until the request is complete

    def receive(self) -> tuple[int, WatchdogMessage] | None:
        """Return the next message with the rank of its sender, if one has arrived."""
        status = MPI.Status()
        if not self._comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
            return None
        data = bytearray(status.Get_count(MPI.BYTE))
        self._comm.Recv([data, MPI.BYTE], status.source, status.tag)
        return status.source, json.loads(data)
