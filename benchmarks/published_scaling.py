"""Compares predictions of `netspec scale` with published scaling results.

Times of layers are their share of the arithmetic, scaled so that one worker is as fast as published. One value is
fitted, the jitter, to the first row that uses it. Prints the table of docs/scaling.md.

python -m benchmarks.published_scaling [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from netspec.distributed.cost_model.networks import NETWORKS, Cluster, Network
from netspec.distributed.cost_model.plans import TrainingJob
from netspec.distributed.cost_model.strategies import StepPrediction, predict
from netspec.distributed.cost_model.workload import ComputeModel, Layer, StepCost

JITTER = 0.035
"""Standard deviation of a worker's computing time: with it, the first row with several GPUs is as published."""

BUCKET = 25 * 2**20
"""Bytes that are sent together, about as many as those libraries fuse."""
ROCE_25G = Network("25 Gbit/s RoCE", 2e-6, 8 * 1.05 / 25e9, "line rate, 5 % of headers")
ETHERNET_10G = NETWORKS["ethernet-10g"]
ETHERNET_50G = NETWORKS["ethernet-50g"]


def convolution(inputs: int, outputs: int, kernel: int, size: int) -> tuple[int, float]:
    """Return the number of parameters, and of multiplications for an image with a result of `size` x `size`."""
    weights = inputs * outputs * kernel * kernel
    return weights, float(weights * size * size)


def vgg16() -> list[tuple[int, float]]:
    """Configuration D of Simonyan and Zisserman 2014: 138 million parameters."""
    widths = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
    made, channels, size = list[tuple[int, float]](), 3, 224
    for width, layers in widths:
        for _ in range(layers):
            made.append(convolution(channels, width, 3, size))
            channels = width
        size //= 2
    dense = ((25088, 4096), (4096, 4096), (4096, 1000))
    return [*made, *((inputs * units, float(inputs * units)) for inputs, units in dense)]


def resnet(*blocks: int) -> list[tuple[int, float]]:
    """Bottleneck blocks of four stages (He et al. 2015); 3, 4, 6, 3 are ResNet-50."""
    layers, channels, size = [convolution(3, 64, 7, 112)], 64, 56
    for width, count in zip((64, 128, 256, 512), blocks, strict=True):
        for index in range(count):
            if not index:
                layers.append(convolution(channels, 4 * width, 1, size))
            layers += [convolution(channels, width, 1, size), convolution(width, width, 3, size)]
            layers.append(convolution(width, 4 * width, 1, size))
            channels = 4 * width
        size //= 2
    return [*layers, (2048 * 1000, 2048.0 * 1000)]


def inception_v3() -> list[tuple[int, float]]:
    """23.8 million parameters (Szegedy et al. 2015), growing with depth, with equal arithmetic in all layers."""
    return [(round(23.8e6 * 2 * (index + 0.5) / 48**2), 1.0) for index in range(48)]


@dataclass(frozen=True)
class Case:
    """A published result and its configuration."""

    source: str
    net: str
    layers: Sequence[tuple[int, float]]
    strategy: str
    workers: int
    per_host: int
    between: Network
    batch: int
    """Batch size of a worker."""
    rate: float
    """Samples per second of one worker, the baseline of the efficiency."""
    published: float
    """Published efficiency."""
    within: Network = NETWORKS["pcie3"]
    base: int = 1
    """Number of workers with which `rate` was measured: it includes their jitter."""
    servers: int | None = None

    def predicted(self, jitter: float) -> float:
        """Return the efficiency that the model predicts."""
        seconds = self.batch / self.rate
        total = sum(flops for _, flops in self.layers)
        layers = tuple(
            Layer(str(index), ((size,),), seconds * flops / total / 3, 2 * seconds * flops / total / 3)
            for index, (size, flops) in enumerate(self.layers)
        )
        compute = ComputeModel((StepCost(self.batch, layers),))
        job = TrainingJob(
            compute, self.batch, True, first_bucket=2**20, bucket=BUCKET, jitter=jitter, servers=self.servers
        )
        prediction = predict(self.strategy, job, Cluster(self.workers, self.between, self.within, self.per_host))
        assert isinstance(prediction, StepPrediction), prediction
        alone = TrainingJob(
            ComputeModel((StepCost(self.batch, (Layer("all", (), 0.0, seconds),)),)), self.batch, True, jitter=jitter
        )
        start = predict("all_reduce", alone, Cluster(self.base, self.between, self.within, self.base))
        assert isinstance(start, StepPrediction), start
        workers = self.workers - (self.servers or 0)
        return prediction.samples_per_second / workers / (start.samples_per_second / self.base)


