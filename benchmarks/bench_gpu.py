"""Compares a training step on an NVIDIA GPU with PyTorch's on the same GPU.

python -m benchmarks.bench_gpu [--nets lenet,resnet50] [--precision tf32] [--no-compare] [--json] [--output FILE]
python -m benchmarks.bench_gpu --dry # no GPU: builds and plans every net of the table on both sides

PyTorch runs eager, with torch.compile, and with torch.compile(mode="max-autotune"), each in channels_last, with
cudnn.benchmark, the fused optimizer and netspec's TF32 flags; the fastest of the three counts. Inputs are on the
device; `fed` is netspec's step including the copy of a batch to the device. Before a net is timed, the losses of three
steps are compared with PyTorch's in float64. Each subject runs in its own process; seconds are medians between CUDA
events.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import report
from benchmarks.alternate import ROOT, BenchmarkError
from benchmarks.bench_training import LOSS_TOLERANCE
from benchmarks.catalogue import NETS

PEERS = ("eager", "compile", "autotune")
PATIENCE = 1800.0
"""Seconds for one subject: max-autotune of a large net takes many minutes."""
TOLERANCE = {**LOSS_TOLERANCE, "tf32": 2**-9}
"""Relative tolerance of losses; operands of tf32 are rounded to 10 bits, an error of at most 2⁻¹¹."""
ABOVE_FLOOR = 1.3


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    net: str
    batch_size: int
    precision: str
    least: float
    """Required time of PyTorch's fastest step divided by netspec's."""
    floor: bool = False
    """Whether netspec's step must be within `ABOVE_FLOOR` of the minimum time for its arithmetic and memory traffic."""


ROWS = (
    Row("mlp", 64, "tf32", 1.5),
    Row("lenet", 64, "tf32", 1.5),
    *(
        Row(net, batch, precision, 1.1)
        for net, batch in (("alexnet", 128), ("overfeat", 128), ("vgg_a", 64), ("googlenet", 128))
        for precision in ("tf32", "bfloat16")
    ),
    Row("resnet50", 256, "bfloat16", 1.1, floor=True),
    *(Row(net, NETS[net].batch_size, precision, 1.0) for net in ("lstm_char", "transformer")
      for precision in ("tf32", "bfloat16")),
)  # fmt: skip


def ask(row: Row, subject: str, **more: Any) -> dict[str, Any]:
    """Return the result of a subject, which runs in its own process. Raises `BenchmarkError` if it fails."""
    request = {"subject": subject, "net": row.net, "batch_size": row.batch_size, "precision": row.precision, **more}
    command = [sys.executable, "-m", "benchmarks.gpu_subject", json.dumps(request)]
    try:
        process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{subject} took longer than {PATIENCE:.0f} s") from None
    if process.returncode:
        raise BenchmarkError(f"{subject} ended with status {process.returncode}; see its output above")
    result: dict[str, Any] = json.loads(process.stdout)
    return result


def agreed(row: Row) -> float:
    """Return the largest relative difference of losses from float64. Raises `BenchmarkError` if it is too large."""
    exact, ours = (ask(row, name, compared=True)["losses"] for name in ("float64", "netspec"))
    off: list[float] = [abs(loss - expected) / abs(expected) for loss, expected in zip(ours, exact, strict=True)]
    if not all(error <= TOLERANCE[row.precision] for error in off):  # also false for nan
        raise BenchmarkError(f"losses differ from float64 by {off}, more than {TOLERANCE[row.precision]:.1e}")
    return max(off)


def measure(row: Row, *, compare: bool) -> dict[str, Any]:
    """Compare, then time; a peer that fails is left out. Raises `BenchmarkError` if netspec fails, or all peers do."""
    off = agreed(row) if compare else None
    ours, seconds, failed = ask(row, "netspec"), dict[str, float](), dict[str, str]()
    for name in PEERS:
        try:
            seconds[name] = median(ask(row, name)["times"])
        except BenchmarkError as error:
            failed[name] = str(error)
    if not seconds:
        raise BenchmarkError("; ".join(failed.values()))
    step = median(ours["times"])
    ratio, above = min(seconds.values()) / step, step / ours["floor"]
    return {
        "net": row.net, "batch_size": row.batch_size, "precision": row.precision, "agreement": off,
        "seconds": {"netspec": step, **seconds}, "fed_seconds": median(ours["fed"]), "ratio": ratio, "least": row.least,
        "above_floor": above, "reached": ratio >= row.least and (not row.floor or above <= ABOVE_FLOOR),
        "notes": ours["notes"], "gpu": ours["gpu"], "failed": failed,
    }  # fmt: skip


