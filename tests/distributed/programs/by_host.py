"""Hierarchical sums; the first three workers are on one simulated host, all others on another. Worker 0 reports."""

import numpy as np

from netspec.cli.workers import join_job, leave_job
from netspec.distributed import world
from netspec.distributed.communicators.hierarchical import HierarchicalAllReduce, HostGroups, make_host_groups

SIZES = 100_003, 1000, 3, 1
EPSILON = {"": 0.0, "bfloat16": 2.0**-8}
"""Half the distance between neighboring numbers near 1."""

join_job()
workers = world()
rank, size = workers.rank, workers.size
assert size > 4
assert workers.hosts() == [size]
assert make_host_groups(workers) is None
inside = workers.split(rank >= 3)
across = workers.split(min(inside.rank, 2))
groups = HostGroups(inside, across, 2, counted=inside.sent + across.sent)
assert (across.size == 2) == (inside.rank < 2)


def array_of(worker: int, number: int) -> np.ndarray:
    """An array of a worker."""
    return np.random.default_rng([worker, number]).standard_normal(SIZES[number % len(SIZES)]).astype(np.float32)


for form, epsilon in EPSILON.items():
    many = [array_of(rank, number) for number in range(8)]
    sums = [HierarchicalAllReduce(workers, groups, form, array) for array in many]
    for _ in range(2):  # the objects are reused
        for number, array in enumerate(many):
            array[...] = array_of(rank, number)
        before = workers.sent
        pending = [sum.start() for sum in sums]
        for number in np.random.default_rng(rank).permutation(8):  # each worker advances and waits in a different order
            pending[number - 1].advance()
            pending[number].wait()
        w, nbytes = groups.intra_host.size, sum(array.nbytes for array in many)
        within = 2 * (w - 1) / w * nbytes
        between = nbytes / 2 * (0.5 if form else 1) * (groups.intra_host.rank < 2)
        assert abs(workers.sent - before - within - between) < 64 * len(many)
        for number, array in enumerate(many):
            everyone = [array_of(worker, number).astype(np.float64) for worker in range(size)]
            rounded = epsilon * 3 * sum(map(abs, everyone)) + size * 2.0**-22
            assert (abs(array - sum(everyone)) <= rounded).all()
            assert len(set(workers.all_gather_bytes(array.tobytes()))) == 1
flat = array_of(rank, 0)
workers.all_reduce(flat)
many[0][...] = array_of(rank, 0)
HierarchicalAllReduce(workers, groups, "", many[0]).start().wait()
np.testing.assert_allclose(many[0], flat, rtol=0, atol=size * 2.0**-22)  # sums below 16, added in another order
if workers.is_first:
    print("all agree", flush=True)
leave_job(0)
