"""Shared by the benchmarks: options, a description of the machine, and progress messages."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.alternate import BenchmarkError
from benchmarks.catalogue import NETS, Net


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--quick", action="store_true", help="measure roughly, but quickly")
    result.add_argument("--json", action="store_true", help="print JSON instead of a table")
    result.add_argument(
        "--output", help="also write the JSON to this file, after each result; benchmarks.render reads it"
    )
    result.add_argument("--threads", type=int, default=cores(), help="use this many threads per subject [all cores]")
    result.add_argument(
        "--passive",
        action="store_true",
        help="let waiting threads of all subjects sleep: on a shared machine, a spinning thread may keep the one it "
        "waits for from running",
    )
    result.add_argument("--nets", help=f"measure these, separated by commas: {', '.join(NETS)} [all]")
    return result


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line. `--passive` is put into the environment, which subjects inherit."""
    options = parser.parse_args()
    if options.passive:
        os.environ["OMP_WAIT_POLICY"] = "passive"
    return options


def chosen_nets(options: argparse.Namespace) -> list[Net]:
    """Return the nets that `--nets` selects, by default all. Raises `BenchmarkError` for an unknown name."""
    if not options.nets:
        return list(NETS.values())
    names = options.nets.split(",")
    unknown = [name for name in names if name not in NETS]
    if unknown:
        raise BenchmarkError(f"no such net: {', '.join(unknown)} (there are {', '.join(NETS)})")
    return [NETS[name] for name in names]


def require(*packages: str) -> None:
    """Raise `BenchmarkError` if a peer is not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise BenchmarkError(f"{', '.join(missing)} is not installed: `make bench` installs the peers into .venv-bench")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> list[float]:
    """Return the load averages of 1, 5 and 15 minutes."""
    return [round(average, 2) for average in os.getloadavg()]


def machine(*packages: str) -> dict[str, Any]:
    """Return date, machine, and the versions of the measured packages."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="minutes"),
        "processor": _processor(),
        "cores": cores(),
        "load": load(),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": {name: _version(name) for name in packages},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def say(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def run(main: Callable[[], int]) -> int:
    """Return the exit status of a benchmark: its own, or 1 with a message if it cannot run."""
    try:
        return main()
    except BenchmarkError as error:
        say(f"error: {error}")
        return 1