HOROVOD = "Sergeev and Del Balso 2018, Horovod's docs/benchmarks"
TENSORFLOW = "TensorFlow's performance benchmarks, May 2017"
RESNET_50, RESNET_101, RESNET_152 = resnet(3, 4, 6, 3), resnet(3, 4, 23, 3), resnet(3, 8, 36, 3)

CASES = (
    # One GPU: TensorFlow's benchmarks of a P100 with batches of 64 from the same months. For ResNet-101, Horovod's page
    # reports 1656.82 images per second on 16.
    Case(HOROVOD, "Inception V3", inception_v3(), "all_reduce", 128, 4, ROCE_25G, 64, 142, 0.90),
    Case(HOROVOD, "Inception V3", inception_v3(), "all_reduce", 512, 4, ROCE_25G, 64, 142, 0.90),
    Case(HOROVOD, "ResNet-101", RESNET_101, "all_reduce", 128, 4, ROCE_25G, 64, 1656.82 / 16, 0.90),
    Case(HOROVOD, "ResNet-101", RESNET_101, "all_reduce", 512, 4, ROCE_25G, 64, 1656.82 / 16, 0.90),
    Case(HOROVOD, "VGG-16", vgg16(), "all_reduce", 128, 4, ROCE_25G, 64, 154, 0.79),
    Case(HOROVOD, "VGG-16", vgg16(), "all_reduce", 512, 4, ROCE_25G, 64, 154, 0.68),
    # 90 epochs of 1.281 million images in 29 hours on 8 GPUs.
    Case("Goyal et al. 2017", "ResNet-50", RESNET_50, "hierarchical", 256, 8, ETHERNET_50G, 32,
         90 * 1.281e6 / (29 * 3600) / 8, 0.90, NETWORKS["nvlink"], base=8),
    # A worker is an instance with 8 GPUs; each also runs a server, or 6 and 4 of them do.
    Case(TENSORFLOW, "Inception V3", inception_v3(), "parameter_server", 14, 2, ETHERNET_10G, 512, 229,
         1783 / 229 / 8, servers=6),
    Case(TENSORFLOW, "ResNet-50", RESNET_50, "parameter_server", 16, 2, ETHERNET_10G, 512, 378,
         2744 / 378 / 8, servers=8),
    Case(TENSORFLOW, "ResNet-152", RESNET_152, "parameter_server", 12, 2, ETHERNET_10G, 256, 146,
         981 / 146 / 8, servers=4),
)  # fmt: skip


def rows() -> list[dict[str, object]]:
    """Return every case with its predictions, without jitter and with it."""
    return [
        {
            "source": case.source, "net": case.net, "strategy": case.strategy,
            "workers": case.workers - (case.servers or 0), "network": case.between.name,
            "published": round(100 * case.published, 1), "predicted": round(100 * case.predicted(JITTER), 1),
            "without_jitter": round(100 * case.predicted(0.0), 1),
        }
        for case in CASES
    ]  # fmt: skip


def as_markdown() -> str:
    """Return the table of the documentation."""
    head = "| source | net | strategy | workers | network | published | predicted | without jitter |"
    lines = [head, "|---|---|---|---:|---|---:|---:|---:|"]
    for row in rows():
        figures = [f"{row[key]} %" for key in ("published", "predicted", "without_jitter")]
        words = [str(row[key]) for key in ("source", "net", "strategy", "workers", "network")]
        lines.append(f"| {' | '.join([*words, *figures])} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    print(json.dumps(rows(), indent=2) if parser.parse_args().json else as_markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
