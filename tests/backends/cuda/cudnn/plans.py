"""`python -m tests.backends.cuda.cudnn.plans`: cuDNN plans convolutions and attention for an H200 that is absent.

For batch normalization, cuDNN only selects an engine, without compiling its kernels, which needs a driver.

Needs nvidia-cudnn-frontend and nvidia-cudnn-cu13 (366 MB), but neither a GPU nor a driver: planning takes place on the
CPU. Some versions of cuDNN load the driver's library anyway; if it is missing, a stand-in is compiled. A plan shows
that cuDNN supports an op, not that its results are right. The exit status is 1 if there is no plan for some op.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from netspec.backends.backend import load_kernels
from netspec.backends.cuda.cudnn import library
from netspec.backends.cuda.gpus import planned_for
from netspec.backends.device_registry import PlannedGpu
from netspec.compile import Compiler, ProgramKind
from netspec.graph.execution_plan import ExecutionPlan
from netspec.graph.fused import EpilogueFused, PrologueFused
from netspec.graph.ops.attention import Attention, AttentionGrad
from netspec.graph.ops.batch_normalization import BatchNormalizationGrad, BatchNormalizationTraining, ChannelwiseOp
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.graph.types import DType, Precision
from netspec.schema.load import load_net
from netspec.solvers.sgd import SGD
from tests.backends.cuda.cudnn.attention_graph import SIZES, failures
from tests.backends.cuda.cudnn.driver import load_driver

ROOT = Path(__file__).parents[4]
NETS = {
    "model_zoo/lenet_mnist/net.yaml": 64,
    "model_zoo/cifar10_quick/net.yaml": 100,
    "benchmarks/nets/resnet20.yaml": 128,
    "model_zoo/alexnet/net.yaml": 128,
    "model_zoo/vgg_a/net.yaml": 64,
    "benchmarks/nets/googlenet.yaml": 128,
    "benchmarks/nets/resnet50.yaml": 256,
    "benchmarks/nets/transformer.yaml": 64,
}
"""Nets and the batch size of each."""
load_kernels("reference", "cuda", "cudnn")
PRECISIONS = (Precision.FLOAT32, Precision.TF32, Precision.BFLOAT16, Precision.FLOAT16)
ATTENTIONS = (Attention, AttentionGrad)
PLANNED = (Conv, ConvInputGrad, ConvWeightGrad, BatchNormalizationTraining, BatchNormalizationGrad, *ATTENTIONS)


class Planned(PlannedGpu):
    """An H200 without cuBLASLt, which would compute convolutions with 1 × 1 outputs."""

    backends: ClassVar[tuple[str, ...]] = ("reference", "cuda", "cudnn")


def asked(plan: ExecutionPlan) -> Iterator[tuple[Any, str, str | None]]:
    """Yield each node that cuDNN may compute: a key, the kernel's backend, and the reason if cuDNN has no plan."""
    for node, choice in plan.choices.items():
        op = (
            node.op.anchor
            if isinstance(node.op, EpilogueFused)
            else node.op.op
            if isinstance(node.op, PrologueFused)
            else node.op
        )
        if isinstance(op, PLANNED):
            types = tuple(value.type for value in node.inputs)
            reasons = [f"{label}: {why}" for label, why in choice.rejected if "cuDNN has no plan" in why]
            reason = f"{op.name} {' '.join(map(str, types))}: {'; '.join(reasons)}" if reasons else None
            attends = "attentions" if isinstance(op, ATTENTIONS) else "convolutions"
            kind = "normalizations" if isinstance(op, ChannelwiseOp) else attends
            yield (node.op, types), f"{kind} by {choice.kernel.backend}", reason


def main() -> int:
    """Plan all nets; return the exit status."""
    driver = "a driver that does nothing" if load_driver() else "this machine's driver"
    device = Planned("h200")
    reason = library.planning_caveat(device.name)
    if reason is not None:
        print(reason)
        return 1
    missed = []
    solver = SGD.model_validate({"type": "SGD", "momentum": 0.9, "learning_rate": 0.01})
    for path, batch in NETS.items():
        for precision in PRECISIONS:
            compiler = Compiler(load_net(ROOT / path), solver=solver, device=device, dtype=precision)
            plan = compiler.plan(ProgramKind.TRAIN, batch)
            actual = {key: (backend, why) for key, backend, why in asked(plan)}
            counted = Counter(backend for backend, _ in actual.values())
            missed += [why for _, why in actual.values() if why is not None]
            workspace = max((buffer.size for buffer in plan.memory.workspace.values()), default=0)
            described = ", ".join(f"{count} {backend}" for backend, count in sorted(counted.items()))
            print(f"{path} ({batch}) {precision}: {described}; largest workspace {workspace / 1e6:,.1f} MB", flush=True)
    with planned_for(device.name):
        for dtype, name in product((DType.BFLOAT16, DType.FLOAT16), SIZES):
            found_wrong = list(failures(dtype, name))
            missed += found_wrong
            print(f"attentions, {name}, {dtype}: {len(found_wrong)} not as they should be", flush=True)
    print("\n".join([f"cuDNN {library.version(library.frontend())}, {driver}: {len(missed)} without a plan", *missed]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