def check(row: Row) -> dict[str, Any]:
    """Build and plan both sides. Raises `BenchmarkError` if their parameters or results differ."""
    ours, theirs = (ask(row, name, dry=True) for name in ("netspec", "eager"))
    if (ours["shape"], ours["parameters"]) != (theirs["shape"], theirs["parameters"]):
        raise BenchmarkError(f"netspec builds {ours}, PyTorch {theirs}")
    return {"net": row.net, "batch_size": row.batch_size, "precision": row.precision, **ours}


def require_gpu() -> None:
    """Raise `BenchmarkError` if one of the two cannot use a GPU."""
    from netspec.backends.device_registry import open_device
    from netspec.errors import InputError

    report.require("torch")
    try:
        open_device("cuda")
    except InputError as error:
        raise BenchmarkError(
            f"{str(error).removeprefix('error: ')}\nwithout a GPU, `--dry` builds and plans the nets of the table"
        ) from None
    import torch

    if not torch.cuda.is_available():
        raise BenchmarkError("PyTorch finds no GPU: install one of its builds for CUDA into this environment")


def main() -> int:
    """Measure the selected rows one after another; the exit status is 1 if a row misses its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--nets", help=f"measure these, separated by commas: {', '.join(dict.fromkeys(row.net for row in ROWS))} [all]"
    )
    parser.add_argument("--precision", choices=sorted({row.precision for row in ROWS}))
    parser.add_argument("--dry", action="store_true", help="only build and plan, without a GPU")
    parser.add_argument("--no-compare", action="store_true", help="time without comparing losses first")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    parser.add_argument("--output", type=Path, help="also write the JSON to this file")
    options = parser.parse_args()
    rows = [row for row in ROWS if options.nets is None or row.net in options.nets.split(",")]
    rows = [row for row in rows if options.precision in (None, row.precision)]
    if not rows:
        parser.error("no row of the table is selected")
    if not options.dry:
        require_gpu()
    found, failed = list[dict[str, Any]](), list[dict[str, str]]()
    for row in rows:
        try:
            found.append(check(row) if options.dry else measure(row, compare=not options.no_compare))
            if not options.json:
                print(_line(found[-1]), flush=True)
        except BenchmarkError as error:
            failed.append({"net": row.net, "precision": row.precision, "why": str(error)})
            report.say(f"failed: {row.net} {row.precision}: {error}")
    machine = report.machine("torch", "cupy-cuda13x", "cupy-cuda12x", "nvidia-cudnn-frontend", "numpy")
    results = {"benchmark": "gpu", "dry": options.dry, "machine": machine, "found": found, "failed": failed}
    data = json.dumps(results, indent=2)
    if options.json:
        print(data)
    if options.output is not None:
        options.output.write_text(data + "\n", encoding="utf-8")
    return 1 if failed or not all(row.get("reached", True) for row in found) else 0


def _line(row: dict[str, Any]) -> str:
    head = f"{row['net']} ({row['batch_size']}) {row['precision']}"
    if "seconds" not in row:
        return f"{head}: {row['parameters']:,} parameters, {row['nodes']} operations, {row['nbytes'] / 1e9:.2f} GB"
    times = ", ".join(f"{name} {seconds * 1e3:.3f} ms" for name, seconds in row["seconds"].items())
    reached = "reached" if row["reached"] else f"NOT reached, required: {row['least']:.1f}"
    fed, above = row["fed_seconds"] * 1e3, row["above_floor"]
    return f"{head}: {row['ratio']:.2f}x ({reached}); {times}; fed {fed:.3f} ms; {above:.2f}x the floor"


if __name__ == "__main__":
    sys.exit(report.run(main))
