"""One worker of benchmarks.bench_by_host, which starts it on two hosts; the first worker prints JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks.namespaces import CARD
from netspec.distributed import join
from netspec.distributed.communicators.hierarchical import HierarchicalAllReduce, make_host_groups

SIZES = (2**14, 2**18, 2**20, 2**22)
"""Sizes of the arrays that are summed, in bytes."""


def left() -> int:
    """Return the bytes that have left this host so far."""
    (line,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith(CARD))
    return int(line.split()[9])


def main(repeats: int) -> None:
    """Measure flat and hierarchical all-reduces of all sizes."""
    workers = join()
    groups = make_host_groups(workers)
    assert groups is not None, "it takes two hosts with two workers each"
    rows = []
    for nbytes in SIZES:
        array = np.ones(nbytes // 4, np.float32)
        by_host = HierarchicalAllReduce(workers, groups, "", array)

        def at_once(array: np.ndarray[tuple[int], np.dtype[np.float32]] = array) -> None:
            workers.start_all_reduce(array).wait()

        def through(by_host: HierarchicalAllReduce = by_host) -> None:
            by_host.start().wait()

        ways: dict[str, Callable[[], None]] = {"at_once": at_once, "by_host": through}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        outside = dict.fromkeys(ways, 0)
        for number in range(repeats + 1):  # the first call is not counted
            for name, run in ways.items():
                array[...] = 1
                workers.barrier()
                before, begin = left(), perf_counter()
                run()
                workers.barrier()
                if number:
                    seconds[name].append(perf_counter() - begin)
                    outside[name] += left() - before
        own_volumes = {name: count / repeats for name, count in outside.items()}
        by_worker = workers.all_gather_objects(own_volumes)  # equal on all workers of a host
        first = {name: max(bytes_left[name] for bytes_left in by_worker) for name in ways}
        rows.append({"bytes": nbytes, "seconds": {name: median(all_) for name, all_ in seconds.items()}, "left": first})
    if workers.is_first:
        print(json.dumps(rows))


if __name__ == "__main__":
    main(int(sys.argv[1]))
