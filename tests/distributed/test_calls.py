"""Messages between workers over MPI."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.distributed import Communicator


@pytest.mark.parametrize(("workers", "by"), [(2, "netspec"), (3, "mpiexec"), (4, "netspec")])
def test_workers_agree(jobs, workers: int, by: str) -> None:
    job = jobs(workers, "calls.py", by=by)
    assert job.end() == 0, job.err
    assert job.out == f"{workers} workers agree\n"
    assert job.err == ""


def test_a_worker_alone_agrees_with_itself() -> None:
    alone = Communicator()
    assert (alone.rank, alone.size, alone.is_first) == (0, 1, True)
    assert alone.all_gather_objects({"a": 1}) == [{"a": 1}]
    assert alone.broadcast_object([1]) == [1]
    assert alone.split(3).size == 1
    array = np.ones(3)
    alone.start_send(array, 0, 1).wait()
    alone.start_receive(array, 0, 1).wait()
    assert not array.any()
    memory = alone.share_memory(24)
    assert (memory.nbytes, alone.on_one_host) == (24, True)
    memory[:] = 1
    assert not alone.share_memory(24).any()
