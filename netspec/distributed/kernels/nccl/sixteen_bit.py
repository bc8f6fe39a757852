"""Sums of values sent in 16 bits, as in `compressed_allreduce.py`.

Each worker gets a p-th of what all have, adds it up in float32 in the order of ranks, and hands the sum round in 16
bits: NCCL's own sums of 16-bit numbers are rounded at each worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from netspec.backends.cuda.kernels.elementwise import bound
from netspec.backends.device import numpy_type
from netspec.distributed import Communicator
from netspec.distributed.communicators.nccl import Nccl
from netspec.distributed.kernels.nccl.memory import address, copying, memory
from netspec.graph.types import DType

FORMS = ("float16", "bfloat16")
"""Encodings that are made here."""


class PackedSum:
    """The sum of arrays of all workers."""

    def __init__(self, workers: Communicator, group: Nccl, form: str, arrays: Sequence[Any]) -> None:
        self._group = group
        dtype = numpy_type(DType(form))
        count, share = sum(one.size for one in arrays), -(-sum(one.size for one in arrays) // workers.size)
        mine, theirs, whole = (memory(share * workers.size, dtype) for _ in range(3))  # numbers beyond the last stay 0
        part = memory(share, dtype)
        self._arrays = mine, theirs, whole, part
        flat, ends = [one.reshape(-1) for one in arrays], [0]
        for one in flat:
            ends.append(ends[-1] + one.size)
        assert ends[-1] == count
        spans = list(pairwise(ends))
        self.fill = copying(flat, [mine[start:end] for start, end in spans])
        """Take what the arrays hold."""
        self.empty = copying([whole[start:end] for start, end in spans], flat)
        """Give them the sums."""
        parts = [theirs[rank * share : (rank + 1) * share] for rank in range(workers.size)]
        self._add = bound(((), (" + ".join(f"a{rank}" for rank in range(workers.size)),)), parts, [part])

    def __call__(self, stream: int) -> None:
        """Put it into a stream, the current one."""
        mine, theirs, whole, part = self._arrays
        self._group.all_to_all(address(mine), address(theirs), part.nbytes, stream)
        self._add()
        self._group.all_gather(address(part), address(whole), part.nbytes, stream)
