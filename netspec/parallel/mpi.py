"""`MpiCommunicator`: workers that MPI has started, and what MPI carries between them.

mpi4py finds the MPI library of the machine: the cluster's own, or one of PyPI's (MPICH, Open MPI). Importing it joins
the job, so it is imported where a job was found (`parallel/world.py`), never else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI

from netspec.parallel.base import Communicator

SPINS, LONGEST_NAP = 200, 1e-3
"""How often a waiting worker looks before it sleeps in between, and the longest sleep in seconds: where workers share
cores, one that spins keeps the very one from running that it waits for."""


class MpiCommunicator(Communicator):
    """All processes of the MPI job."""

    def __init__(self) -> None:
        # A communicator of its own: what other users of MPI in this process send is never taken for ours.
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.rank, self._comm.size
        host = self._comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        self.host_rank, self.host_size = host.rank, host.size
        host.Free()
        self._hosts = [one.decode() for one in self.all_gather(MPI.Get_processor_name().encode())]

    def describe(self) -> dict[str, Any]:
        """Workers, the hosts they are on, and the library."""
        library = MPI.Get_library_version().partition("\n")[0].strip("\0 ")
        return {"workers": self.size, "hosts": self._hosts, "mpi": " ".join(library.split())}

    def barrier(self) -> None:
        """Wait until all workers have come here."""
        _Request(self._comm.Ibarrier()).wait()

    def start_all_reduce(self, array: Any) -> _Request:
        """Sum in place; MPI chooses the way by the size and where the workers are."""
        return _Request(self._comm.Iallreduce(MPI.IN_PLACE, array, MPI.SUM))

    def broadcast(self, array: Any) -> None:
        """Replace an array by that of worker 0."""
        _Request(self._comm.Ibcast(array, 0)).wait()

    def all_gather(self, told: bytes) -> list[bytes]:
        """What every worker tells, in the order of ranks."""
        sizes = np.empty(self.size, np.int64)
        _Request(self._comm.Iallgather(np.array([len(told)], np.int64), sizes)).wait()
        starts = np.concatenate([[0], np.cumsum(sizes)])
        data = np.empty(int(starts[-1]), np.uint8)
        counts = [int(one) for one in sizes]
        _Request(self._comm.Iallgatherv(np.frombuffer(told, np.uint8), [data, counts])).wait()
        return [data[start:end].tobytes() for start, end in pairwise(starts)]

    def abort(self, status: int) -> NoReturn:
        """End the processes of all workers at once."""
        sys.stdout.flush()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(status)
        raise SystemExit(status)


class _Request:
    """An MPI request."""

    def __init__(self, request: MPI.Request) -> None:
        self._test: Callable[[], bool] = request.Test

    def advance(self) -> bool:
        """Let MPI do what it can without waiting; whether the call is complete."""
        return self._test()

    def wait(self) -> None:
        """Look often at first, then with naps in between."""
        test = self._test
        for _ in range(SPINS):
            if test():
                return
        nap = 1e-5
        while not test():
            time.sleep(nap)
            nap = min(nap * 1.5, LONGEST_NAP)
