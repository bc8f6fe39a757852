"""Messages between workers over MPI."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.distributed import Communicator


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "by"), [(2, "netspec"), (3, "mpiexec"), (4, "netspec")])
def test_workers_agree(jobs, workers: int, by: str) -> None:
    job = jobs(workers, "calls.py", by=by)
    assert job.end() == 0, job.err
    assert job.out == f"{workers} workers agree\n"
    assert job.err == ""


def test_a_single_worker_agrees_with_itself() -> None:
    single = Communicator()
    assert (single.rank, single.size, single.is_first) == (0, 1, True)
    assert single.all_gather_objects({"a": 1}) == [{"a": 1}]
    assert single.broadcast_object([1]) == [1]
    assert single.split(3).size == 1
    array = np.ones(3)
    single.start_send(array, 0, 1).wait()
    single.start_receive(array, 0, 1).wait()
    assert not array.any()
    memory = single.share_memory(24)
    assert (memory.nbytes, single.on_one_host) == (24, True)
    memory[:] = 1
    assert not single.share_memory(24).any()
