"""Compares predictions of `netspec scale` with measurements on this machine: all-reduces, and training of ResNet-20.

The network between ranks of this machine is measured first (benchmarks.mpi_rank) and passed to the model. Each rank
computes with one thread. If there are more ranks than cores, their computing time is scaled accordingly.

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
"""Seconds that any command may take."""


def answer(command: list[str], folder: Path) -> str:
    """Return the output of a command that computes with one thread. Raises `BenchmarkError` if it fails."""
    environment = {**os.environ, **dict.fromkeys(POOLS, "1"), "PYTHONPATH": str(ROOT)}
    try:
        process = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{' '.join(command)} took more than {PATIENCE:.0f} s") from None
    if process.returncode:
        raise BenchmarkError(process.stderr[-300:])
    return process.stdout


def mpiexec(ranks: int, *words: str) -> list[str]:
    """Return the command that runs a Python module on `ranks` ranks. Raises `BenchmarkError` if there is no MPI."""
    sibling = Path(sys.executable).with_name("mpiexec")
    mpiexec_path = str(sibling) if sibling.exists() else which("mpiexec")
    if mpiexec_path is None:
        raise BenchmarkError("there is no mpiexec: `pip install -e '.[mpi]'`")
    return [mpiexec_path, "-n", str(ranks), sys.executable, "-m", *words]


def all_reduces(ranks: int, folder: Path, repeats: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the measured network, and the all-reduces with their predictions."""
    network_fit = json.loads(answer(mpiexec(ranks, "benchmarks.mpi_rank", str(repeats)), folder))
    network = Network("measured", network_fit["alpha"], network_fit["beta"], "measured")
    cluster = Cluster(ranks, network, network, ranks)
    rows = [
        {
            "what": "all_reduce", "ranks": ranks, "bytes": int(nbytes), "measured": measured,
            "predicted": seconds(auto(float(nbytes), cluster), cluster, network_fit["adding"]),
        }
        for nbytes, measured in network_fit["all_reduce"].items()
    ]  # fmt: skip
    return network_fit, rows


def trained(ranks: int, turn: int, folder: Path) -> float:
    """Return the seconds of the fastest logged step of a training on `ranks` ranks."""
    run = folder / f"run-{ranks}-{turn}"
    words = "netspec", "train", str(folder / "train.yaml"), "--run-dir", str(run), "--device", "cpu"
    answer(mpiexec(ranks, *words) if ranks > 1 else [sys.executable, "-m", *words], folder)
    events = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    rates: list[float] = [event["samples_per_second"] for event in events if event["event"] == "log"]
    return BATCH / max(rates)


def predicted(
    counts: list[int], network: dict[str, Any], folder: Path, step: float | None = None
) -> dict[int, dict[str, Any]]:
    """Return `netspec scale`'s prediction for all-reduce on one host that has a core for each rank.

    A single rank takes `step` seconds; by default, the value that the command measures.
    """
    command = [
        sys.executable, "-m", "netspec", "scale", str(folder / "train.yaml"), "--strategy", "all_reduce", "--json",
        "--workers", ",".join(map(str, counts)), "--workers-per-host", str(max(counts)),
        "--within", f"alpha={network['alpha']}s,beta={network['beta']}s",
        *(["--step-time", f"{step}s"] if step is not None else []),
    ]  # fmt: skip
    return {prediction["workers"]: prediction for prediction in json.loads(answer(command, folder))["predictions"]}


def seconds_on(cores: int, prediction: dict[str, Any]) -> float:
    """Return the predicted seconds of a step if ranks may have to share cores."""
    return float(
        prediction["compute_seconds"] * max(1.0, prediction["workers"] / cores) + prediction["exposed_seconds"]
    )


def main() -> int:
    """Measure and predict; the exit status is 1 if anything failed."""
    options = report.parsed(report.parser(__doc__ or ""))
    results = Results("scaling", options, "mpi4py", "mpich")
    counts, cores = [1, 2, 4], report.cores()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
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
        for turn in range(1 if options.quick else 3):  # in turn: a disturbance affects all of them
            for ranks in counts:
                try:
                    steps_of[ranks].append(trained(ranks, turn, folder))
                except BenchmarkError as error:
                    results.fail(error, ranks=ranks, turn=turn)
        alone = predicted(counts, network, folder, min(steps_of[1])) if steps_of[1] else None
        for ranks, prediction in expected.items():
            if steps_of[ranks] and alone is not None:
                results.add({
                    "what": "training", "net": NET, "batch_size": BATCH, "ranks": ranks,
                    "measured": min(steps_of[ranks]), "predicted": seconds_on(cores, prediction),
                    "from_one_rank": seconds_on(cores, alone[ranks]), "exposed": prediction["exposed_seconds"],
                })  # fmt: skip
    return results.end()


if __name__ == "__main__":
    sys.exit(main())
