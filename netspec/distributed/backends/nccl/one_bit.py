"""Sums of gradients sent as one bit per element and two values per column, as in `compressed_allreduce.py`.

A message has the two values of all columns, then the bits of all arrays, in the order of their elements. Each worker
gathers the messages of all workers, decodes them, and adds them in the order of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from netspec.backends.cuda.kernels.elementwise import stored_type
from netspec.backends.cuda.kernels.one_bit import OneBitColumns
from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.distributed import Communicator
from netspec.distributed.backends.nccl.memory import address, all_of, memory
from netspec.distributed.communicators.nccl import NcclGroup
from netspec.graph.kernel import Thunk

# Values in a message are not aligned.
READ = """
const auto number = [](const uint8 *from) {
    return __uint_as_float(from[0] | from[1] << 8 | from[2] << 16 | (uint32)from[3] << 24);
};
"""
EXTREMES = {
    "FIRST": "INFINITY", "SECOND": "-INFINITY",
    "EACH": "first = one < first || one != one ? one : first; second = one > second || one != one ? one : second;",
    "JOIN": """first = other < first || other != other ? other : first;
            second = another > second || another != another ? another : second;""",
}  # fmt: skip
"""Code that finds the smallest and the largest value; NaN propagates."""
STORE_EXTREMES = """
if (lane == 0) {
    const uint32 low = __float_as_uint((float32)first), high = __float_as_uint((float32)second);
    for (int k = 0; k < 4; ++k) {
        message[start + 8 * c + k] = low >> 8 * k;
        message[start + 8 * c + 4 + k] = high >> 8 * k;
    }
}
"""
PACK = """
UNITS(unit, bytes) {
    uint32 bits = 0;
    for (int k = 0; k < 8 && 8 * unit + k < count; ++k) {
        const Index e = 8 * unit + k;
        bits |= (uint32)(x[e] > number(message + start + 8 * (e / across % columns))) << k;
    }
    message[begin + unit] = bits;
}
"""
UNPACK = """
UNITS(unit, count) {
    TYPE total = 0;
    const Index c = unit / across % columns;
    for (Index rank = 0; rank < ranks; ++rank) {
        const uint8 *from = messages + rank * size;
        const TYPE one = number(from + start + 8 * c + 4 * (from[begin + unit / 8] >> unit % 8 & 1));
        total = rank ? total + one : one;
    }
    y[unit] = total;
}
"""


class OneBitAllReduce:
    """Sums arrays of all workers in one-bit encoding."""

    def __init__(self, workers: Communicator, group: NcclGroup, arrays: Sequence[Any]) -> None:
        self._group = group
        flat, columns = [array.reshape(-1) for array in arrays], [OneBitColumns.of(array.shape) for array in arrays]
        starts = list(accumulate((8 * column.columns for column in columns), initial=0))
        begins = list(accumulate((-(-array.size // 8) for array in flat), initial=starts[-1]))
        self._size = begins[-1]
        self._mine, self._all = memory(self._size, "uint8"), memory(self._size * workers.size, "uint8")
        parts = list(zip(flat, columns, starts, begins, strict=False))
        self.pack = all_of([self._packing(*part) for part in parts])
        """Encode the arrays into this worker's message."""
        self.unpack = all_of([self._unpacking(*part, workers.size) for part in parts])
        """Write the sums to the arrays."""

    def __call__(self, stream: int) -> None:
        """Enqueue the all-gather of the messages on `stream`, the current stream."""
        self._group.all_gather(address(self._mine), address(self._all), self._size, stream)

    def _packing(self, x: Any, signature: OneBitColumns, start: int, begin: int) -> Thunk:
        largest = max(x.size + 8, self._size)
        message = pointer("message", self._mine, written=True)
        find_extremes = signature.reduction(x, [message, *sizes(largest, start=start)], EXTREMES, STORE_EXTREMES)
        count = -(-x.size // 8)
        numbers = sizes(
            largest,
            bytes=count,
            count=x.size,
            start=start,
            begin=begin,
            across=signature.across,
            columns=signature.columns,
        )
        return all_of([find_extremes, Launch([pointer("x", x), message, *numbers], READ + PACK, count).bind()])

    def _unpacking(self, y: Any, signature: OneBitColumns, start: int, begin: int, ranks: int) -> Thunk:
        numbers = sizes(
            max(y.size, self._size * ranks), count=y.size, ranks=ranks, size=self._size, start=start, begin=begin,
            across=signature.across, columns=signature.columns,
        )  # fmt: skip
        parameters = [pointer("messages", self._all), pointer("y", y, written=True), *numbers]
        return Launch(parameters, (READ + UNPACK).replace("TYPE", stored_type(y)), y.size).bind()
