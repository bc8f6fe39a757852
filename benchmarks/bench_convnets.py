"""Runs the nets of convnet-benchmarks (2014 to 2016), and compares them with PyTorch: forward, backward and step.

python -m benchmarks.bench_convnets [--quick] [--nets alexnet,googlenet] [--peers eager,channels_last] [--json]

*Forward* computes the outputs as in inference, *backward* is the time of loss and gradients minus that of forward, as
in convnet-benchmarks, and *step* includes the update by SGD with momentum 0.9. Batches have a sixteenth of the
published size, for processors of a few cores. Subjects alternate, each in its own process; times are medians. Processor
time counts all threads, so that it depends less on other work of the machine; use
`--passive`, or waiting threads count too.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks import report
from benchmarks.alternate import BenchmarkError, Times, Workers, alternate
from benchmarks.bench_training import PATIENCE
from benchmarks.catalogue import NETS, Net
from benchmarks.render import TORCH
from benchmarks.results import Results

SCALE = 16
"""Published batch size divided by that of this benchmark."""
PARTS = ("forward", "gradients", "step")
PEERS = ("eager", "channels_last")

PUBLISHED: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {
    "alexnet": (128, {"Caffe": (121, 203), "Neon": (28, 58), "Torch": (27, 53), "TensorFlow": (26, 55)}),
    "overfeat": (128, {"Caffe": (355, 468), "Neon": (69, 141), "Torch": (94, 174), "TensorFlow": (90, 189)}),
    "vgg_a": (64, {"Caffe": (323, 745), "Neon": (103, 217), "Torch": (162, 366), "TensorFlow": (158, 382)}),
    "googlenet": (128, {"Caffe": (786, 1148), "Neon": (84, 186), "Torch": (130, 340), "TensorFlow": (135, 310)}),
}
"""Batch size, and milliseconds of forward and backward by library, in float32 on a GeForce GTX Titan X (2015).

From https://github.com/soumith/convnet-benchmarks, README.md at commit b9d22fe3: Caffe with its own kernels, Torch with
cuDNN 4. Abadi et al. 2016, "TensorFlow: A System for Large-Scale Machine Learning" (arXiv:1605.08695), reprints the
sums.
"""


def main() -> int:
    """Measure the selected nets, one after another."""
    options = _options()
    report.require("torch")
    results = Results("convnets", options, "torch", "numpy", "numba", "onednn-cpu-gomp")
    results.data["published"] = PUBLISHED
    for net in report.chosen_nets(options):
        try:
            results.add(measure(net, options))
        except BenchmarkError as error:
            results.fail(error, net=net.name)
    return results.end()


def _options() -> argparse.Namespace:
    parser = report.parser(__doc__ or "")
    parser.add_argument(
        "--peers", default=",".join(PEERS), help=f"compare with these, separated by commas: {', '.join(TORCH)}"
    )
    options = report.parsed(parser)
    options.peers = options.peers.split(",")
    options.nets = options.nets or ",".join(PUBLISHED)
    unknown = {*options.nets.split(",")} & NETS.keys() - PUBLISHED.keys() | {*options.peers} - {*TORCH}
    if unknown:
        parser.error(f"not part of this benchmark: {', '.join(sorted(unknown))}")
    return options


def measure(net: Net, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one net. A peer that fails is left out. Raises `BenchmarkError` if netspec fails."""
    report.say(f"{net.name}: timing")
    batch_size = PUBLISHED[net.name][0] // SCALE
    request: dict[str, Any] = {"kind": "training", "net": net.name, "compared": False, "precision": "float32"}
    request["batch_size"] = batch_size
    times: dict[str, Any] = {}
    with Workers() as workers:
        workers.start(options.threads, subject="netspec", **request)
        for name in options.peers:
            workers.try_start(options.threads, limit=PATIENCE, subject=name, **request)
        for part in PARTS:
            rounds, seconds = (2, 0.0) if options.quick else (7, 1.0)
            times[part] = alternate(workers, rounds=rounds, seconds=seconds, least=2 if options.quick else 3, what=part)
        failed = workers.failed
    if "netspec" in failed:
        raise BenchmarkError(failed["netspec"])
    names = list(times["step"])
    return {
        "net": net.name,
        "batch_size": batch_size,
        **{part: {name: times[part][name].median for name in names} for part in PARTS},
        "processor": {name: _processor(times["step"][name]) for name in names},
        "steps": {name: len(times["step"][name].seconds) for name in names},
        "failed": failed,
    }


def _processor(times: Times) -> float:
    """Return the processor time of a step: the mean of all rounds."""
    return sum(times.processor) / len(times.processor)


if __name__ == "__main__":
    sys.exit(report.run(main))
