"""Two workers on each of two hosts: ranks, and a large sum; the first worker prints the bytes sent over the network."""

from pathlib import Path

import numpy as np

from netspec.cli.workers import join_job, leave_job
from netspec.distributed import world

COUNT = 1_000_003

join_job()
workers = world()
assert (workers.size, workers.host_size, workers.host_rank) == (4, 2, workers.rank % 2)
total = np.full(COUNT, workers.rank + 1, np.float32)
workers.all_reduce(total)
np.testing.assert_array_equal(total, np.float32(10))
(card,) = (line.split() for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("net0"))
received = workers.all_gather_objects(int(card[1]))
if workers.is_first:
    print(len(set(workers.describe()["hosts"])), min(received), flush=True)
leave_job(0)
