"""What streaming costs in memory: a stream of ten windows, shuffled within them, against one of two windows.

Samples are made up as they are asked for, so whatever is resident is held by the loader. Prints the most memory that
passes over each took beyond what was there before: at most two windows are held, some batches, and what threads leave
unused.

    python -m benchmarks.bench_memory [--quick] [--json]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.alternate import ROOT, BenchmarkError
from benchmarks.results import Results
from benchmarks.worker import peak_bytes, resident_bytes

SHAPE = (3, 64, 64)
BATCH = 64
WINDOWS = (2, 10)


def measured(window: int, windows: int) -> dict[str, Any]:
    """Bytes that two passes over so many windows take, and the samples that came."""
    import netspec.data  # noqa: F401  # the sources and transforms are found through it
    from netspec.data.loader import Loader
    from netspec.data.sources.python import Python

    def stream() -> Iterator[dict[str, Any]]:
        for index in range(windows * window):
            yield {"image": np.full(SHAPE, index % 251, np.uint8), "label": index % 10}

    split = Python.model_validate({"batch_size": BATCH, "shuffle": {"window": window}}).given(stream)
    with Loader(split.open(), split, seed=1) as loader:
        before, seen = resident_bytes(), 0
        for batch in loader:
            if batch.epoch == 2:
                break
            seen += len(batch)
        return {"samples": seen // 2, "bytes": peak_bytes() - before}


def main() -> int:
    """Measure each length in a process of its own."""
    options = report.parsed(report.parser(__doc__ or ""))
    results = Results("memory", options)
    window = 1000 if options.quick else 2000
    for windows in WINDOWS:
        command = [sys.executable, "-m", "benchmarks.bench_memory", "--measure", str(window), str(windows)]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if answer.returncode:
            results.fail(BenchmarkError(answer.stderr[-300:]), windows=windows)
            continue
        found = json.loads(answer.stdout)
        size = int(np.prod(SHAPE)) * window
        results.add({"windows": windows, **found, "window_bytes": size, "data_bytes": size * windows})
        if windows == WINDOWS[-1] and found["bytes"] > size * windows / 2:
            results.fail(BenchmarkError("more than half of the data is held"), windows=windows)
    return results.end()


if __name__ == "__main__":
    if "--measure" in sys.argv:
        print(json.dumps(measured(*map(int, sys.argv[2:]))))
        sys.exit(0)
    sys.exit(report.run(main))
