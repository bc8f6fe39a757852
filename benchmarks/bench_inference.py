"""Compares predictions of netspec with ONNX Runtime's, on nets that netspec exports.

python -m benchmarks.bench_inference [--quick] [--nets lenet,resnet50] [--batch-sizes 1,32] [--json]

ONNX Runtime uses all its optimizations, fixed sizes, the same number of threads, and inputs and outputs bound in place;
netspec's time includes copying the batch and the results. Before a net is timed, the results must agree. The ratio is
ONNX Runtime's median divided by netspec's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from typing import Any

from benchmarks import report
from benchmarks.alternate import BenchmarkError, Workers, alternate
from benchmarks.catalogue import Net
from benchmarks.results import Results

TOLERANCE = 1e-3
"""Maximum difference of any output, relative to the largest magnitude among them: float32 over about fifty layers."""


def main() -> int:
    """Measure the selected nets at every batch size."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--batch-sizes", default="1,32", help="measure these sizes, separated by commas [1,32]")
    options = report.parsed(parser)
    report.require("onnxruntime")
    nets = report.chosen_nets(options)
    results = Results("inference", options, "onnxruntime", "numpy", "numba", "onednn-cpu-gomp")
    for net in nets:
        for size in map(int, options.batch_sizes.split(",")):
            try:
                results.add(measure(net, size, options))
            except BenchmarkError as error:
                results.fail(error, net=net.name, batch_size=size)
    return results.end()


def measure(net: Net, batch_size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Export, compare, then time one net. Raises `BenchmarkError` if the results differ."""
    threads, quick = options.threads, options.quick
    request: dict[str, Any] = {"kind": "prediction", "net": net.name, "batch_size": batch_size}
    with tempfile.TemporaryDirectory() as folder, Workers() as exporting, Workers() as workers:
        exporting.start(threads, subject="netspec", **request).ask("save", folder=folder)
        peer = workers.start(threads, subject="onnxruntime", folder=folder, **request)
        difference = peer.ask("difference", folder=folder)["difference"]
        if not difference <= TOLERANCE:
            raise BenchmarkError(f"{net.name}: the outputs differ by {difference:.1e} of the largest")
        report.say(f"{net.name}, batch {batch_size}: outputs agree to {difference:.1e}; now timing")
        workers.start(threads, subject="netspec", **request)  # a fresh one: exporting takes memory
        times = alternate(workers, rounds=3 if quick else 7, seconds=0.2 if quick else 0.7, least=5)
        if workers.failed:
            raise BenchmarkError("; ".join(workers.failed.values()))
        facts = {name: worker.facts for name, worker in workers.by_name.items()}
        memory = {name: worker.ask("memory") for name, worker in workers.by_name.items()}
    medians = {name: time.median for name, time in times.items()}
    fastest = {name: time.fastest for name, time in times.items()}
    return {
        "net": net.name,
        "batch_size": batch_size,
        "difference": difference,
        "seconds": medians,
        "fastest_seconds": fastest,
        "steps": {name: len(time.seconds) for name, time in times.items()},
        "compile_seconds": {name: fact["compile_seconds"] for name, fact in facts.items()},
        "memory": {name: usage["peak"] - usage["baseline"] for name, usage in memory.items()},
        "ratio_of_fastest": fastest["onnxruntime"] / fastest["netspec"],
        "ratio": medians["onnxruntime"] / medians["netspec"],
    }


if __name__ == "__main__":
    sys.exit(report.run(main))
