"""Several hosts: network namespaces of this machine, each with a name and an address of its own, joined by a cable."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.exchange.hdf5 import read_weights
from tests.parallel.conftest import MPIEXEC, PROGRAMS, QUICK
from tests.train.conftest import points, spec

__all__ = ["points", "spec"]

ENTER = """\
#!/bin/sh
# Called as ssh is, with options, a host and a command: runs it in the namespace that is the host.
while [ "${1#-}" != "$1" ]; do shift; done
case $1 in ADDRESS_0) host=HOST_0 ;; ADDRESS_1) host=HOST_1 ;; *) echo "no host $1" >&2; exit 1 ;; esac
shift
exec ip netns exec $host unshare --uts sh -c "hostname $host; $*"
"""


CARD = "net0"


def ip(*words: str) -> str:
    """What it says. Raises `CalledProcessError` where it is not allowed."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Hosts:
    """Two hosts, and what enters them."""

    names: list[str]
    addresses: list[str]
    script: Path

    def command(self, program: str, *words: str, workers: Sequence[int] = (2, 2)) -> list[str]:
        """What runs a program as so many workers of each host, started from the first one."""
        assert MPIEXEC is not None
        listed = ",".join(f"{address}:{count}" for address, count in zip(self.addresses, workers, strict=True))
        enter = ["-launcher", "ssh", "-launcher-exec", str(self.script), "-hosts", listed]
        start = [MPIEXEC.path, *enter, "-localhost", self.addresses[0], "-n", str(sum(workers))]
        return ["ip", "netns", "exec", self.names[0], *start, sys.executable, str(PROGRAMS / program), *words]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    if MPIEXEC is None or MPIEXEC.kind != "hydra":
        pytest.skip("hydra, MPICH's mpiexec, is not installed: pip install 'netspec[mpi]'")
    if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("network namespaces need root, iproute2 and util-linux")
    names = [f"ns{os.getpid()}{end}" for end in "ab"]
    found = Hosts(names, ["10.213.77.1", "10.213.77.2"], tmp_path / "enter")
    text = ENTER
    for number, (name, address) in enumerate(zip(names, found.addresses, strict=True)):
        text = text.replace(f"ADDRESS_{number}", address).replace(f"HOST_{number}", name)
    found.script.write_text(text)
    found.script.chmod(0o755)
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", CARD, "netns", names[0], "type", "veth", "peer", "name", CARD, "netns", names[1])
        for name, address in zip(names, found.addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", CARD)
            ip("-n", name, "link", "set", CARD, "up")
            ip("-n", name, "link", "set", "lo", "up")
        _wait_for_cards(names)
    except subprocess.CalledProcessError as error:
        _remove(names)
        pytest.skip(f"this machine makes no network namespaces: {error.stderr.strip()}")
    yield found
    _remove(names)


def _wait_for_cards(names: list[str]) -> None:
    """The kernel tells of a link that is up a moment later; MPI passes by what it does not tell of."""
    for name in names:
        until = time.monotonic() + 5
        while " UP " not in ip("-n", name, "-br", "link", "show", CARD) and time.monotonic() < until:
            time.sleep(0.05)


def _remove(names: list[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


OVER_THE_NETWORK = {"ucx": {"UCX_TLS": "tcp,self"}, "ofi": {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}}
"""MPICH's two ways to a network. It sees that the hosts are one machine, and would use its memory."""


def test_workers_of_two_hosts_agree(jobs, hosts: Hosts) -> None:
    job = jobs.start(hosts.command("hosts.py"), OVER_THE_NETWORK["ucx"])
    assert job.end() == 0, job.err
    different, received = job.out.split()
    assert int(different) == 2
    assert int(received) > 4_000_000  # at least one sum came to each host


def test_sums_by_host_are_those_of_all_at_once(jobs, hosts: Hosts) -> None:
    """Where one host has more workers than the other."""
    job = jobs.start(hosts.command("by_host.py", workers=(3, 2)), OVER_THE_NETWORK["ucx"])
    assert job.end() == 0, job.err
    assert job.out == "all agree\n"


def test_a_training_that_sums_by_host_goes_as_one_that_does_not(
    jobs, hosts: Hosts, spec: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    ways: list[dict[str, Any]] = [{"hierarchical": False}, {"hierarchical": True}]
    given = spec(max_steps=6, precision="float64")
    listed = [
        {
            "spec": {**given, "parallel": {"strategy": "all_reduce", **way}},
            "run_dir": str(tmp_path / str(number)),
            "device": "reference",
        }
        for number, way in enumerate(ways)
    ]
    (tmp_path / "list.json").write_text(json.dumps(listed))
    job = jobs.start(hosts.command("trainings.py", str(tmp_path / "list.json")), OVER_THE_NETWORK["ucx"])
    assert (job.end(), job.out) == (0, ""), job.err
    flat, by_host = (read_weights(tmp_path / run / "weights.h5").arrays for run in "01")
    for name, array in flat.items():
        np.testing.assert_allclose(by_host[name], array, rtol=0, atol=1e-12 * np.abs(array).max(), err_msg=name)
    starts, ends = zip(*(_ends((tmp_path / run / "log.jsonl").read_text()) for run in "01"), strict=True)
    assert [one["by_host"] for one in starts] == [False, True]
    sent = ends[1]["bytes_per_step"]
    # Beside: the wish to stop, gaps between arrays, parts that are not alike; each less than a line of memory.
    assert sent["expected"] <= sent["measured"] <= sent["expected"] + 2 * 64 * len(flat)


def _ends(log: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first event of a log, and the last."""
    lines = log.splitlines()
    return json.loads(lines[0]), json.loads(lines[-1])


@pytest.mark.parametrize("way", OVER_THE_NETWORK)
def test_a_cable_that_is_pulled_ends_the_job_on_both_hosts(jobs, hosts: Hosts, way: str) -> None:
    job = jobs.start(hosts.command("ends.py", "steps"), {**OVER_THE_NETWORK[way], **QUICK}).begun()
    assert job.line() == "steps"
    ip("-n", hosts.names[1], "link", "set", CARD, "down")
    assert job.end() not in (0, 130)
    who = r"rank [0-3] \(host \S+, pid \d+; last known: step \d+, [^)]+\)"
    assert re.search(rf"error: ({who} has not answered|MPI has not answered {who}) for \d s", job.err)
    assert "to go on: netspec train" in job.err
