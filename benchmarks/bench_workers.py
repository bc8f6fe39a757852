"""Trains ResNet-20 on one rank and on two, with one thread each: netspec, and PyTorch's DDP over gloo.

On two ranks netspec sums gradients by all_reduce, and in a separate row by sharded_optimizer.

The batch of 128 is split over the ranks. Subjects take turns, so that a disturbance affects all of them; values are
medians of all steps. `exposed` is the share of a step in which a rank only waits for, sends or adds what is summed over
ranks.

python -m benchmarks.bench_workers [--quick] [--json]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import report
from benchmarks.alternate import BenchmarkError
from benchmarks.bench_scaling import answer, mpiexec
from benchmarks.results import Results
from benchmarks.workers_rank import NET

CASES = ("netspec", 1), ("torch", 1), ("netspec", 2), ("sharded", 2), ("torch", 2)
ALONE = {"netspec": "netspec", "sharded": "netspec", "torch": "torch"}
"""The subject whose step on one rank is the baseline of a subject."""


def run(subject: str, ranks: int, seconds: float, folder: Path, turn: int) -> dict[str, Any]:
    """Return the output of rank 0 of a subject. Raises `BenchmarkError` if a rank fails."""
    command = mpiexec(ranks, "benchmarks.workers_rank", subject, str(seconds), str(folder / f"meet-{ranks}-{turn}"))
    result: dict[str, Any] = json.loads(answer(command, folder))
    return result


def main() -> int:
    """Measure in turns; the exit status is 1 if anything failed."""
    options = report.parsed(report.parser(__doc__ or ""))
    report.require("torch", "mpi4py")
    results = Results("workers", options, "torch", "mpi4py", "mpich")
    steps: dict[tuple[str, int], list[float]] = {case: [] for case in CASES}
    exposed: dict[tuple[str, int], list[float]] = {case: [] for case in CASES}
    solver_bytes: dict[tuple[str, int], int | None] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for turn in range(2 if options.quick else 5):
            for case in CASES:
                report.say(f"round {turn + 1}: {case[0]} on {case[1]}")
                try:
                    result = run(*case, 4.0 if options.quick else 8.0, Path(temporary), turn)
                except BenchmarkError as error:
                    results.fail(error, subject=case[0], ranks=case[1])
                    continue
                steps[case] += result["steps"]
                exposed[case].append(result["exposed"])
                solver_bytes[case] = result["solver_bytes"]
    for subject, ranks in CASES:
        if steps[subject, ranks] and steps[ALONE[subject], 1]:
            took, alone = median(steps[subject, ranks]), median(steps[ALONE[subject], 1])
            row = {
                "what": "workers", "net": NET.name, "batch_size": NET.batch_size, "subject": subject, "ranks": ranks,
                "seconds": took, "fastest": min(steps[subject, ranks]), "speedup": alone / took,
            }  # fmt: skip
            if subject != "torch":
                row |= {"exposed": median(exposed[subject, ranks]), "solver_bytes": solver_bytes[subject, ranks]}
            results.add(row)
    return results.end()


if __name__ == "__main__":
    sys.exit(main())
