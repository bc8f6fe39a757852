"""`Communicator`: what workers say to each other, whatever carries it.

Arrays that are summed or sent lie in one piece of memory each. Calls are collective but for those that send to one
worker or receive from one: all workers call the same methods in the same order. Those called `start_…` return at once;
the others block until what they ask for is there. What is gathered comes in the order of ranks, so that sums made of it
are the same on every worker, to the bit.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    import numpy as np

    from netspec.parallel.by_host import HostGroups


HOW_LONG = 8
"""Bytes by which a worker tells how many bytes it is going to tell."""


class Broken(Exception):
    """Another worker has failed: what this one waits for will never be there."""


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


class Communicator:
    """A group of workers, of which this process is one. By itself a group of one, which sends nothing."""

    rank: int = 0
    """The number of this worker, from 0."""
    size: int = 1
    """How many workers there are."""
    host_rank: int = 0
    """The number of this worker among those of its host."""
    host_size: int = 1
    """How many workers its host has."""
    sent: float = 0.0
    """Bytes that this worker has sent in collective calls so far, as `volumes.py` counts them."""
    by_host: HostGroups | None = None
    """The groups by which sums are made host by host, where they are to be (`by_host.py`)."""
    silent: bool = False
    """Whether programs keep their sums to themselves, so that a worker can run a part of a step by itself."""

    def __init__(self) -> None:
        self.halfway: deque[Pending] = deque()
        """Sums whose parts are on their way, in the order in which they were started (`sums.py`)."""
        self.under_way: dict[Hashable, list[Pending]] = {}
        """What was started and not waited for, by whom: an address of what is summed up, a channel, a question."""
        self._parts: dict[int, Communicator] = {}
        """The groups that `below` has made, by where they are cut."""
        self._given_up: list[Pending] = []
        """Calls that nobody waits for any more, kept since MPI may still write to their memory."""

    def finish(self, key: Hashable) -> None:
        """Wait for what was started under that key, if anything was."""
        for one in self.under_way.pop(key, ()):
            one.wait()

    def give_up(self) -> None:
        """Forget what is under way: some workers have not started it, or never will."""
        self._given_up += [*(one for calls in self.under_way.values() for one in calls), *self.halfway]
        self.under_way.clear()
        self.halfway.clear()

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Have programs tell the others nothing inside the block."""
        self.silent = True
        try:
            yield
        finally:
            self.silent = False

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

    def share_memory(self, nbytes: int) -> Any:
        """Memory of so many bytes that all workers of this host have in common, until they give it back: a NumPy array.

        What it holds at first is not said. Raises `RunError` where the host has not as much.
        """
        import numpy as np

        return np.zeros(nbytes, np.uint8)

    def give_back_memory(self) -> None:
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
        """Fill an array with what a worker sends with this tag, under way; zeros where nobody sends anything."""
        array[...] = 0
        return Done()

    def start_reduce_scatter(self, whole: Any, part: Any, counts: Sequence[int]) -> Pending:
        """Sum up a flat array, of which `part` gets this worker's part; parts are of so many numbers each."""
        part[...] = whole
        return Done()

    def start_gather_parts(self, whole: Any, counts: Sequence[int]) -> Pending:
        """Have the parts of all in a flat array, in which this worker's is in its place; of so many numbers each."""
        return Done()

    def hosts(self) -> list[int]:
        """How many workers each host has, in the order of their first ones."""
        return [self.size]

    def on_host(self) -> Communicator:
        """A group of the workers of this host, in the order of ranks."""
        return Communicator()

    def split(self, color: int) -> Communicator:
        """A group of those who say the same, in the order of ranks."""
        return Communicator()

    def below(self, rank: int) -> Communicator:
        """The group that this worker is in, of those below a rank or of the others: made once, for all trainings.

        MPI has about two thousand communicators, and one that is freed may still be waited on by a worker.
        """
        if rank not in self._parts:
            self._parts[rank] = self.split(int(self.rank >= rank))
        return self._parts[rank]

    def collect(self, array: Any) -> Any:
        """The arrays of all workers, stacked in the order of ranks, on worker 0; None on the others."""
        return array[None]

    def hand_out(self, arrays: Any, like: Any) -> Any:
        """What worker 0 has in row i of `arrays`, on worker i; `like` is an array of the same shape and type."""
        return arrays[0]

    def collect_parts(self, array: Any, counts: Sequence[int]) -> list[Any] | None:
        """The flat arrays of all workers, of so many elements each and one type, on worker 0; None on the others."""
        return [array]

    def hand_out_parts(self, arrays: Sequence[Any] | None, counts: Sequence[int], dtype: str) -> Any:
        """Array i of those that worker 0 has, on worker i: flat, of so many elements each and one type."""
        assert arrays is not None
        return arrays[0]

    def broadcast(self, array: Any, root: int = 0) -> None:
        """Replace an array by that of one worker."""

    def all_gather(self, told: bytes) -> list[bytes]:
        """What every worker tells, in the order of ranks."""
        return [told]

    def meet_again(self, within: float) -> None:
        """Have all come here that the failure of one has torn apart: calls from now on are those after this one.

        Raises `Broken` where they do not come, or do not go on to do what the others do, within so many seconds.
        """

    def abort(self, status: int) -> NoReturn:
        """End the processes of all workers at once, with an exit status."""
        raise SystemExit(status)

    def gather(self, told: Any) -> list[Any]:
        """As `all_gather`, for plain data that JSON holds."""
        return [json.loads(one) for one in self.all_gather(json.dumps(told).encode())]

    def shared(self, told: Any) -> Any:
        """Plain data of worker 0, on every worker; what the others tell is passed over."""
        return self.gather(told if self.is_first else None)[0]

    def gather_arrays(self, arrays: dict[str, np.ndarray[Any, Any]]) -> list[dict[str, np.ndarray[Any, Any]]]:
        """As `all_gather`, for NumPy arrays by name."""
        return [_unpacked(one) for one in self.all_gather(_packed(arrays))]


def _head(kinds: Sequence[tuple[str, str, Sequence[int]]]) -> bytes:
    """What is before arrays of these names, types and shapes."""
    head = json.dumps([[name, dtype, list(shape)] for name, dtype, shape in kinds]).encode()
    return len(head).to_bytes(8, "little") + head


def packed_bytes(kinds: Sequence[tuple[str, str, Sequence[int]]], nbytes: int) -> int:
    """Bytes that a worker tells of arrays of these names, types and shapes, which have `nbytes` themselves."""
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
