"""`python -m tests.backends.cudnn.plans`: cuDNN plans every convolution of known nets for an H200 that is not there.

It needs the packages of the extra `cuda13`, cuDNN's 366 MB among them, but neither a GPU nor a driver: planning takes
place on the processor. Some versions of cuDNN look for the driver's library all the same, of which an empty one will
do (docs/gpu.md). A plan that is made says nothing about its numbers. Exit status 1 where a convolution has none.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import netspec.backends.cuda.kernels
import netspec.backends.cudnn.kernels
import netspec.backends.reference.kernels  # noqa: F401  # they register them
from netspec.backends.cuda.device import CudaDevice
from netspec.backends.cudnn import library
from netspec.backends.device import NullDevice
from netspec.compile import Compiler, Purpose
from netspec.graph.fused import Anchored
from netspec.graph.plan import Plan
from netspec.graph.types import Precision
from netspec.layers.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.schema.load import load_net
from netspec.solvers.sgd import SGD

ROOT = Path(__file__).parents[3]
H200 = {
    "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0, "pciDeviceId": 0,
    "multiProcessorCount": 132, "smCountOrigin": 0, "warpSize": 32, "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "maxCtasPerSM": 32, "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
    "maxBlockSize": [1024, 1024, 64], "maxGridSize": [2147483647, 65535, 65535], "l2CacheSize": 52428800,
    "totalGlobalMem": 150754820096, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "memoryBusWidth": 6144,
    "isTccDriver": 0, "supportCoopLaunch": 1,
}  # fmt: skip
"""What the library asks of a GPU's properties."""
NETS = {
    "model_zoo/lenet_mnist/net.yaml": 64,
    "model_zoo/cifar10_quick/net.yaml": 100,
    "benchmarks/nets/resnet20.yaml": 128,
    "benchmarks/nets/alexnet.yaml": 128,
    "benchmarks/nets/vgg_a.yaml": 64,
    "benchmarks/nets/googlenet.yaml": 128,
    "benchmarks/nets/resnet50.yaml": 256,
}
"""Nets and the batch size of each."""
PRECISIONS = (Precision.FLOAT32, Precision.TF32, Precision.BFLOAT16, Precision.FLOAT16)
CONVOLUTIONS = (Conv, ConvInputGrad, ConvWeightGrad)


class Absent(NullDevice):
    """A GPU that is not there."""

    name = "H200"
    backends: ClassVar[tuple[str, ...]] = ("reference", "cuda", "cudnn")
    kernels = backends
    narrow = CudaDevice.narrow


def deviceless() -> dict[str, Any]:
    """What a graph is made with that runs nowhere."""
    properties = library.frontend().create_device_properties(json.dumps(H200))
    return {"device_property": properties, "sm_version": 90}


def convolutions(plan: Plan) -> Iterator[tuple[Any, str, str]]:
    """Each convolution of a plan: what it is, the backend that has it, and why it is not cuDNN."""
    for node, choice in plan.choices.items():
        op = node.op.anchor if isinstance(node.op, Anchored) else node.op
        if isinstance(op, CONVOLUTIONS):
            reasons = [reason for label, reason in choice.declined if label.startswith("cudnn:")]
            key = node.op, tuple(value.type for value in node.inputs)
            yield (
                key,
                choice.kernel.backend,
                f"{op.name} {' '.join(str(value.type) for value in node.inputs)}: {reasons}",
            )


def main() -> int:
    """Plan all; the exit status."""
    library.preload()
    library.target = deviceless
    missed = []
    solver = SGD.model_validate({"type": "SGD", "momentum": 0.9, "learning_rate": 0.01})
    for path, batch in NETS.items():
        for precision in PRECISIONS:
            compiler = Compiler(load_net(ROOT / path), solver=solver, device=Absent(), dtype=precision)
            plan = compiler.plan(Purpose.TRAIN, batch)
            found = {key: (backend, why) for key, backend, why in convolutions(plan)}
            counted = Counter(backend for backend, _ in found.values())
            missed += [why for backend, why in found.values() if backend != "cudnn"]
            workspace = max((one.size for one in plan.memory.workspace.values()), default=0)
            told = ", ".join(f"{count} {backend}" for backend, count in sorted(counted.items()))
            print(f"{path} ({batch}) {precision}: {told}; largest workspace {workspace / 1e6:,.1f} MB", flush=True)
    print("\n".join([f"cuDNN {library.version(library.frontend())}: {len(missed)} without a plan", *missed]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
