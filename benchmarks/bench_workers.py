"""ResNet-20 on one rank and on two, each with one thread: netspec, and PyTorch's DistributedDataParallel over gloo.

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

from benchmarks import report
from benchmarks.alternate import BenchmarkError
from benchmarks.bench_scaling import answer, mpiexec
from benchmarks.results import Results
from benchmarks.workers_rank import NET

SUBJECTS = ("netspec", "torch")


def run(subject: str, ranks: int, seconds: float, folder: Path, turn: int) -> dict[str, list[float]]:
    """What a subject's ranks print. Raises `BenchmarkError` where they fail."""
    command = mpiexec(ranks, "benchmarks.workers_rank", subject, str(seconds), str(folder / f"meet-{ranks}-{turn}"))
    found: dict[str, list[float]] = json.loads(answer(command, folder))
    return found


def main() -> int:
    """Measure in turns; the exit status is 1 where anything failed."""
    options = report.parsed(report.parser(__doc__ or ""))
    report.need("torch", "mpi4py")
    results = Results("workers", options, "torch", "mpi4py", "mpich")
    cases = [(subject, ranks) for ranks in (1, 2) for subject in SUBJECTS]
    steps: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    exposed: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as made:
        for turn in range(2 if options.quick else 5):
            for case in cases:
                report.say(f"round {turn + 1}: {case[0]} on {case[1]}")
                try:
                    found = run(*case, 4.0 if options.quick else 8.0, Path(made), turn)
                except BenchmarkError as error:
                    results.fail(error, subject=case[0], ranks=case[1])
                    continue
                steps[case] += found["steps"]
                exposed[case].append(found["exposed"])  # type: ignore[arg-type]  # a number beside a list
    for subject, ranks in cases:
        if steps[subject, ranks] and steps[subject, 1]:
            took, alone = median(steps[subject, ranks]), median(steps[subject, 1])
            row = {
                "what": "workers", "net": NET.name, "batch_size": NET.batch_size, "subject": subject, "ranks": ranks,
                "seconds": took, "fastest": min(steps[subject, ranks]), "speedup": alone / took,
            }  # fmt: skip
            results.add({**row, **({"exposed": median(exposed[subject, ranks])} if subject == "netspec" else {})})
    return results.end()


if __name__ == "__main__":
    sys.exit(main())
