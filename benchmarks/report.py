"""What the benchmarks share: options, the machine in words, tables, geometric means."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.alternate import BenchmarkError
from benchmarks.catalogue import NETS, Net


def parser(description: str) -> argparse.ArgumentParser:
    """The options that all benchmarks take."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="a rough answer soon")
    made.add_argument("--json", action="store_true", help="print JSON instead of a table")
    made.add_argument("--threads", type=int, default=cores(), help="threads of every subject (default: all cores)")
    made.add_argument(
        "--passive",
        action="store_true",
        help="let threads of all subjects sleep where they wait: on a machine that other work shares, one that spins "
        "keeps the one it waits for from running",
    )
    made.add_argument("--nets", help=f"names between commas; of {', '.join(NETS)}")
    return made


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of this command line; how threads wait is put into the environment, which subjects inherit."""
    options = parser.parse_args()
    if options.passive:
        os.environ["OMP_WAIT_POLICY"] = "passive"
    return options


def chosen_nets(options: argparse.Namespace) -> list[Net]:
    """The nets that `--nets` and `--quick` ask for. Raises `BenchmarkError` for a name that is none."""
    if not options.nets:
        return [net for net in NETS.values() if net.light or not options.quick]
    names = options.nets.split(",")
    unknown = [name for name in names if name not in NETS]
    if unknown:
        raise BenchmarkError(f"no such net: {', '.join(unknown)} (there are {', '.join(NETS)})")
    return [NETS[name] for name in names]


def need(*packages: str) -> None:
    """Raise `BenchmarkError` if a peer is not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise BenchmarkError(
            f"{', '.join(missing)} is not installed here: `make bench` puts the peers into .venv-bench"
        )


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def heading(about: dict[str, Any], options: argparse.Namespace) -> str:
    """The machine in a line."""
    waiting = ", waiting passively" if options.passive else ""
    return (
        f"{about['processor']}, {options.threads} of {about['cores']} cores{waiting}; load before {about['load'][0]}; "
        f"{about['when']}\n"
    )


def machine(*packages: str) -> dict[str, Any]:
    """When and on what something was measured, and the versions of what was."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="minutes"),
        "processor": _processor(),
        "cores": cores(),
        "load": [round(one, 2) for one in os.getloadavg()],
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


def geometric_mean(ratios: Iterable[float]) -> float:
    """exp of the mean logarithm."""
    logarithms = [log(ratio) for ratio in ratios]
    return exp(sum(logarithms) / len(logarithms))


def say(text: str) -> None:
    """What goes on, on stderr."""
    print(text, file=sys.stderr, flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table in Markdown, its columns aligned; the first holds names, the others numbers."""
    cells = [list(columns), *map(list, rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for row in [cells[0], rule, *cells[1:]]:
        padded = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        print(f"| {' | '.join(padded)} |")


def print_json(data: Any) -> None:
    """One JSON value on stdout."""
    print(json.dumps(data, indent=2))


def milliseconds(seconds: float) -> str:
    """Three digits or more."""
    ms = 1000 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}" if ms >= 1 else f"{ms:.3f}"


def megabytes(nbytes: float) -> str:
    """Whole ones."""
    return f"{nbytes / 1e6:.0f}"


def run(main: Any) -> int:
    """Exit status of a benchmark: 1 with a message where a subject failed."""
    try:
        main()
    except BenchmarkError as error:
        say(f"error: {error}")
        return 1
    return 0
