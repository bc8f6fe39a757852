"""`Communicator`: the interface between a worker and its group, and the group of one, which sends nothing.

Arrays that are summed or sent must be contiguous in memory. Calls are collective, except those that send to or receive
from one worker: all workers call the same methods in the same order. A method called `start_…` returns at once; the
others block until their result is available. Gathered data is in the order of ranks, so that sums made from it are
bit-identical on every worker.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from netspec.backends.process_group import ProcessGroup
from netspec.distributed.monitoring.activity import wait_until

if TYPE_CHECKING:
    import numpy as np

    from netspec.distributed.communicators.hierarchical import HostGroups
    from netspec.errors import InputError


# Bytes that each worker sends in a collective call, by the algorithms that send the fewest bytes. An MPI library may
# choose an algorithm that sends more; `cost_model/collectives.py` models these algorithms.


def all_reduce_volume(nbytes: float, workers: int) -> float:
    """Bytes that a worker sends in an all-reduce of n bytes on p workers: 2 (p - 1)/p n."""
    return 2 * all_to_all_volume(nbytes, workers)


def all_to_all_volume(nbytes: float, workers: int) -> float:
    """Bytes that a worker sends in an all-to-all of n bytes on p workers: (p - 1)/p n."""
    return nbytes * (workers - 1) / workers


def all_gather_volume(nbytes: float, workers: int) -> float:
    """Bytes that a worker sends in an all-gather of n bytes of each of p workers: (p - 1) n."""
    return nbytes * (workers - 1)


LENGTH_BYTES = 8
"""Bytes of the length field before a message."""


class Pending(Protocol):
    """A started call."""

    def advance(self) -> bool:
        """Progress the call without waiting; return whether it is complete."""
        ...

    def wait(self) -> None:
        """Wait until the call is complete."""
        ...


class CompletedCall:
    """A call that is complete as soon as it is started."""

    def advance(self) -> bool:
        """Return True."""
        return True

    def wait(self) -> None:
        """Return at once."""


class Communicator(ProcessGroup):
    """A group of workers, of which this process is one. The base class is a group of one, which sends nothing."""

    host_size: int = 1
    """Number of workers of this worker's host."""
    host_groups: HostGroups | None = None
    """Groups of the hierarchical all-reduce (`hierarchical.py`), if it is used."""

    def __init__(self) -> None:
        self.unfinished_sums: deque[Pending] = deque()
        """Compressed sums still in their first phase, in the order in which they were started."""
        self.in_flight: dict[Hashable, list[Pending]] = {}
        """Started calls that were not waited for, by key: an address, a channel, or the class of a vote."""
        self._subgroups: dict[int, Communicator] = {}
        """Groups that `subgroup_below` has created, by rank."""
        self._abandoned: list[Pending] = []
        """Calls that nobody waits for; kept since MPI may still write to their memory."""

    def finish(self, key: Hashable) -> None:
        """Wait for the calls that were started under a key, if any."""
        for call in self.in_flight.pop(key, ()):
            call.wait()

    def abandon_calls(self) -> None:
        """Drop unfinished calls: some workers have not started them, or never will."""
        self._abandoned += [*(call for calls in self.in_flight.values() for call in calls), *self.unfinished_sums]
        self.in_flight.clear()
        self.unfinished_sums.clear()

    @property
    def is_first(self) -> bool:
        """Whether this worker is rank 0, which alone writes files and prints."""
        return self.rank == 0

    def describe(self) -> dict[str, Any]:
        """Describe the group as plain data, for `netspec devices` and the log of a run."""
        return {"workers": self.size}

    @property
    def on_one_host(self) -> bool:
        """Whether all workers are on one host."""
        return self.host_size == self.size

    def barrier(self) -> None:
        """Wait for all workers. Writes to shared memory before the barrier are visible to all after it."""

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait until `done()` is true, visibly to the watchdog. Raises `PeerFailure`."""
        wait_until(done)

    def gpu_link_error(self) -> InputError | None:
        """Return the error if there are several workers and no NCCL."""
        from netspec.distributed.communicators import nccl

        return nccl.unavailable_error() if self.size > 1 else None

    def check_gpu_links(self) -> None:
        """Raise `RunError` if NCCL has found that a started call can never complete."""
        from netspec.distributed.communicators import nccl

        nccl.check_groups()

    def release_shared_memory(self) -> None:
        """Release the memory shared so far: later calls of `share_memory` may reuse it."""

    def all_reduce(self, array: Any) -> None:
        """Replace an array by its sum over all workers."""
        self.start_all_reduce(array).wait()

    def start_all_reduce(self, array: Any, *, blocking: bool = False) -> Pending:
        """Start `all_reduce`; the array must not be read or written until the call is complete.

        `blocking`: the caller waits at once. Such calls are ordered among themselves only.
        """
        return CompletedCall()

    def start_all_to_all(self, send: Any, receive: Any, *, blocking: bool = False) -> Pending:
        """Start to send row i of `send` to worker i, and to receive from worker i into row i of `receive`.

        `blocking`: see `start_all_reduce`.
        """
        receive[...] = send
        return CompletedCall()

    def start_all_gather(
        self, send: Any | None, receive: Any, *, second_phase: bool = False, blocking: bool = False
    ) -> Pending:
        """Start to gather the array of worker i in row i of `receive`.

        Calls of a `second_phase`, which are started when another call is complete, are ordered among themselves only;
        `blocking`: see `start_all_reduce`. `send` is this worker's array; None: the array is already in its row.
        """
        if send is not None:
            receive[0] = send
        return CompletedCall()

    def start_send(self, array: Any, to: int, tag: int) -> Pending:
        """Start to send an array to a worker; it must not be written until the call is complete.

        Messages to one worker with one tag arrive in the order in which they were sent.
        """
        return CompletedCall()

    def start_receive(self, array: Any, source: int, tag: int) -> Pending:
        """Start to receive a worker's message with this tag into an array; zeros if there is only one worker."""
        array[...] = 0
        return CompletedCall()

    def start_reduce_scatter(self, full: Any, part: Any, counts: Sequence[int]) -> Pending:
        """Start to sum a flat array over workers; `part` receives this worker's part. `counts`: sizes of the parts."""
        part[...] = full
        return CompletedCall()

    def start_all_gatherv(self, full: Any, counts: Sequence[int]) -> Pending:
        """Start to gather all parts into a flat array that holds this worker's part. `counts`: sizes of the parts."""
        return CompletedCall()

    def hosts(self) -> list[int]:
        """Return the number of workers of each host, in the order of the hosts' first ranks."""
        return [self.size]

    def host_group(self) -> Communicator:
        """Create the group of the workers of this host, in the order of ranks."""
        return Communicator()

    def split(self, color: int) -> Communicator:
        """Create the group of the workers that pass the same color, in the order of ranks."""
        return Communicator()

    def subgroup_below(self, rank: int) -> Communicator:
        """Return this worker's group: the ranks below `rank`, or the others.

        It is created once per process: MPI supports only about two thousand communicators, and one that a worker may
        still wait on can't be freed.
        """
        if rank not in self._subgroups:
            self._subgroups[rank] = self.split(int(self.rank >= rank))
        return self._subgroups[rank]

    def gather(self, array: Any) -> Any:
        """Return the arrays of all workers, stacked in the order of ranks, on worker 0; None on the others."""
        return array[None]

    def scatter(self, arrays: Any, like: Any) -> Any:
        """Return row i of worker 0's `arrays` on worker i; `like` has the shape and type of the result."""
        return arrays[0]

    def gatherv(self, array: Any, counts: Sequence[int]) -> list[Any] | None:
        """Return the flat arrays of all workers on worker 0, None on the others. `counts`: elements of each array."""
        return [array]

    def scatterv(self, arrays: Sequence[Any] | None, counts: Sequence[int], dtype: str) -> Any:
        """Return worker 0's flat array i on worker i. `counts`: elements of each array; `dtype`: their common type."""
        assert arrays is not None
        return arrays[0]

    def broadcast(self, array: Any, root: int = 0) -> None:
        """Overwrite an array with the array of worker `root`."""

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the bytes that each worker passes, in the order of ranks."""
        return [data]

    def regroup(self, within: float) -> None:
        """Synchronize all workers after a failure; later calls match each other again.

        Raises `PeerFailure` if a worker does not arrive, or does not continue with the others, within `within` seconds.
        """

    def abort(self, status: int) -> NoReturn:
        """End the processes of all workers at once, with an exit status."""
        raise SystemExit(status)

    def all_gather_objects(self, value: Any) -> list[Any]:
        """Gather plain data that JSON can hold; see `all_gather`."""
        return [json.loads(data) for data in self.all_gather_bytes(json.dumps(value).encode())]

    def broadcast_object(self, value: Any) -> Any:
        """Return worker 0's plain data on every worker; the data of other workers is ignored."""
        return self.all_gather_objects(value if self.is_first else None)[0]

    def all_gather_arrays(self, arrays: dict[str, np.ndarray[Any, Any]]) -> list[dict[str, np.ndarray[Any, Any]]]:
        """Gather NumPy arrays by name; see `all_gather`."""
        return [_unpacked(data) for data in self.all_gather_bytes(_packed(arrays))]


def _header(kinds: Sequence[tuple[str, str, Sequence[int]]]) -> bytes:
    """Return the header of a message of arrays with these names, types and shapes."""
    head = json.dumps([[name, dtype, list(shape)] for name, dtype, shape in kinds]).encode()
    return len(head).to_bytes(8, "little") + head


def packed_bytes(kinds: Sequence[tuple[str, str, Sequence[int]]], nbytes: int) -> int:
    """Return the size of a message of arrays with these names, types and shapes, whose data has `nbytes` bytes."""
    return LENGTH_BYTES + len(_header(kinds)) + nbytes


def _packed(arrays: dict[str, np.ndarray[Any, Any]]) -> bytes:
    head = _header([(name, str(array.dtype), array.shape) for name, array in arrays.items()])
    return head + b"".join(array.tobytes() for array in arrays.values())


def _unpacked(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    import numpy as np

    at = 8 + int.from_bytes(data[:8], "little")
    arrays = {}
    for name, dtype, shape in json.loads(data[8:at]):
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(data, dtype, count, at).reshape(shape)
        at += arrays[name].nbytes
    return arrays
