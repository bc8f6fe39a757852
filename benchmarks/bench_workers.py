"""ResNet-20 on one rank and on two, each with one thread: netspec, and PyTorch's DistributedDataParallel over gloo.

On two netspec sums up gradients by all_reduce, and in a row of its own by sharded_optimizer.

The batch of 128 is split over the ranks. Subjects take turns, so that what disturbs one disturbs the others too;
figures are medians of all steps. `exposed` is the share of a step in which a rank does nothing but wait for, send or
add up what is summed over ranks.

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
"""Whose step on one rank a subject's is compared with."""


def run(subject: str, ranks: int, seconds: float, folder: Path, turn: int) -> dict[str, Any]:
    """What a subject's ranks print. Raises `BenchmarkError` where they fail."""
    command = mpiexec(ranks, "benchmarks.workers_rank", subject, str(seconds), str(folder / f"meet-{ranks}-{turn}"))
    found: dict[str, Any] = json.loads(answer(command, folder))
    return found


def main() -> int:
    """Measure in turns; the exit status is 1 where anything failed."""
    options = report.parsed(report.parser(__doc__ or ""))
    report.need("torch", "mpi4py")
    results = Results("workers", options, "torch", "mpi4py", "mpich")
    steps: dict[tuple[str, int], list[float]] = {case: [] for case in CASES}
    exposed: dict[tuple[str, int], list[float]] = {case: [] for case in CASES}
    kept: dict[tuple[str, int], int | None] = {}
    with tempfile.TemporaryDirectory() as made:
        for turn in range(2 if options.quick else 5):
            for case in CASES:
                report.say(f"round {turn + 1}: {case[0]} on {case[1]}")
                try:
                    found = run(*case, 4.0 if options.quick else 8.0, Path(made), turn)
                except BenchmarkError as error:
                    results.fail(error, subject=case[0], ranks=case[1])
                    continue
                steps[case] += found["steps"]
                exposed[case].append(found["exposed"])
                kept[case] = found["solver_bytes"]
    for subject, ranks in CASES:
        if steps[subject, ranks] and steps[ALONE[subject], 1]:
            took, alone = median(steps[subject, ranks]), median(steps[ALONE[subject], 1])
            row = {
                "what": "workers", "net": NET.name, "batch_size": NET.batch_size, "subject": subject, "ranks": ranks,
                "seconds": took, "fastest": min(steps[subject, ranks]), "speedup": alone / took,
            }  # fmt: skip
            if subject != "torch":
                row |= {"exposed": median(exposed[subject, ranks]), "solver_bytes": kept[subject, ranks]}
            results.add(row)
    return results.end()


if __name__ == "__main__":
    sys.exit(main())
