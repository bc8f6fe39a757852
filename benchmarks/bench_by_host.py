"""Sums over the workers of two hosts, all at once and host by host: seconds, beside the bytes that leave the hosts.

The hosts are network namespaces of this machine, which takes root, joined by a cable through which no more than --rate
passes; within a host MPI uses shared memory. Both ways take turns; times are medians.

    python -m benchmarks.bench_by_host [--rate 300mbit] [--quick] [--json]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.alternate import POOLS, ROOT, BenchmarkError
from benchmarks.namespaces import OVER_THE_NETWORK, Hosts, NoHostsError, two_hosts
from benchmarks.results import Results
from netspec.distributed.launcher.mpi_discovery import clean_environment

WORKERS = ((2, 2), (3, 2), (3, 3), (4, 4))
"""Of each host."""
PATIENCE = 120.0
"""Seconds that one of them may take."""


def measured(hosts: Hosts, workers: tuple[int, int], repeats: int) -> list[dict[str, Any]]:
    """Sums of some sizes on so many workers of each host. Raises `BenchmarkError`."""
    command = hosts.command([sys.executable, "-m", "benchmarks.by_host_rank", str(repeats)], workers)
    environment = {
        **clean_environment(os.environ), **OVER_THE_NETWORK["ucx"], **dict.fromkeys(POOLS, "1"), "PYTHONPATH": str(ROOT)
    }  # fmt: skip
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"it took more than {PATIENCE:.0f} s") from None
    if done.returncode:
        raise BenchmarkError(done.stderr[-300:])
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def main() -> int:
    """Measure; the exit status is 1 where anything failed."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--rate", default="300mbit", help="what the cable carries in either direction, as `tc` has it")
    options = report.parsed(parser)
    results = Results("by_host", options, "mpi4py", "mpich")
    with tempfile.TemporaryDirectory() as folder:
        try:
            with two_hosts(Path(folder)) as hosts:
                hosts.slow_down(options.rate)
                for workers in WORKERS[2:3] if options.quick else WORKERS:
                    name = " + ".join(map(str, workers))
                    try:
                        for one in measured(hosts, workers, 3 if options.quick else 9):
                            results.add({"workers": name, **one})
                    except BenchmarkError as error:
                        results.fail(error, workers=name)
        except (NoHostsError, subprocess.CalledProcessError) as error:
            results.fail(BenchmarkError(str(error)))
    return results.end()


if __name__ == "__main__":
    sys.exit(main())
