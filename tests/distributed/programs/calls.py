"""Test every call of a communicator on any number of workers; the first worker prints that all agree."""

import numpy as np

from netspec.cli.workers import join_job, leave_job
from netspec.distributed import world

join_job()
workers = world()
rank, size = workers.rank, workers.size
assert size > 1
assert (workers.host_rank, workers.host_size) == (rank, size)  # all workers are on one host
assert workers.describe()["workers"] == size == len(workers.describe()["hosts"])
assert workers.is_first == (rank == 0)

for dtype in ("float32", "float64", "int32"):
    for shape in ((), (1,), (0,), (3, 5), (1_000_003,)):  # large arrays use another algorithm
        sums = np.full(shape, rank + 1, dtype)
        workers.all_reduce(sums)
        np.testing.assert_array_equal(sums, np.full(shape, size * (size + 1) // 2, dtype), strict=True)
        received = np.full(shape, rank + 7, dtype)
        workers.broadcast(received)
        np.testing.assert_array_equal(received, np.full(shape, 7, dtype), strict=True)

# Several sums at a time, which end in a different order than they start.
many = [np.full(1000, rank * 10.0 + number) for number in range(5)]
pending = [workers.start_all_reduce(worker) for worker in many]
while not pending[2].advance():
    pass
for number in (4, 2, 0, 1, 3):
    pending[number].wait()
for number, summed in enumerate(many):
    np.testing.assert_array_equal(summed, 10.0 * size * (size - 1) / 2 + number * size)

# Sums are bit-identical on all workers, even if rounding depends on the order.
noise = np.random.default_rng(rank).standard_normal(100_001).astype(np.float32)
workers.all_reduce(noise)
assert len(set(workers.all_gather_bytes(noise.tobytes()))) == 1

assert workers.all_gather_bytes(b"x" * rank) == [b"x" * index for index in range(size)]  # of all lengths, including 0
assert workers.all_gather_objects({"rank": rank, "π": [None, 1.5]}) == [
    {"rank": index, "π": [None, 1.5]} for index in range(size)
]
assert workers.broadcast_object("mine" if rank == 0 else "not this") == "mine"
arrays: dict[str, np.ndarray] = {"a": np.arange(rank, dtype=np.int64), "b/c": np.full((2, 0, rank), 1.0, np.float16)}
for other, gathered in enumerate(workers.all_gather_arrays(arrays)):
    assert list(gathered) == ["a", "b/c"]
    np.testing.assert_array_equal(gathered["a"], np.arange(other, dtype=np.int64), strict=True)
    np.testing.assert_array_equal(gathered["b/c"], np.full((2, 0, other), 1.0, np.float16), strict=True)

# Send to the next worker: tags are kept apart, messages of one tag in order. A part of the workers has its own ranks.
ahead, behind = (rank + 1) % size, (rank - 1) % size
for count in (1, 1_000_003):
    out = [np.full(count, rank * 10.0 + number) for number in range(3)]
    into = [np.zeros(count) for _ in out]
    sends = [workers.start_send(worker, ahead, tag) for worker, tag in zip(out, (0, 1, 0), strict=True)]
    receives = [workers.start_receive(into[number], behind, tag) for number, tag in ((1, 1), (0, 0), (2, 0))]
    for call in (*reversed(receives), *sends):
        call.wait()
    for number, array in enumerate(into):
        np.testing.assert_array_equal(array, behind * 10.0 + number)
part = workers.split(rank % 2)
assert (part.rank, part.size) == (rank // 2, len(range(rank % 2, size, 2)))
assert part.all_gather_objects(rank) == list(range(rank % 2, size, 2))

for counts in (range(size), range(size, 0, -1), [0] * (size - 1) + [1000]):  # parts of all lengths, including 0
    whole = [np.arange(count, dtype=np.float32) + 100 * number for number, count in enumerate(counts)]
    for dtype in ("float32", "int64"):
        parts = workers.gatherv(whole[rank].astype(dtype), list(counts))
        assert (parts is None) == (rank > 0)
        for part, expected in zip(parts or (), whole[: len(parts or ())], strict=True):
            np.testing.assert_array_equal(part, expected.astype(dtype), strict=True)
        handed = workers.scatterv(parts, list(counts), dtype)
        np.testing.assert_array_equal(handed, whole[rank].astype(dtype), strict=True)
workers.barrier()

# Shared memory: writing to one piece must not change the other.
pieces = [workers.share_memory(8 * size).view(np.int64) for _ in range(2)]
for piece in pieces:
    piece[rank] = 10 + rank
workers.barrier()
for piece in pieces:
    np.testing.assert_array_equal(piece, 10 + np.arange(size))
workers.barrier()
pieces[0][0 if rank else 1] = -1
workers.barrier()
np.testing.assert_array_equal(pieces[0], [-1, -1, *range(12, 10 + size)])
np.testing.assert_array_equal(pieces[1], 10 + np.arange(size))
if workers.is_first:
    print(f"{size} workers agree", flush=True)
leave_job(0)
