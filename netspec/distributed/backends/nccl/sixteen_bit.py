"""Sums of values sent in 16 bits, as in `compressed_allreduce.py`.

Each of p workers receives 1/p of every array, adds in float32 in the order of ranks, and sends the sum to all in 16
bits. NCCL's own sums of 16-bit values are rounded at each worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from netspec.backends.cuda.kernels.elementwise import bound
from netspec.backends.device import numpy_type
from netspec.distributed import Communicator
from netspec.distributed.backends.nccl.memory import address, copying, memory
from netspec.distributed.communicators.nccl import NcclGroup
from netspec.graph.types import DType

FORMS = ("float16", "bfloat16")
"""Supported encodings."""


class SixteenBitAllReduce:
    """Sums arrays of all workers in a 16-bit encoding."""

    def __init__(self, workers: Communicator, group: NcclGroup, form: str, arrays: Sequence[Any]) -> None:
        self._group = group
        dtype = numpy_type(DType(form))
        count, share = sum(array.size for array in arrays), -(-sum(array.size for array in arrays) // workers.size)
        sent, theirs, gathered = (memory(share * workers.size, dtype) for _ in range(3))  # padding stays 0
        part = memory(share, dtype)
        self._arrays = sent, theirs, gathered, part
        flat, ends = [array.reshape(-1) for array in arrays], [0]
        for values in flat:
            ends.append(ends[-1] + values.size)
        assert ends[-1] == count
        spans = list(pairwise(ends))
        self.pack = copying(flat, [sent[start:end] for start, end in spans])
        """Round the arrays into the send buffer."""
        self.unpack = copying([gathered[start:end] for start, end in spans], flat)
        """Write the sums to the arrays."""
        parts = [theirs[rank * share : (rank + 1) * share] for rank in range(workers.size)]
        self._add = bound(((), (" + ".join(f"a{rank}" for rank in range(workers.size)),)), parts, [part])

    def __call__(self, stream: int) -> None:
        """Enqueue the exchange on `stream`, the current stream."""
        sent, theirs, gathered, part = self._arrays
        self._group.all_to_all(address(sent), address(theirs), part.nbytes, stream)
        self._add()
        self._group.all_gather(address(part), address(gathered), part.nbytes, stream)
