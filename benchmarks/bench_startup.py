"""Measures the start-up of the command line: `netspec --help` and `netspec check`.

Each command runs in its own process, as a user's does. Prints the median of several runs and the limit that the project
sets itself; exits 1 if a command fails.

python -m benchmarks.bench_startup [--quick] [--json]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks import report
from benchmarks.alternate import ROOT, BenchmarkError
from benchmarks.results import Results

NETSPEC = Path(sys.executable).with_name("netspec")
LIMITS = {  # limits in seconds, by command
    ("--help",): 0.3,
    ("check", "model_zoo/lenet_mnist/train.yaml"): 0.6,
}


def seconds(command: list[str]) -> float:
    """Return the wall time of one run."""
    start = perf_counter()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return perf_counter() - start


def main() -> int:
    """Measure every command after one run that warms the file cache."""
    options = report.parsed(report.parser(__doc__ or ""))
    results = Results("startup", options)
    runs = 3 if options.quick else 9
    alone = median(seconds([sys.executable, "-c", ""]) for _ in range(runs))
    results.add({"command": "python alone", "seconds": alone, "limit": None})
    for words, limit in LIMITS.items():
        command, name = [str(NETSPEC), *words], f"netspec {' '.join(words)}"
        try:
            seconds(command)
            took = median(seconds(command) for _ in range(runs))
            results.add({"command": name, "seconds": took, "limit": limit})
        except (OSError, subprocess.CalledProcessError) as error:
            results.fail(BenchmarkError(str(error)), command=name)
    return results.end()


if __name__ == "__main__":
    sys.exit(report.run(main))
