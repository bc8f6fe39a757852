"""MNIST to 99 %: the wall time of `make train`'s command against the same recipe in PyTorch, from import to result.

    python -m benchmarks.bench_mnist [--quick] [--json]

Each is a command of its own, run in turn; both must reach 99 % on the test set. The recipe is that of
`model_zoo/lenet_mnist`: four epochs, batches of 64, cosine decay, after each epoch a test and a checkpoint. The ratio
is netspec's time divided by the faster of PyTorch's two, eager and channels_last: less is better here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks import report
from benchmarks.alternate import POOLS, ROOT, BenchmarkError
from benchmarks.results import Results

ENOUGH = 0.99
SPEC = Path("model_zoo/lenet_mnist/train.yaml")


def main() -> int:
    """Run all of them in turn, once with `--quick`, else three times."""
    options = report.parsed(report.parser(__doc__ or ""))
    report.need("torch")
    results = Results("mnist", options, "torch", "numpy", "numba", "onednn-cpu-gomp")
    peer = [sys.executable, "benchmarks/torch_mnist.py", "--threads", str(options.threads)]
    commands = {
        "netspec": [sys.executable, "-m", "netspec", "train", str(SPEC), "--device", "cpu", "--json"],
        "eager": peer,
        "channels_last": [*peer, "--channels-last"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    accuracies: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(1 if options.quick else 3):
        for name, command in commands.items():
            try:
                took, accuracy = _run(name, command, options.threads)
            except BenchmarkError as error:
                results.fail(error, subject=name)
                continue
            report.say(f"{name}: {took:.1f} s, accuracy {accuracy:.4f}")
            seconds[name].append(took)
            accuracies[name].append(accuracy)
    for name, took_all in seconds.items():
        if took_all:
            found = {"seconds": took_all, "median": median(took_all), "accuracies": accuracies[name]}
            results.add({"subject": name, **found})
    return results.end()


def _run(name: str, command: list[str], threads: int) -> tuple[float, float]:
    """Seconds, and the accuracy on the test set. Raises `BenchmarkError` where it is too low or the command fails."""
    environment = {**os.environ, **dict.fromkeys(POOLS, str(threads))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once for a machine, not at every start
    with tempfile.TemporaryDirectory() as folder:
        if name == "netspec":
            command = [*command, "--run-dir", f"{folder}/run"]
        else:
            command = [*command, "--folder", folder]
        start = perf_counter()
        made = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        took = perf_counter() - start
    if made.returncode:
        raise BenchmarkError(f"{name} ended with status {made.returncode}")
    accuracy = _accuracy(made.stdout)
    if accuracy < ENOUGH:
        raise BenchmarkError(f"{name} reached {accuracy:.4f} only")
    return took, accuracy


def _accuracy(said: str) -> float:
    """The last accuracy in what a command printed: lines of JSON, or `accuracy 0.99`."""
    found = 0.0
    for line in said.splitlines():
        if line.startswith("accuracy "):
            found = float(line.split()[1])
        elif line.startswith("{"):
            found = json.loads(line).get("metrics", {}).get("accuracy", found)
    return found


if __name__ == "__main__":
    sys.exit(report.run(main))
