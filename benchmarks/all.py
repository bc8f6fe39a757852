"""Every benchmark, one after another, each with its results in a file; then all tables.

    python -m benchmarks.all [--output build/bench] [--only training,mnist] [options of the benchmarks]

What `--quick`, `--passive`, `--threads` and `--nets` mean, each benchmark says. One that fails keeps no other from
running. The tables are printed again at any time by `python -m benchmarks.render build/bench/*.json`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.alternate import ROOT
from benchmarks.report import say

BENCHMARKS = {
    "startup": ["bench_startup"],
    "mnist": ["bench_mnist"],
    "training": ["bench_training"],
    "training_bfloat16": ["bench_training", "--precision", "bfloat16"],
    "inference": ["bench_inference"],
    "kernels": ["bench_kernels"],
    "loader": ["bench_loader"],
    "sources": ["bench_sources"],
    "memory": ["bench_memory"],
    "scaling": ["bench_scaling"],
    "strategies": ["bench_strategies"],
    "workers": ["bench_workers"],
}
"""The name of the results of each, and its module with what it is told."""


def main() -> int:
    """Run them all; the exit status is 1 where anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench", help="the folder of the results")
    parser.add_argument(
        "--only", default=",".join(BENCHMARKS), help=f"names between commas; of {', '.join(BENCHMARKS)}"
    )
    options, rest = parser.parse_known_args()
    names = options.only.split(",")
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    failed = []
    for name in names:
        module, *told = BENCHMARKS[name]
        file = options.output.resolve() / f"{name}.json"
        file.unlink(missing_ok=True)
        say(f"== {name}")
        command = [sys.executable, "-m", f"benchmarks.{module}", *told, *rest, "--output", str(file)]
        if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode:
            failed.append(name)
    files = [file for name in names if (file := options.output.resolve() / f"{name}.json").exists()]
    if files:
        subprocess.run([sys.executable, "-m", "benchmarks.render", *map(str, files)], cwd=ROOT, check=True)
    if failed:
        say(f"failed, in part or in whole: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
