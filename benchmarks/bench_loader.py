"""Compares the speed of netspec's loader with PyTorch's DataLoader and torchvision's transforms.

Photographs (JPEG, 500 × 375) by RandomResizedCrop to 224 × 224, flip, color jitter and normalization; the same without
jitter; PNG files as small as CIFAR's, and arrays in memory, by a padded random crop, flip and normalization. Each
loader runs in its own process, in turn, with 0 (the process itself), 1 and 2 workers. The table has medians over the
runs, and the CPU time per image, which other work on the machine disturbs less.

python -m benchmarks.bench_loader [--quick] [--json] [--cases photos,arrays]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import report
from benchmarks.alternate import ROOT, BenchmarkError
from benchmarks.loaders import CASES
from benchmarks.results import Results

WORKERS = (0, 1, 2)


def timed(subject: str, case: str, workers: int, folder: Path) -> dict[str, Any]:
    """Return wall time and CPU time of a pass over the set, in seconds."""
    request = {"subject": subject, "case": case, "workers": workers, "folder": str(folder)}
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.loaders", json.dumps(request)],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if answer.returncode:
        raise BenchmarkError(answer.stderr.strip().rpartition("\n")[2])
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


def main() -> int:
    """Run all cases with all numbers of workers, subjects in turn."""
    parser = report.parser(__doc__ or "")
    parser.add_argument(
        "--cases", default=",".join(CASES), help=f"run these, separated by commas: {', '.join(CASES)} [all]"
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "bench" / "sets", help="write the data sets to this folder"
    )
    options = report.parsed(parser)
    report.require("torch", "torchvision")
    results = Results("loader", options, "torch", "torchvision", "pillow", "numpy")
    rounds = 1 if options.quick else 5
    for case in options.cases.split(","):
        if case not in CASES:
            raise BenchmarkError(f"no such case: {case} (there are {', '.join(CASES)})")
        for workers in WORKERS:
            runs: dict[str, list[dict[str, Any]]] = {"netspec": [], "torch": []}
            try:
                for turn in range(rounds):
                    for subject in sorted(runs, reverse=bool(turn % 2)):
                        runs[subject].append(timed(subject, case, workers, options.folder))
            except BenchmarkError as error:
                results.fail(error, case=case, workers=workers)
                continue
            speeds = {
                name: median(run["samples"] / run["seconds"] for run in results) for name, results in runs.items()
            }
            work = {
                name: median(run["processor"] / run["samples"] for run in results) for name, results in runs.items()
            }
            results.add({"case": case, "workers": workers, "per_second": speeds, "processor": work})
    return results.end()


if __name__ == "__main__":
    sys.exit(report.run(main))
