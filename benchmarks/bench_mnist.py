"""MNIST to 99 %: compares the wall time of `make train`'s command with the same recipe in PyTorch.

python -m benchmarks.bench_mnist [--quick] [--json]

Each is a separate command, run in turn, from import to result; both must reach 99 % on the test set. The recipe is that
of `model_zoo/lenet_mnist`: four epochs, batches of 64, cosine decay, a test and a checkpoint after each epoch. The
ratio is netspec's time divided by the faster of PyTorch's two, eager and channels_last: lower is better.
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
    """Run all commands in turn, once with `--quick`, else three times."""
    options = report.parsed(report.parser(__doc__ or ""))
    report.require("torch")
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
            row = {"seconds": took_all, "median": median(took_all), "accuracies": accuracies[name]}
            results.add({"subject": name, **row})
    return results.end()


def _run(name: str, command: list[str], threads: int) -> tuple[float, float]:
    """Return seconds and test accuracy. Raises `BenchmarkError` if the accuracy is too low or the command fails."""
    environment = {**os.environ, **dict.fromkeys(POOLS, str(threads))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once per machine, not at every start
    with tempfile.TemporaryDirectory() as folder:
        if name == "netspec":
            command = [*command, "--run-dir", f"{folder}/run"]
        else:
            command = [*command, "--folder", folder]
        start = perf_counter()
        process = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        took = perf_counter() - start
    if process.returncode:
        raise BenchmarkError(f"{name} ended with status {process.returncode}")
    accuracy = _accuracy(process.stdout)
    if accuracy < ENOUGH:
        raise BenchmarkError(f"{name} reached {accuracy:.4f} only")
    return took, accuracy


def _accuracy(output: str) -> float:
    """Return the last accuracy that a command printed, in lines of JSON or as `accuracy 0.99`."""
    accuracy = 0.0
    for line in output.splitlines():
        if line.startswith("accuracy "):
            accuracy = float(line.split()[1])
        elif line.startswith("{"):
            accuracy = json.loads(line).get("metrics", {}).get("accuracy", accuracy)
    return accuracy


if __name__ == "__main__":
    sys.exit(report.run(main))
