"""What `netspec scale` predicts of this machine beside what happens on it: all-reduces, and trainings of ResNet-20.

The network between ranks of this machine is measured first (benchmarks.mpi_rank), and given to the model by hand. Each
rank computes with one thread. Where there are more ranks than cores, they are predicted to compute slower by so much.

    python -m benchmarks.bench_scaling [--quick] [--json]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.alternate import POOLS, ROOT, BenchmarkError
from benchmarks.results import Results
from netspec.distributed.cost_model.collectives import auto, seconds
from netspec.distributed.cost_model.networks import Cluster, Network

NET, BATCH = "resnet20", 64
SPEC = """\
netspec: 1
net: {net}
data:
  train: {{source: npz, path: data.npz, batch_size: {batch}, shuffle: true}}
solver: {{type: SGD, learning_rate: 0.01, momentum: 0.9}}
train: {{max_steps: {steps}, log_every: 1, checkpoint_every: 0}}
"""
PATIENCE = 300.0
"""Seconds that anything may take."""


def answer(command: list[str], folder: Path) -> str:
    """What a command prints, computing with one thread. Raises `BenchmarkError` where it fails."""
    environment = {**os.environ, **dict.fromkeys(POOLS, "1"), "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{' '.join(command)} took more than {PATIENCE:.0f} s") from None
    if done.returncode:
        raise BenchmarkError(done.stderr[-300:])
    return done.stdout


def mpiexec(ranks: int, *words: str) -> list[str]:
    """The command that runs a Python module as so many ranks. Raises `BenchmarkError` where there is no MPI."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else which("mpiexec")
    if found is None:
        raise BenchmarkError("there is no mpiexec: `pip install 'netspec[mpi]'`")
    return [found, "-n", str(ranks), sys.executable, "-m", *words]


def all_reduces(ranks: int, folder: Path, repeats: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The network as measured, and the all-reduces beside their prediction."""
    found = json.loads(answer(mpiexec(ranks, "benchmarks.mpi_rank", str(repeats)), folder))
    network = Network("measured", found["alpha"], found["beta"], "measured")
    cluster = Cluster(ranks, network, network, ranks)
    rows = [
        {
            "what": "all_reduce", "ranks": ranks, "bytes": int(nbytes), "measured": measured,
            "predicted": seconds(auto(float(nbytes), cluster), cluster, found["adding"]),
        }
        for nbytes, measured in found["all_reduce"].items()
    ]  # fmt: skip
    return found, rows


def trained(ranks: int, turn: int, folder: Path) -> float:
    """Seconds of a step of a training on so many ranks: the fastest of those that the log tells of."""
    run = folder / f"run-{ranks}-{turn}"
    words = "netspec", "train", str(folder / "train.yaml"), "--run-dir", str(run), "--device", "cpu"
    answer(mpiexec(ranks, *words) if ranks > 1 else [sys.executable, "-m", *words], folder)
    events = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    rates: list[float] = [one["samples_per_second"] for one in events if one["event"] == "log"]
    return BATCH / max(rates)


def predicted(
    counts: list[int], network: dict[str, Any], folder: Path, step: float | None = None
) -> dict[int, dict[str, Any]]:
    """What `netspec scale` says of steps with all-reduce, on one host that has a core for each rank.

    One rank alone takes `step` seconds; without that, what the command measures.
    """
    command = [
        sys.executable, "-m", "netspec", "scale", str(folder / "train.yaml"), "--strategy", "all_reduce", "--json",
        "--workers", ",".join(map(str, counts)), "--workers-per-host", str(max(counts)),
        "--within", f"alpha={network['alpha']}s,beta={network['beta']}s",
        *(["--step-time", f"{step}s"] if step is not None else []),
    ]  # fmt: skip
    return {one["workers"]: one for one in json.loads(answer(command, folder))["predictions"]}


def seconds_on(cores: int, found: dict[str, Any]) -> float:
    """A predicted step where ranks may have to share cores."""
    return float(found["compute_seconds"] * max(1.0, found["workers"] / cores) + found["exposed_seconds"])


def main() -> int:
    """Measure and predict; the exit status is 1 where anything failed."""
    options = report.parsed(report.parser(__doc__ or ""))
    results = Results("scaling", options, "mpi4py", "mpich")
    counts, cores = [1, 2, 4], report.cores()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        random = np.random.default_rng(0)
        images = random.standard_normal((8 * BATCH, 3, 32, 32)).astype(np.float32)
        np.savez(folder / "data.npz", image=images, label=random.integers(0, 10, 8 * BATCH).astype(np.int32))
        steps = 150
        text = SPEC.format(net=ROOT / "benchmarks" / "nets" / f"{NET}.yaml", batch=BATCH, steps=steps)
        (folder / "train.yaml").write_text(text, encoding="utf-8")
        try:
            network, rows = all_reduces(2, folder, 5 if options.quick else 20)
            for row in rows:
                results.add(row)
            expected = predicted(counts, network, folder)
        except BenchmarkError as error:
            results.fail(error, ranks=2)
            return results.end()
        steps_of: dict[int, list[float]] = {ranks: [] for ranks in counts}
        for turn in range(1 if options.quick else 3):  # in turn: what disturbs one disturbs the others too
            for ranks in counts:
                try:
                    steps_of[ranks].append(trained(ranks, turn, folder))
                except BenchmarkError as error:
                    results.fail(error, ranks=ranks, turn=turn)
        alone = predicted(counts, network, folder, min(steps_of[1])) if steps_of[1] else None
        for ranks, found in expected.items():
            if steps_of[ranks] and alone is not None:
                results.add({
                    "what": "training", "net": NET, "batch_size": BATCH, "ranks": ranks,
                    "measured": min(steps_of[ranks]), "predicted": seconds_on(cores, found),
                    "from_one_rank": seconds_on(cores, alone[ranks]), "exposed": found["exposed_seconds"],
                })  # fmt: skip
    return results.end()


if __name__ == "__main__":
    sys.exit(main())
