"""All-reduce of encoded arrays (`encodings.py`), which overlaps with the rest of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from netspec.distributed.communicators.base import Communicator, Pending
from netspec.distributed.communicators.encodings import encode_into, encoding


class CompressedAllReduce:
    """Sums arrays over all workers, in place, any number of times. The object is also the pending call."""

    def __init__(self, workers: Communicator, name: str, arrays: Sequence[Any]) -> None:
        self._workers, self._arrays, self._encoding = workers, arrays, encoding(name)
        self._sizes = [self._encoding.nbytes(array.shape, array.itemsize) for array in arrays]
        self._pending: Pending | None = None

    def start(self) -> Pending:
        """Start to send the arrays."""
        raise NotImplementedError  # subclasses implement it


class AllGatherSum(CompressedAllReduce):
    """Each worker receives the arrays of all workers, and adds them in the order of ranks."""

    def __init__(self, workers: Communicator, name: str, arrays: Sequence[Any]) -> None:
        super().__init__(workers, name, arrays)
        self._mine = np.empty(sum(self._sizes), np.uint8)
        self._all = np.empty((workers.size, self._mine.size), np.uint8)

    def start(self) -> Pending:
        """Send the arrays on their way."""
        encode_into(self._arrays, self._encoding, self._mine)
        self._pending = self._workers.start_all_gather(self._mine, self._all)
        return self

    def advance(self) -> bool:
        """Return whether the arrays of all workers have arrived."""
        return self._pending is None or self._pending.advance()

    def wait(self) -> None:
        """Wait for the arrays of all workers, and add them."""
        if self._pending is None:
            return
        self._pending.wait()
        self._pending, at = None, 0
        for array, size in zip(self._arrays, self._sizes, strict=True):
            parts = [np.array(message[at : at + size]) for message in self._all]  # copies are aligned
            array[...] = self._encoding.decode(parts[0], array.shape, str(array.dtype))
            for part in parts[1:]:
                array += self._encoding.decode(part, array.shape, str(array.dtype))
            at += size


class ReduceScatterSum(CompressedAllReduce):
    """Each of p workers adds 1/p of the arrays, in the order of ranks, and all gather the sums."""

    def __init__(self, workers: Communicator, name: str, arrays: Sequence[Any]) -> None:
        super().__init__(workers, name, arrays)
        number = self._encoding.nbytes((1,), arrays[0].itemsize) if arrays else 1
        share = -(-sum(self._sizes) // (number * workers.size)) * number
        self._mine = np.zeros((workers.size, share), np.uint8)  # padding stays 0
        self._theirs, self._whole = np.empty_like(self._mine), np.empty_like(self._mine)
        self._sum_dtype = str(np.promote_types(arrays[0].dtype, np.float32)) if arrays else "float32"
        self._count = share // number
        self._first: Pending | None = None
        self._part = np.empty(share, np.uint8)

    def start(self) -> Pending:
        """Send the arrays on their way."""
        encode_into(self._arrays, self._encoding, self._mine.reshape(-1))
        self._first = self._workers.start_all_to_all(self._mine, self._theirs)
        self._workers.unfinished_sums.append(self)
        return self

    def advance(self) -> bool:
        """Start the gather once all parts have arrived; return whether it is complete."""
        while self._first is not None:
            # All workers start their gathers in the order in which the sums were started.
            earliest = self._workers.unfinished_sums[0]
            assert isinstance(earliest, ReduceScatterSum)
            if earliest._first is None or not earliest._first.advance():
                return False
            earliest._start_gather()
        return self._pending is None or self._pending.advance()

    def wait(self) -> None:
        """Wait for the gather, and decode the sums."""
        while self._first is not None:
            earliest = self._workers.unfinished_sums[0]
            assert isinstance(earliest, ReduceScatterSum)
            assert earliest._first is not None
            earliest._first.wait()
            earliest._start_gather()
        if self._pending is None:
            return
        self._pending.wait()
        self._pending, at, data = None, 0, self._whole.reshape(-1)
        for array, size in zip(self._arrays, self._sizes, strict=True):
            array[...] = self._encoding.decode(data[at : at + size], array.shape, str(array.dtype))
            at += size

    def _start_gather(self) -> None:
        total = np.zeros(self._count, self._sum_dtype)
        for their in self._theirs:
            total += self._encoding.decode(their, (self._count,), self._sum_dtype)
        self._part[...] = self._encoding.encode(total)
        self._first = None
        self._workers.unfinished_sums.popleft()
        self._pending = self._workers.start_all_gather(self._part, self._whole, second_phase=True)


def compressed_all_reduce(workers: Communicator, name: str, arrays: Sequence[Any]) -> CompressedAllReduce:
    """Create the all-reduce of arrays in an encoding."""
    return (AllGatherSum if encoding(name).gathers else ReduceScatterSum)(workers, name, arrays)
