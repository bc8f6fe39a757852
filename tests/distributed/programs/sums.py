"""Sums in every encoding on several workers; the first worker prints that all agree."""

import numpy as np

from netspec.cli.workers import join_job, leave_job
from netspec.distributed import world
from netspec.distributed.communicators.compressed_allreduce import compressed_all_reduce
from netspec.distributed.communicators.encodings import TopKEncoding, sent
from netspec.graph.ops.gradient_compression import OneBitQuantize, TopKSparsify

join_job()
workers = world()
rank, size = workers.rank, workers.size
SHAPES = (40, 7), (3,), (5, 2, 3, 3)


def arrays_of(worker: int, number: int = 0) -> list[np.ndarray]:
    """Arrays of a worker."""
    random = np.random.default_rng([worker, number])
    return [random.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def split(name: str, array: np.ndarray) -> np.ndarray:
    """Return the array that the encoding represents exactly."""
    match name:
        case "one_bit":
            result = OneBitQuantize().forward(np, array)
        case "top_k:0.1":
            result = TopKSparsify(TopKEncoding(0.1).count(array.shape)).forward(np, array)
        case _:
            result = (array, None)
    actual: np.ndarray = result[0]
    return actual


NAMES = ("in_full", "bfloat16", "float16", "one_bit", "top_k:0.1")
EPSILON = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Half the distance between neighboring numbers near 1."""
for name in NAMES:
    arrays, before = [split(name, worker) for worker in arrays_of(rank)], workers.sent
    compressed_all_reduce(workers, name, arrays).start().wait()
    assert workers.sent - before >= sent(name, SHAPES, 4, size)
    padding = size * 4 * 2  # padding to equal parts, in both directions
    assert workers.sent - before <= sent(name, SHAPES, 4, size) + padding
    for number, array in enumerate(arrays):
        everyone = [split(name, arrays_of(worker)[number]) for worker in range(size)]
        expected = everyone[0].copy()
        for of_worker in everyone[1:]:
            expected += of_worker
        if name in EPSILON:  # each value is rounded once, and so is the sum
            rounded = sum(abs(array) for array in everyone) + abs(expected)
            assert (abs(array - expected) <= 1.01 * EPSILON[name] * rounded + 1e-7).all()
        else:  # added in the order of ranks, so bit-identical
            np.testing.assert_array_equal(array, expected)
    received = b"".join(array.tobytes() for array in arrays)
    assert len(set(workers.all_gather_bytes(received))) == 1

# Several sums at a time; each worker advances and waits in a different order.
many = [arrays_of(rank, number) for number in range(6)]
pending = [compressed_all_reduce(workers, "in_full", arrays).start() for arrays in many]
for number in np.random.default_rng(rank).permutation(6):
    pending[number - 1].advance()
    pending[number].wait()
for number, arrays in enumerate(many):
    for index, array in enumerate(arrays):
        np.testing.assert_allclose(
            array, sum(arrays_of(worker, number)[index] for worker in range(size)), rtol=1e-6, atol=1e-6
        )

# Blocks are gathered on the first worker, and scattered again.
block = np.full((2, 3), rank, np.float64)
stacked = workers.gather(block)
assert (stacked is None) == (rank > 0)
np.testing.assert_array_equal(workers.scatter(stacked, block), block)
if workers.is_first:
    np.testing.assert_array_equal(stacked[:, 0, 0], np.arange(size))
    print("all agree", flush=True)
leave_job(0)
