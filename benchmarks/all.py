"""Runs all benchmarks one after another, writes the results of each to a file, and prints all tables.

python -m benchmarks.all [--output build/bench] [--only training,mnist] [options of the benchmarks]

See each benchmark for `--quick`, `--passive`, `--threads` and `--nets`. If one fails, the others still run. To print
the tables again, run `python -m benchmarks.render build/bench/*.json`.
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
    "overhead": ["bench_overhead"],
    "training": ["bench_training"],
    "training_bfloat16": ["bench_training", "--precision", "bfloat16"],
    "convnets": ["bench_convnets"],
    "inference": ["bench_inference"],
    "generation": ["bench_generation"],
    "kernels": ["bench_kernels"],
    "loader": ["bench_loader"],
    "sources": ["bench_sources"],
    "memory": ["bench_memory"],
    "scaling": ["bench_scaling"],
    "search": ["bench_search"],
    "serving": ["bench_serving"],
    "strategies": ["bench_strategies"],
    "workers": ["bench_workers"],
}
"""Name of the results of each benchmark, its module and its arguments."""


def main() -> int:
    """Run all benchmarks; the exit status is 1 if any of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench", help="write results to this folder")
    parser.add_argument(
        "--only", default=",".join(BENCHMARKS), help=f"run these, separated by commas: {', '.join(BENCHMARKS)} [all]"
    )
    options, remaining = parser.parse_known_args()
    names = options.only.split(",")
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    failed = []
    for name in names:
        module, *arguments = BENCHMARKS[name]
        file = options.output.resolve() / f"{name}.json"
        file.unlink(missing_ok=True)
        say(f"== {name}")
        command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, *remaining, "--output", str(file)]
        if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode:
            failed.append(name)
    files = [file for name in names if (file := options.output.resolve() / f"{name}.json").exists()]
    if files:
        subprocess.run([sys.executable, "-m", "benchmarks.render", *map(str, files)], cwd=ROOT, check=True)
    if failed:
        say(f"failed, partly or completely: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
