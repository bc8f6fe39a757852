"""How long the command line takes to answer: the start-up of `netspec --help` and `netspec check`.

Each command runs in a process of its own, as a user's does. Prints the median of some runs and its share of the
time the project allows itself; exits 1 if a command fails.

    python benchmarks/bench_startup.py [runs]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

ROOT = Path(__file__).parents[1]
NETSPEC = Path(sys.executable).with_name("netspec")
LIMITS = {  # command → seconds it may take
    ("--help",): 0.3,
    ("check", "model_zoo/lenet_mnist/train.yaml"): 0.6,
}


def seconds(command: list[str]) -> float:
    """Wall time of one run."""
    start = perf_counter()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return perf_counter() - start


def main(runs: int = 9) -> int:
    """Measure every command after one run that warms the file cache."""
    bare = median(seconds([sys.executable, "-c", ""]) for _ in range(runs))
    print(f"{'python alone':<48} {bare:6.3f} s")
    for words, limit in LIMITS.items():
        command = [str(NETSPEC), *words]
        try:
            seconds(command)
            took = median(seconds(command) for _ in range(runs))
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"netspec {' '.join(words)}: {error}", file=sys.stderr)
            return 1
        print(f"{'netspec ' + ' '.join(words):<48} {took:6.3f} s   {took / limit:4.2f} of the {limit} s allowed")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
