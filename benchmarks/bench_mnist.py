"""MNIST to 99 %: the wall time of `make train`'s command against the same recipe in PyTorch, from import to result.

    python -m benchmarks.bench_mnist [--quick] [--json]

Each is a command of its own, run in turn; both must reach 99 % on the test set. The recipe is that of
`model_zoo/lenet_mnist`: four epochs, batches of 64, cosine decay. The ratio is netspec's time divided by the faster of
PyTorch's two, eager and channels_last: less is better here.
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

ENOUGH = 0.99
SPEC = Path("model_zoo/lenet_mnist/train.yaml")


def main() -> None:
    """Run all of them in turn, once with `--quick`, else three times."""
    options = report.parsed(report.parser(__doc__ or ""))
    report.need("torch")
    about = report.machine("torch", "numpy", "numba", "onednn-cpu-gomp")
    peer = [sys.executable, "benchmarks/torch_mnist.py", "--threads", str(options.threads)]
    commands = {
        "netspec": [sys.executable, "-m", "netspec", "train", str(SPEC), "--json"],
        "eager": peer,
        "channels_last": [*peer, "--channels-last"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    accuracies: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(1 if options.quick else 3):
        for name, command in commands.items():
            took, accuracy = _run(name, command, options.threads)
            report.say(f"{name}: {took:.1f} s, accuracy {accuracy:.4f}")
            seconds[name].append(took)
            accuracies[name].append(accuracy)
    medians = {name: median(one) for name, one in seconds.items()}
    ratio = medians["netspec"] / min(medians["eager"], medians["channels_last"])
    if options.json:
        found = {"seconds": seconds, "medians": medians, "accuracies": accuracies, "ratio": ratio}
        report.print_json({"machine": about, "threads": options.threads, "mnist": found})
        return
    print(report.heading(about, options))
    rows = [[name, f"{medians[name]:.1f}", f"{min(accuracies[name]):.4f}"] for name in commands]
    report.print_table(["MNIST, 4 epochs", "s", "accuracy"], rows)
    print(f"\nratio: {ratio:.2f}")


def _run(name: str, command: list[str], threads: int) -> tuple[float, float]:
    """Seconds, and the accuracy on the test set. Raises `BenchmarkError` where it is too low or the command fails."""
    environment = {**os.environ, **dict.fromkeys(POOLS, str(threads))}
    with tempfile.TemporaryDirectory() as folder:
        if name == "netspec":
            command = [*command, "--run-dir", f"{folder}/run"]
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
