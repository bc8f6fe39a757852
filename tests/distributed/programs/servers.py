"""Three workers and two servers in every mode, with known gradients.

The last worker is slow: it starts only when the first is as far ahead as the mode allows, and pauses in each step.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from netspec.cli.workers import join_job, leave_job
from netspec.distributed import Communicator, world
from netspec.distributed.parameter_server.client import Client
from netspec.distributed.parameter_server.protocol import NEVER
from netspec.distributed.parameter_server.server import Coordinator, Follower
from netspec.distributed.strategies.parameter_server import ParameterServer

WORKERS, STEPS, PAUSE, AHEAD = 3, 30, 0.002, 5
SIZES = 100_000, 7
"""Sizes of the servers' shards: MPI sends the first by rendezvous, the second eagerly."""
ANSWERED, READY = np.zeros(1), 99
"""Message of the first worker to the last one that it may start, and its tag."""
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"backup_workers": 1},
    {"mode": "asynchronous"},
    {"mode": "stale_synchronous", "staleness": 2},
    {"mode": "stale_synchronous", "staleness": 0},
)


class Counters:
    """A server's shard of the parameters; a gradient of ones changes each element by the learning rate."""

    dtype = "float64"

    def __init__(self, size: int, group: Communicator) -> None:
        self.size, self.values, self.moves, self._group = size, np.zeros(size), 0, group

    def read(self) -> Any:
        return self.values.copy()

    def update(self, gradient: Any, rates: Sequence[float], count: int) -> None:
        self.moves += 1
        assert count == self.moves
        self.values += rates[0] * gradient

    def gather(self) -> None:
        self._group.all_gather_objects(self.moves)

    def assemble(self) -> None:
        self._group.all_gather_objects(-self.moves)


def allowed_lead(parallel: ParameterServer) -> int:
    """Return how many steps the first worker can do before the last one has done any."""
    if parallel.mode == "stale_synchronous":
        return parallel.staleness
    return AHEAD if parallel.backup_workers or parallel.mode == "asynchronous" else 0


def work(group: Communicator, mates: Communicator, parallel: ParameterServer) -> None:
    """Train as a worker: the gradient of a step is its number, times the worker's share of the samples."""
    client, last = Client(group, WORKERS, SIZES, "float64", 1), group.rank == WORKERS - 1
    done, ahead, started, pushed = 0, 0, dict[int, float](), dict[int, float]()
    if last:
        mates.start_receive(ANSWERED, 0, READY).wait()
    while done < client.stop:
        started[done] = time.monotonic()
        if group.rank == 0 and done == allowed_lead(parallel):
            mates.start_send(ANSWERED, WORKERS - 1, READY).wait()
        if last:
            time.sleep(PAUSE)
        gradient = [np.full(size, (done + 1) / WORKERS) for size in SIZES]
        pushed[done] = time.monotonic()
        client.push(gradient, done, 1 / WORKERS, float(done), [0.5])
        wishes = group.rank == 0 and done + 1 >= STEPS
        actual = client.wait_to_continue(done + 1, stop=wishes, snapshot=wishes and client.snapshot == NEVER)
        ahead = max(ahead, client.step - done)
        done = client.step
        pieces = {float(value) for part in actual for value in np.unique(part)}
        assert len(pieces) == 1, "each fetch is one state of the whole net"
        if parallel.mode == "synchronous":
            # The mean equals the gradient of one worker, whichever gradient was dropped.
            assert pieces == {0.25 * done * (done + 1)}
            assert client.loss is not None
            assert client.loss < done
    assert client.stop == client.snapshot
    assert done == client.stop >= STEPS
    slowest = mates.all_gather_objects(ahead)[-1]
    if parallel.backup_workers:
        assert client.late > 0
        assert slowest >= AHEAD, "who is late passes over steps"
    else:
        assert client.late == 0
        assert slowest == 1
        far = lead(mates.all_gather_objects([list(started.values()), list(pushed.values())]))
        assert far == allowed_lead(parallel) or (parallel.mode == "asynchronous" and far > AHEAD)
    client.fetch()
    mates.barrier()
    looked = client.fetch()[0][0]
    assert mates.all_gather_objects(float(looked)) == [looked] * WORKERS
    if not parallel.backup_workers:
        np.testing.assert_allclose(looked, 0.25 * done * (done + 1), rtol=1e-13)
    if group.is_first:
        client.gather()
        client.assemble()
    moves = group.all_gather_objects(None)[WORKERS:]
    assert [-all_gather_object for all_gather_object in group.all_gather_objects(None)[WORKERS:]] == moves
    assert moves == [done if parallel.mode == "synchronous" else done * WORKERS] * len(SIZES)
    client.leave()


def lead(times: Sequence[Sequence[Sequence[float]]]) -> int:
    """Return the largest lead, in steps, of a worker over another one at the start of a step."""
    actual = 0
    for started, _ in times:
        for done, at in enumerate(started):
            slowest = min(sum(time < at for time in pushed) for _, pushed in times)
            actual = max(actual, done - slowest)
    return actual


join_job()
everyone = world()
part = everyone.split(int(everyone.rank < WORKERS))
for fields in WAYS:
    strategy = ParameterServer(strategy="parameter_server", servers=2, **fields)
    if everyone.rank < WORKERS:
        work(everyone, part, strategy)
        continue
    shard = Counters(SIZES[part.rank], everyone)
    rule = strategy.rule(WORKERS, 0, 1)
    if part.is_first:
        Coordinator(everyone, WORKERS, shard, 1, rule, 0).serve()
    else:
        Follower(everyone, WORKERS, shard, 1).serve()
if everyone.is_first:
    print("all modes agree", flush=True)
leave_job(0)
