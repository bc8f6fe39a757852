"""Several hosts, simulated by network namespaces, each with its own name and address, joined by a virtual cable."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.namespaces import CARD, OVER_THE_NETWORK, Hosts, NoHostsError, ip, two_hosts
from netspec.exchange.formats.native.hdf5 import read_weights
from tests.distributed.conftest import PROGRAMS, QUICK
from tests.training.conftest import points, spec

pytestmark = pytest.mark.slow

__all__ = ["points", "spec"]


def command(hosts: Hosts, program: str, *words: str) -> list[str]:
    """Return the command that runs a test program as two workers of each host."""
    return hosts.command([sys.executable, str(PROGRAMS / program), *words])


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with ExitStack() as stack:
        try:
            actual = stack.enter_context(two_hosts(tmp_path))
        except NoHostsError as error:
            pytest.skip(str(error))
        yield actual


def test_workers_of_two_hosts_agree(jobs, hosts: Hosts) -> None:
    job = jobs.start(command(hosts, "hosts.py"), OVER_THE_NETWORK["ucx"])
    assert job.end() == 0, job.err
    different, received = job.out.split()
    assert int(different) == 2
    assert int(received) > 4_000_000  # at least one array was sent to each host


@pytest.mark.exhaustive
def test_hierarchical_training_equals_flat_training(
    jobs, hosts: Hosts, spec: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    strategies: list[dict[str, Any]] = [{"hierarchical": False}, {"hierarchical": True}]
    train_spec = spec(max_steps=6, precision="float64")
    listed = [
        {
            "spec": {**train_spec, "parallel": {"strategy": "all_reduce", **parallel}},
            "run_dir": str(tmp_path / str(number)),
            "device": "reference",
        }
        for number, parallel in enumerate(strategies)
    ]
    (tmp_path / "list.json").write_text(json.dumps(listed))
    job = jobs.start(command(hosts, "trainings.py", str(tmp_path / "list.json")), OVER_THE_NETWORK["ucx"])
    assert (job.end(), job.out) == (0, ""), job.err
    flat, by_host = (read_weights(tmp_path / run / "weights.h5").arrays for run in "01")
    for name, array in flat.items():
        np.testing.assert_allclose(by_host[name], array, rtol=0, atol=1e-12 * np.abs(array).max(), err_msg=name)
    starts, ends = zip(*(_ends((tmp_path / run / "log.jsonl").read_text()) for run in "01"), strict=True)
    assert [start["by_host"] for start in starts] == [False, True]
    sent = ends[1]["bytes_per_step"]
    # Stop votes, gaps between arrays, and uneven parts add less than a cache line each.
    assert sent["expected"] <= sent["measured"] <= sent["expected"] + 2 * 64 * len(flat)


def _ends(log: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first and the last event of a log."""
    lines = log.splitlines()
    return json.loads(lines[0]), json.loads(lines[-1])


@pytest.mark.parametrize("parallel", ["ofi", pytest.param("ucx", marks=pytest.mark.exhaustive)])
def test_a_cable_that_is_pulled_ends_the_job_on_both_hosts(jobs, hosts: Hosts, parallel: str) -> None:
    job = jobs.start(command(hosts, "ends.py", "steps"), {**OVER_THE_NETWORK[parallel], **QUICK}).begun()
    assert job.line() == "steps"
    ip("-n", hosts.names[1], "link", "set", CARD, "down")
    assert job.end() not in (0, 130)
    rank = r"rank [0-3] \(host \S+, pid \d+; last known: step \d+, [^)]+\)"
    assert re.search(rf"error: ({rank} has not answered|MPI has not answered {rank}) for \d s", job.err)
    assert "to continue: netspec train" in job.err
