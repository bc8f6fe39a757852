"""`Communicator`: the interface between a worker and its group, and the group of one, which sends nothing.

An array that is summed or sent is contiguous in memory. Calls are collective, except those that send to or receive
from one worker: all workers call the same methods in the same order. A method called `start_…` returns at once; the
others block until their result is there. Gathered data is in the order of ranks, so that sums made from it are
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


# Bytes that each worker sends in a collective call, by the algorithms that send least. An MPI library may choose one
# that sends more: `cost_model/collectives.py` models these.


def all_reduce_volume(nbytes: float, workers: int) -> float:
    """Bytes that a worker sends in an all-reduce of n bytes on p workers: 2 (p - 1)/p n."""
    return 2 * all_to_all_volume(nbytes, workers)


def all_to_all_volume(nbytes: float, workers: int) -> float:
    """Bytes that a worker sends in an all-to-all of n bytes on p workers: (p - 1)/p n."""
    return nbytes * (workers - 1) / workers


def all_gather_volume(nbytes: float, workers: int) -> float:
    """Bytes that a worker sends in an all-gather of n bytes of each of p workers: (p - 1) n."""
    return nbytes * (workers - 1)


HOW_LONG = 8
"""Size of the length field before a message, in bytes."""


class Pending(Protocol):
    """A collective call under way."""

    def advance(self) -> bool:
        """Do what can be done without waiting; whether it is complete."""
        ...

    def wait(self) -> None:
        """Return when it is complete."""
        ...


class Done:
    """A call that was complete at once."""

    def advance(self) -> bool:
        """It is."""
        return True

    def wait(self) -> None:
        """Nothing to wait for."""


class Communicator(ProcessGroup):
    """A group of workers, of which this process is one. The base class is a group of one, which sends nothing."""

    host_size: int = 1
    """Number of workers of this worker's host."""
    host_groups: HostGroups | None = None
    """Groups of the hierarchical all-reduce (`hierarchical.py`), if it is used."""

    def __init__(self) -> None:
        self.unfinished_sums: deque[Pending] = deque()
        """Sums whose parts are on their way, in the order in which they were started (`compressed_allreduce.py`)."""
        self.in_flight: dict[Hashable, list[Pending]] = {}
        """What was started and not waited for, by whom: an address of what is summed up, a channel, a question."""
        self._parts: dict[int, Communicator] = {}
        """The groups that `below` has made, by where they are cut."""
        self._given_up: list[Pending] = []
        """Calls that nobody waits for any more, kept since MPI may still write to their memory."""

    def finish(self, key: Hashable) -> None:
        """Wait for what was started under that key, if anything was."""
        for one in self.in_flight.pop(key, ()):
            one.wait()

    def abandon_calls(self) -> None:
        """Drop unfinished calls: some workers have not started them, or never will."""
        self._given_up += [*(one for calls in self.in_flight.values() for one in calls), *self.unfinished_sums]
        self.in_flight.clear()
        self.unfinished_sums.clear()

    @property
    def is_first(self) -> bool:
        """Whether this worker speaks for all: it alone writes files and prints."""
        return self.rank == 0

    def describe(self) -> dict[str, Any]:
        """What `netspec devices` and the log of a run say of it: plain data."""
        return {"workers": self.size}

    @property
    def on_one_host(self) -> bool:
        """Whether all workers are on one host."""
        return self.host_size == self.size

    def barrier(self) -> None:
        """Wait until all workers have come here. What each wrote to memory that they share is there for all then."""

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Return when `done` does so with True, visible to the watchdog. Raises `PeerFailure`."""
        wait_until(done)

    def gpu_link_error(self) -> InputError | None:
        """Return the error if there are several workers and no NCCL."""
        from netspec.distributed.communicators import nccl

        return nccl.missing() if self.size > 1 else None

    def check_gpu_links(self) -> None:
        """Raise `RunError` if NCCL has found that a started call can never complete."""
        from netspec.distributed.communicators import nccl

        nccl.check_groups()

    def release_shared_memory(self) -> None:
        """Have the memory that workers shared so far be that of what shares memory next: nobody uses it any more."""

    def all_reduce(self, array: Any) -> None:
        """Replace an array by the sum of all workers'."""
        self.start_all_reduce(array).wait()

    def start_all_reduce(self, array: Any, *, apart: bool = False) -> Pending:
        """As `all_reduce`, under way: until it is complete nobody may read or write the array.

        Those that are `apart` are in an order of their own.
        """
        return Done()

    def start_all_to_all(self, mine: Any, theirs: Any, *, apart: bool = False) -> Pending:
        """Send row i of `mine` to worker i, and receive what worker i has for this one in row i of `theirs`.

        Those that are `apart` are in the order of sums that are so.
        """
        theirs[...] = mine
        return Done()

    def start_all_gather(self, mine: Any | None, all_: Any, *, follows: bool = False, apart: bool = False) -> Pending:
        """Receive what worker i has in row i of `all_`.

        Those that follow other calls are in an order of their own, those that are `apart` in that of sums that are so.
        `mine` is what this worker has; None: it is in its row already.
        """
        if mine is not None:
            all_[0] = mine
        return Done()

    def start_send(self, array: Any, to: int, tag: int) -> Pending:
        """Send an array to a worker, under way: nobody may write to it until it has arrived.

        What is sent to a worker with one tag arrives in the order in which it was sent.
        """
        return Done()

    def start_receive(self, array: Any, source: int, tag: int) -> Pending:
        """Start to receive a worker's message with this tag into an array; zeros if there is only one worker."""
        array[...] = 0
        return Done()

    def start_reduce_scatter(self, whole: Any, part: Any, counts: Sequence[int]) -> Pending:
        """Start to sum a flat array over workers; `part` receives this worker's part. `counts`: sizes of the parts."""
        part[...] = whole
        return Done()

    def start_all_gather_parts(self, whole: Any, counts: Sequence[int]) -> Pending:
        """Start to gather all parts into a flat array that holds this worker's part. `counts`: sizes of the parts."""
        return Done()

    def hosts(self) -> list[int]:
        """Return the number of workers of each host, in the order of the hosts' first ranks."""
        return [self.size]

    def host_group(self) -> Communicator:
        """A group of the workers of this host, in the order of ranks."""
        return Communicator()

    def split(self, color: int) -> Communicator:
        """A group of those who say the same, in the order of ranks."""
        return Communicator()

    def subgroup_below(self, rank: int) -> Communicator:
        """The group that this worker is in, of those below a rank or of the others: made once, for all trainings.

        MPI has about two thousand communicators, and one that is freed may still be waited on by a worker.
        """
        if rank not in self._parts:
            self._parts[rank] = self.split(int(self.rank >= rank))
        return self._parts[rank]

    def gather(self, array: Any) -> Any:
        """The arrays of all workers, stacked in the order of ranks, on worker 0; None on the others."""
        return array[None]

    def scatter(self, arrays: Any, like: Any) -> Any:
        """Return row i of worker 0's `arrays` on worker i; `like` has the shape and type of the result."""
        return arrays[0]

    def gather_parts(self, array: Any, counts: Sequence[int]) -> list[Any] | None:
        """Return the flat arrays of all workers on worker 0, None on the others. `counts`: elements of each array."""
        return [array]

    def scatter_parts(self, arrays: Sequence[Any] | None, counts: Sequence[int], dtype: str) -> Any:
        """Return worker 0's flat array i on worker i. `counts`: elements of each array; `dtype`: their common type."""
        assert arrays is not None
        return arrays[0]

    def broadcast(self, array: Any, root: int = 0) -> None:
        """Overwrite an array with the array of worker `root`."""

    def all_gather_bytes(self, told: bytes) -> list[bytes]:
        """Return the bytes that each worker passes, in the order of ranks."""
        return [told]

    def regroup(self, within: float) -> None:
        """Synchronize all workers after a failure; later calls match each other again.

        Raises `PeerFailure` if a worker does not arrive, or does not continue with the others, within `within` seconds.
        """

    def abort(self, status: int) -> NoReturn:
        """End the processes of all workers at once, with an exit status."""
        raise SystemExit(status)

    def all_gather_objects(self, told: Any) -> list[Any]:
        """Gather plain data that JSON can hold; see `all_gather`."""
        return [json.loads(one) for one in self.all_gather_bytes(json.dumps(told).encode())]

    def broadcast_object(self, told: Any) -> Any:
        """Return worker 0's plain data on every worker; the data of other workers is ignored."""
        return self.all_gather_objects(told if self.is_first else None)[0]

    def all_gather_arrays(self, arrays: dict[str, np.ndarray[Any, Any]]) -> list[dict[str, np.ndarray[Any, Any]]]:
        """Gather NumPy arrays by name; see `all_gather`."""
        return [_unpacked(one) for one in self.all_gather_bytes(_packed(arrays))]


def _head(kinds: Sequence[tuple[str, str, Sequence[int]]]) -> bytes:
    """Return the header of a message of arrays with these names, types and shapes."""
    head = json.dumps([[name, dtype, list(shape)] for name, dtype, shape in kinds]).encode()
    return len(head).to_bytes(8, "little") + head


def packed_bytes(kinds: Sequence[tuple[str, str, Sequence[int]]], nbytes: int) -> int:
    """Return the size of a message of arrays with these names, types and shapes, whose data has `nbytes` bytes."""
    return HOW_LONG + len(_head(kinds)) + nbytes


def _packed(arrays: dict[str, np.ndarray[Any, Any]]) -> bytes:
    head = _head([(name, str(one.dtype), one.shape) for name, one in arrays.items()])
    return head + b"".join(one.tobytes() for one in arrays.values())


def _unpacked(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    import numpy as np

    at = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, dtype, shape in json.loads(data[8:at]):
        count = int(np.prod(shape, dtype=np.int64))
        found[name] = np.frombuffer(data, dtype, count, at).reshape(shape)
        at += found[name].nbytes
    return found
