"""One rank of benchmarks.bench_scaling, which starts it by mpiexec; rank 0 prints JSON.

α and β of the network come from messages between ranks 0 and 1, γ from adding arrays; in both cases the fastest of many
runs, since disturbances only add time. All-reduces are those of netspec's communicator.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np
from mpi4py import MPI

from netspec.distributed import join

SMALL, LARGE = 8, 2**25
"""Sizes of the messages that determine α and β, in bytes: larger than caches."""
SIZES = (2**10, 2**14, 2**18, 2**22, 2**25)
"""Sizes of the all-reduces, in bytes."""


def fastest(call: Callable[[], object], times: int, *, between: Callable[[], object] = lambda: None) -> float:
    """Return the seconds of the fastest call."""
    best = float("inf")
    for _ in range(times):
        between()
        start = perf_counter()
        call()
        best = min(best, perf_counter() - start)
    return best


def exchanged(nbytes: int, times: int) -> float:
    """Return the seconds for an exchange of messages of this size between ranks 0 and 1, as in a ring."""
    comm, sent, came = MPI.COMM_WORLD, np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)

    def call() -> None:
        if comm.rank < 2:
            comm.Sendrecv(sent, 1 - comm.rank, recvbuf=came)

    return fastest(call, times)


def main() -> int:
    """Measure, and print from rank 0."""
    workers = join()
    repeats = int(sys.argv[1])
    small, large = exchanged(SMALL, 50 * repeats), exchanged(LARGE, repeats)
    workers.barrier()
    total, addend = np.zeros(LARGE // 4, np.float32), np.ones(LARGE // 4, np.float32)
    adding = fastest(lambda: np.add(total, addend, out=total), repeats) / LARGE
    all_reduces = {}
    for size in SIZES:
        array = np.zeros(size // 4, np.float32)
        all_reduces[size] = fastest(partial(workers.all_reduce, array), 4 * repeats, between=workers.barrier)
    if workers.is_first:
        print(json.dumps({"alpha": small, "beta": (large - small) / (LARGE - SMALL), "adding": adding,
                          "all_reduce": all_reduces, **workers.describe()}))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
