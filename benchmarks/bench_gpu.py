"""A training step on an NVIDIA GPU against PyTorch's on the same one.

    python -m benchmarks.bench_gpu [--nets lenet,resnet50] [--precision tf32] [--no-compare] [--json] [--output FILE]
    python -m benchmarks.bench_gpu --dry       # no GPU: builds and plans every net of the table on both sides

PyTorch runs eager, through torch.compile, and through torch.compile(mode="max-autotune"), each in channels_last, with
cudnn.benchmark, the fused optimizer and netspec's TF32 flags; the fastest of the three counts. Inputs lie on the
device; `fed` is netspec's step with a batch copied there each time. Before a net is timed, the losses of three steps
are compared with PyTorch's in float64. Each subject has a process of its own; seconds are medians between CUDA events.
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
"""Of losses, relative; operands of tf32 are rounded to 10 bits, 2⁻¹¹ off at most."""
ABOVE_FLOOR = 1.3


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    net: str
    batch_size: int
    precision: str
    least: float
    """What PyTorch's fastest step is to take, in netspec's."""
    floor: bool = False
    """Whether netspec's step is to be within `ABOVE_FLOOR` of what arithmetic and memory take at the least."""


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
    """What a subject finds, in a process of its own. Raises `BenchmarkError` where it fails."""
    wanted = {"subject": subject, "net": row.net, "batch_size": row.batch_size, "precision": row.precision, **more}
    command = [sys.executable, "-m", "benchmarks.gpu_subject", json.dumps(wanted)]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{subject} took longer than {PATIENCE:.0f} s") from None
    if done.returncode:
        raise BenchmarkError(f"{subject} ended with status {done.returncode}; what it said is above")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def agreed(row: Row) -> float:
    """The largest difference of losses from float64, relative. Raises `BenchmarkError` where it is too large."""
    exact, ours = (ask(row, name, compared=True)["losses"] for name in ("float64", "netspec"))
    off: list[float] = [abs(one - other) / abs(other) for one, other in zip(ours, exact, strict=True)]
    if not all(one <= TOLERANCE[row.precision] for one in off):  # not even where one is no number
        raise BenchmarkError(f"losses are {off} off float64, more than {TOLERANCE[row.precision]:.1e}")
    return max(off)


def measure(row: Row, *, compare: bool) -> dict[str, Any]:
    """Compare, then time; a peer that fails is left out. Raises `BenchmarkError` where netspec fails, or all do."""
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
    """Build and plan both sides. Raises `BenchmarkError` where they have not as many parameters, or another result."""
    ours, theirs = (ask(row, name, dry=True) for name in ("netspec", "eager"))
    if (ours["shape"], ours["parameters"]) != (theirs["shape"], theirs["parameters"]):
        raise BenchmarkError(f"netspec builds {ours}, PyTorch {theirs}")
    return {"net": row.net, "batch_size": row.batch_size, "precision": row.precision, **ours}


def need_a_gpu() -> None:
    """Raise `BenchmarkError` where a side can't use one."""
    from netspec.backends.device_registry import open_device
    from netspec.errors import InputError

    report.need("torch")
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
    """Measure the chosen rows, one after another; the exit status is 1 where one is not reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", help=f"names between commas; of {', '.join(dict.fromkeys(row.net for row in ROWS))}")
    parser.add_argument("--precision", choices=sorted({row.precision for row in ROWS}))
    parser.add_argument("--dry", action="store_true", help="no GPU: only build and plan")
    parser.add_argument("--no-compare", action="store_true", help="time what was compared before")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    parser.add_argument("--output", type=Path, help="a file for the same JSON")
    options = parser.parse_args()
    rows = [row for row in ROWS if options.nets is None or row.net in options.nets.split(",")]
    rows = [row for row in rows if options.precision in (None, row.precision)]
    if not rows:
        parser.error("no line of the table is chosen")
    if not options.dry:
        need_a_gpu()
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
    told = {"benchmark": "gpu", "dry": options.dry, "machine": machine, "found": found, "failed": failed}
    data = json.dumps(told, indent=2)
    if options.json:
        print(data)
    if options.output is not None:
        options.output.write_text(data + "\n", encoding="utf-8")
    return 1 if failed or not all(one.get("reached", True) for one in found) else 0


def _line(one: dict[str, Any]) -> str:
    head = f"{one['net']} ({one['batch_size']}) {one['precision']}"
    if "seconds" not in one:
        return f"{head}: {one['parameters']:,} parameters, {one['nodes']} operations, {one['nbytes'] / 1e9:.2f} GB"
    times = ", ".join(f"{name} {seconds * 1e3:.3f} ms" for name, seconds in one["seconds"].items())
    reached = "reached" if one["reached"] else f"NOT reached: {one['least']:.1f} is asked for"
    fed, above = one["fed_seconds"] * 1e3, one["above_floor"]
    return f"{head}: {one['ratio']:.2f}x ({reached}); {times}; fed {fed:.3f} ms; {above:.2f}x the floor"


if __name__ == "__main__":
    sys.exit(report.run(main))
