"""Measures the memory for streaming: a stream of ten shuffle windows against a stream of two.

Samples are generated on demand, so resident memory is held by the loader. Prints the peak memory of passes over each
stream in addition to the memory before: at most two windows, some batches, and unused memory of threads.

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
    """Return the bytes that two passes over this number of windows take, and the number of samples."""
    import netspec.data  # noqa: F401  # the sources and transforms are found through it
    from netspec.data.loader import Loader
    from netspec.data.sources.python import Python

    def stream() -> Iterator[dict[str, Any]]:
        for index in range(windows * window):
            yield {"image": np.full(SHAPE, index % 251, np.uint8), "label": index % 10}

    split = Python.model_validate({"batch_size": BATCH, "shuffle": {"window": window}}).with_samples(stream)
    with Loader(split.open(), split, seed=1) as loader:
        before, samples_read = resident_bytes(), 0
        for batch in loader:
            if batch.epoch == 2:
                break
            samples_read += len(batch)
        return {"samples": samples_read // 2, "bytes": peak_bytes() - before}


def main() -> int:
    """Measure each length in its own process."""
    options = report.parsed(report.parser(__doc__ or ""))
    results = Results("memory", options)
    window = 1000 if options.quick else 2000
    for windows in WINDOWS:
        command = [sys.executable, "-m", "benchmarks.bench_memory", "--measure", str(window), str(windows)]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if answer.returncode:
            results.fail(BenchmarkError(answer.stderr[-300:]), windows=windows)
            continue
        result = json.loads(answer.stdout)
        size = int(np.prod(SHAPE)) * window
        results.add({"windows": windows, **result, "window_bytes": size, "data_bytes": size * windows})
        if windows == WINDOWS[-1] and result["bytes"] > size * windows / 2:
            results.fail(BenchmarkError("more than half of the data is held"), windows=windows)
    return results.end()


if __name__ == "__main__":
    if "--measure" in sys.argv:
        print(json.dumps(measured(*map(int, sys.argv[2:]))))
        sys.exit(0)
    sys.exit(report.run(main))
