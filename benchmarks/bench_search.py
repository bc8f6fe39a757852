"""Measures how many trials of a search run in a minute: one process each, in one process, and in batches.

Trials train a small net on a synthetic table and differ in the learning rate; or also in weight decay; or also in the
seed. As processes, each is one `netspec train`; in one process, a search with `batch: 1`; in batches, one with
`batch: 8`. All ways run the same number of steps. Prints the medians of the wall time and of the processor time of all
threads, of which other programs disturb the second less. A first round, which is not counted, fills the cache of
kernels.

python -m benchmarks.bench_search [--quick] [--json]
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.alternate import ROOT, BenchmarkError
from benchmarks.results import Results

NETSPEC = [sys.executable, "-m", "netspec"]
TRIALS = 8
BATCH = 8
ROWS, BATCH_SIZE, EPOCHS = 6400, 64, 10
RATE, DECAY, SEED = "solver.learning_rate", "solver.weight_decay", "train.seed"
SEARCHES = {
    "learning rate": (RATE,),
    "learning rate, weight decay": (RATE, DECAY),
    "learning rate, weight decay, seed": (RATE, DECAY, SEED),
}
"""The searched fields, by their names in the table."""
VALUES = {
    RATE: "{low: 1.0e-4, high: 0.1, log: true}", DECAY: "{low: 1.0e-4, high: 0.1, log: true}",
    SEED: "{low: 1, high: 1000000}",
}  # fmt: skip
TRAIN = f"""\
netspec: 1
net:
  netspec: 1
  name: table
  inputs: {{features: {{shape: [20]}}, label: {{shape: [], dtype: int32}}}}
  layers:
    - {{type: Dense, units: 64, activation: relu}}
    - {{type: Dropout, rate: 0.3}}
    - {{type: Dense, units: 32, activation: relu}}
    - {{name: logits, type: Dense, units: 2}}
  losses: [{{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}}]
data:
  train:
    source: csv
    path: table.csv
    header: true
    label: label
    columns: {{{", ".join(f"x{index}: {{type: numeric, normalization: standard}}" for index in range(20))},
      label: {{type: categorical, vocabulary: [a, b]}}}}
    split: {{validation: 0.2}}
    batch_size: {BATCH_SIZE}
    shuffle: true
solver: {{type: AdamW, learning_rate: 0.001}}
train: {{max_epochs: {EPOCHS}}}
"""


def write_files(folder: Path) -> None:
    """Write the table, and the training file without its search."""
    numbers = random.Random(0)  # not for cryptography
    lines = [",".join([*(f"x{index}" for index in range(20)), "label"])]
    for _ in range(ROWS):
        row = [numbers.gauss(0, 1) for _ in range(20)]
        lines.append(",".join([*(f"{value:.3f}" for value in row), "a" if row[0] * row[1] > 0 else "b"]))
    (folder / "table.csv").write_text("\n".join(lines))
    (folder / "train.yaml").write_text(TRAIN)


def timed(commands: list[list[str]], folder: Path) -> tuple[float, float]:
    """Return the wall time and the processor time of commands that run one after another."""
    wall, before = time.perf_counter(), os.times()
    for command in commands:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if result.returncode:
            raise BenchmarkError(result.stderr.strip()[-300:])
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - wall, processor


def commands(way: str, fields: tuple[str, ...], run: str) -> list[list[str]]:
    """Return the commands that run all trials in one of three ways."""
    if way == "processes":
        values = {RATE: "0.00{}", DECAY: "0.0{}", SEED: "{}"}
        return [
            [*NETSPEC, "train", "train.yaml", "--run-dir", f"{run}-{trial}",
             *(f"{field}={values[field].format(trial + 1)}" for field in fields)]
            for trial in range(TRIALS)
        ]  # fmt: skip
    searched = ", ".join(f"{field}: {VALUES[field]}" for field in fields)
    size = BATCH if way == "batches" else 1
    search = f"search={{trials: {TRIALS}, sampler: random, pruner: none, batch: {size}, fields: {{{searched}}}}}"
    return [[*NETSPEC, "search", "train.yaml", search, "--run-dir", run]]


def main() -> int:
    """Measure the ways in turns."""
    options = report.parsed(report.parser(__doc__ or ""))
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    results = Results("search", options)
    rounds = 1 if options.quick else 3
    for name, fields in SEARCHES.items():
        seconds: dict[str, list[tuple[float, float]]] = {"processes": [], "one process": [], "batches": []}
        with tempfile.TemporaryDirectory() as temporary:
            write_files(Path(temporary))
            try:
                for round_ in range(rounds + 1):
                    for way, measured in seconds.items():
                        took = timed(commands(way, fields, f"{way}-{round_}".replace(" ", "-")), Path(temporary))
                        measured += [took] * bool(round_)
            except BenchmarkError as error:
                results.fail(error, search=name)
                continue
        medians = {way: [median(column) for column in zip(*measured, strict=True)] for way, measured in seconds.items()}
        results.add({
            "search": name, "trials": TRIALS, "batch": BATCH,
            "wall": {way: values[0] for way, values in medians.items()},
            "processor": {way: values[1] for way, values in medians.items()},
        })  # fmt: skip
    return results.end()


if __name__ == "__main__":
    sys.exit(report.run(main))
