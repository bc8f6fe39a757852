"""All-reduce of encoded arrays (`encodings.py`), which overlaps with the rest of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from netspec.distributed.communicators.base import Communicator, Pending
from netspec.distributed.communicators.encodings import encode_into, encoding


class CompressedAllReduce:
    """The sum of arrays of all workers, in place; for any number of times. It is itself what is under way."""

    def __init__(self, workers: Communicator, name: str, arrays: Sequence[Any]) -> None:
        self._workers, self._arrays, self._form = workers, arrays, encoding(name)
        self._sizes = [self._form.nbytes(one.shape, one.itemsize) for one in arrays]
        self._pending: Pending | None = None

    def start(self) -> Pending:
        """Send the arrays on their way."""
        raise NotImplementedError  # abstract: subclasses say


class AllGatherSum(CompressedAllReduce):
    """Each worker gets what all have, and adds it up in the order of ranks."""

    def __init__(self, workers: Communicator, name: str, arrays: Sequence[Any]) -> None:
        super().__init__(workers, name, arrays)
        self._mine = np.empty(sum(self._sizes), np.uint8)
        self._all = np.empty((workers.size, self._mine.size), np.uint8)

    def start(self) -> Pending:
        """Send the arrays on their way."""
        encode_into(self._arrays, self._form, self._mine)
        self._pending = self._workers.start_all_gather(self._mine, self._all)
        return self

    def advance(self) -> bool:
        """Whether all is there."""
        return self._pending is None or self._pending.advance()

    def wait(self) -> None:
        """Add up what all have."""
        if self._pending is None:
            return
        self._pending.wait()
        self._pending, at = None, 0
        for array, size in zip(self._arrays, self._sizes, strict=True):
            told = [np.array(one[at : at + size]) for one in self._all]  # aligned
            array[...] = self._form.decode(told[0], array.shape, str(array.dtype))
            for one in told[1:]:
                array += self._form.decode(one, array.shape, str(array.dtype))
            at += size


class ReduceScatterSum(CompressedAllReduce):
    """Each worker adds up a p-th of all, in the order of ranks, and hands its sum round."""

    def __init__(self, workers: Communicator, name: str, arrays: Sequence[Any]) -> None:
        super().__init__(workers, name, arrays)
        number = self._form.nbytes((1,), arrays[0].itemsize) if arrays else 1
        share = -(-sum(self._sizes) // (number * workers.size)) * number
        self._mine = np.zeros((workers.size, share), np.uint8)  # the numbers beyond the last stay 0
        self._theirs, self._whole = np.empty_like(self._mine), np.empty_like(self._mine)
        self._sum_in = str(np.promote_types(arrays[0].dtype, np.float32)) if arrays else "float32"
        self._count = share // number
        self._first: Pending | None = None
        self._part = np.empty(share, np.uint8)

    def start(self) -> Pending:
        """Send the arrays on their way."""
        encode_into(self._arrays, self._form, self._mine.reshape(-1))
        self._first = self._workers.start_all_to_all(self._mine, self._theirs)
        self._workers.unfinished_sums.append(self)
        return self

    def advance(self) -> bool:
        """Hand the sum round once all parts are there; whether it has come."""
        while self._first is not None:
            # All workers hand their sums round in the order in which they were started.
            earliest = self._workers.unfinished_sums[0]
            assert isinstance(earliest, ReduceScatterSum)
            if earliest._first is None or not earliest._first.advance():
                return False
            earliest._hand_round()
        return self._pending is None or self._pending.advance()

    def wait(self) -> None:
        """Take the sums from where they have come."""
        while self._first is not None:
            earliest = self._workers.unfinished_sums[0]
            assert isinstance(earliest, ReduceScatterSum)
            assert earliest._first is not None
            earliest._first.wait()
            earliest._hand_round()
        if self._pending is None:
            return
        self._pending.wait()
        self._pending, at, data = None, 0, self._whole.reshape(-1)
        for array, size in zip(self._arrays, self._sizes, strict=True):
            array[...] = self._form.decode(data[at : at + size], array.shape, str(array.dtype))
            at += size

    def _hand_round(self) -> None:
        total = np.zeros(self._count, self._sum_in)
        for one in self._theirs:
            total += self._form.decode(one, (self._count,), self._sum_in)
        self._part[...] = self._form.encode(total)
        self._first = None
        self._workers.unfinished_sums.popleft()
        self._pending = self._workers.start_all_gather(self._part, self._whole, follows=True)


def compressed_all_reduce(workers: Communicator, name: str, arrays: Sequence[Any]) -> CompressedAllReduce:
    """What sums up arrays of all workers in an encoding."""
    return (AllGatherSum if encoding(name).gathers else ReduceScatterSum)(workers, name, arrays)
