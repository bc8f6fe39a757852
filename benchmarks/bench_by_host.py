"""Compares all-reduces over two hosts, flat and hierarchical: seconds, and bytes that leave the hosts.

The hosts are network namespaces of this machine, which requires root, joined by a link limited to --rate; within a host
MPI uses shared memory. Both variants take turns; times are medians.

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
from netspec.backends.launcher_env import clean_environment

WORKERS = ((2, 2), (3, 2), (3, 3), (4, 4))
"""Number of workers on each host."""
PATIENCE = 120.0
"""Seconds that one measurement may take."""


def measured(hosts: Hosts, workers: tuple[int, int], repeats: int) -> list[dict[str, Any]]:
    """Measure all-reduces of several sizes with these numbers of workers per host. Raises `BenchmarkError`."""
    command = hosts.command([sys.executable, "-m", "benchmarks.by_host_rank", str(repeats)], workers)
    environment = {
        **clean_environment(os.environ), **OVER_THE_NETWORK["ucx"], **dict.fromkeys(POOLS, "1"), "PYTHONPATH": str(ROOT)
    }  # fmt: skip
    try:
        process = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"it took more than {PATIENCE:.0f} s") from None
    if process.returncode:
        raise BenchmarkError(process.stderr[-300:])
    rows: list[dict[str, Any]] = json.loads(process.stdout)
    return rows


def main() -> int:
    """Measure; the exit status is 1 if anything failed."""
    parser = report.parser(__doc__ or "")
    parser.add_argument(
        "--rate", default="300mbit", help="limit the link in either direction, in the units of `tc` [300mbit]"
    )
    options = report.parsed(parser)
    results = Results("by_host", options, "mpi4py", "mpich")
    with tempfile.TemporaryDirectory() as folder:
        try:
            with two_hosts(Path(folder)) as hosts:
                hosts.slow_down(options.rate)
                for workers in WORKERS[2:3] if options.quick else WORKERS:
                    name = " + ".join(map(str, workers))
                    try:
                        for worker in measured(hosts, workers, 3 if options.quick else 9):
                            results.add({"workers": name, **worker})
                    except BenchmarkError as error:
                        results.fail(error, workers=name)
        except (NoHostsError, subprocess.CalledProcessError) as error:
            results.fail(BenchmarkError(str(error)))
    return results.end()


if __name__ == "__main__":
    sys.exit(main())
