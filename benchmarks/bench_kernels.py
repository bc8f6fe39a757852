"""Compares the kernels of all backends on operations of the benchmarks' nets.

Each kernel is bound as in a program and called repeatedly; the fastest call counts, since other work on the machine
only adds time. There is no value if a backend's kernels reject an operation: `netspec plan --kernels` prints the
reason.

python -m benchmarks.bench_kernels [--only pooling,softmax] [--threads 1] [--quick] [--json]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.alternate import BenchmarkError
from benchmarks.results import Results
from netspec.backends.device import Device
from netspec.backends.device_registry import open_device
from netspec.graph.kernel import Buffers, Kernel, kernels_for
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.batch_normalization import BatchNormalizationGrad, BatchNormalizationTraining
from netspec.graph.ops.elementwise import Add, Div, Neg
from netspec.graph.ops.pooling import AveragePool, AveragePoolGrad, MaxPool, MaxPoolGrad
from netspec.graph.ops.reduce import ReduceMean, ReduceSum
from netspec.graph.ops.shape import Concat, Reorder, Transpose
from netspec.graph.ops.softmax import LogSoftmax, Softmax
from netspec.graph.ops.source import Input
from netspec.graph.ops.special import Gelu, GeluGrad
from netspec.graph.ops.unary import Abs, Elu, Log, Sigmoid, Softplus, Sqrt, Tanh
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

SECONDS = 0.3
"""Seconds for which a kernel is called."""
LAST = Layout.channels_last(4)


@dataclass(frozen=True)
class Case:
    """An op on operands of these shapes, channels-last if they are images."""

    label: str
    op: Op
    shapes: tuple[tuple[int, ...], ...]
    plain: bool = False

    def node(self) -> Node:
        """Return a call of the op on inputs; positions of maxima are integers."""
        with_positions = isinstance(self.op, MaxPoolGrad)
        inputs = [
            Input(f"x{index}", TensorType(shape, DType.INT32 if with_positions and index else DType.FLOAT32))()
            for index, shape in enumerate(self.shapes)
        ]
        return self.op.call_multi(*inputs)[0].node

    def lying(self, shape: tuple[int, ...]) -> Layout:
        """Return the layout of an operand before the kernel is chosen."""
        return LAST if len(shape) == 4 and not self.plain else PLAIN


def pooling() -> list[Case]:
    """Pooling layers, forward and backward."""
    cases = []
    for label, shape, size, stride, pads in (
        ("LeNet pool1", (64, 20, 24, 24), 2, 2, (0, 0)),
        ("CIFAR-10-quick pool1", (100, 32, 32, 32), 3, 2, (0, 1)),
        ("ResNet-50 pool1", (8, 64, 112, 112), 3, 2, (1, 1)),
        ("GoogLeNet 3a", (16, 192, 28, 28), 3, 1, (1, 1)),
        ("GoogLeNet pool2", (16, 192, 56, 56), 3, 2, (0, 1)),
        ("GoogLeNet 5b", (16, 832, 7, 7), 3, 1, (1, 1)),
    ):
        window = Window((size,) * 2, (stride,) * 2, (pads,) * 2, (1, 1))
        small = (*shape[:2], *window.out(shape[2:]))
        cases += [
            Case(f"{label}, max", MaxPool(window), (shape,)),
            Case(f"{label}, max, gradient", MaxPoolGrad(window, shape), (small, small)),
            Case(f"{label}, average", AveragePool(window), (shape,)),
            Case(f"{label}, average, gradient", AveragePoolGrad(window, shape), (small,)),
        ]
    return cases


def normalization() -> list[Case]:
    """Batch normalization in training, forward and backward."""
    cases = []
    for label, shape in (
        ("ResNet-20, 32²", (128, 16, 32, 32)),
        ("ResNet-20, 8²", (128, 64, 8, 8)),
        ("ResNet-50, 56²", (8, 256, 56, 56)),
        ("ResNet-50, 28²", (8, 512, 28, 28)),
        ("ResNet-50, 7²", (8, 2048, 7, 7)),
        ("MobileNet, 112²", (16, 64, 112, 112)),
        ("MobileNet, 14²", (16, 512, 14, 14)),
    ):
        vector = shape[1:2]
        cases += [
            Case(label, BatchNormalizationTraining(), (shape, vector, vector)),
            Case(f"{label}, gradient", BatchNormalizationGrad(), (shape, vector, vector, vector, shape)),
        ]
    return cases


def softmax() -> list[Case]:
    """Softmax along the last axis."""
    shapes = ((64, 4, 128, 128), (2048, 100), (128, 1000))
    return [Case(f"{list(shape)}", op(-1), (shape,), plain=True) for shape in shapes for op in (Softmax, LogSoftmax)]


def movement() -> list[Case]:
    """Transposes and layout changes."""
    images = ((64, 20, 24, 24), (8, 64, 112, 112), (16, 3, 224, 224), (16, 512, 7, 7))
    turned = ((32, 128, 8, 64), (0, 2, 1, 3)), ((32, 64, 512), (2, 0, 1)), ((512, 1024), (1, 0))
    return [
        *(Case(f"{list(image)} to channels-last", Reorder(PLAIN, LAST), (image,), plain=True) for image in images),
        *(Case(f"{list(image)} to plain", Reorder(LAST, PLAIN), (image,)) for image in images),
        *(Case(f"{list(shape)} by {list(axes)}", Transpose(axes), (shape,), plain=True) for shape, axes in turned),
    ]


def sums() -> list[Case]:
    """Sums: gradients of biases, sums of rows."""
    images = ((64, 20, 24, 24), (100, 32, 32, 32), (16, 192, 56, 56))
    rows = (64, 1000), (512, 64), (4096, 256), (256, 4096)
    return [
        *(Case(f"{list(image)}", ReduceSum((0, 2, 3)), (image,)) for image in images),
        *(Case(f"{list(row)}, rows", op((-1,)), (row,), plain=True) for row in rows for op in (ReduceSum, ReduceMean)),
        Case("all of [1024, 1024]", ReduceSum(), ((1024, 1024),), plain=True),
    ]


def pointwise() -> list[Case]:
    """Separate elementwise functions and arithmetic, outside of fused groups."""
    functions: list[Op] = [Gelu(), Softplus(), Sigmoid(), Tanh(), Elu(), Log(), Sqrt(), Abs(), Neg()]
    shapes = ((64, 256), (2048, 1024))
    sums = ((64, 56, 56, 16), (64, 56, 56, 16)), ((2048, 1024), (1024,)), ((2048, 1024), (2048, 1)), ((2048, 1024), ())
    return [
        *(Case(f"{list(shape)}", op, (shape,), plain=True) for op in functions for shape in shapes),
        *(Case(f"{list(shape)}", GeluGrad(), (shape, shape), plain=True) for shape in shapes),
        *(Case(f"{list(a)}, {list(b)}", op, (a, b), plain=True) for op in (Add(), Div()) for a, b in sums),
    ]


def concatenation() -> list[Case]:
    """Concatenation along the channels of images, and of rows."""
    inception = (16, 64, 28, 28), (16, 128, 28, 28), (16, 32, 28, 28), (16, 32, 28, 28)
    return [
        Case("GoogLeNet 3a", Concat(1), inception),
        Case("GoogLeNet 3a, plain", Concat(1), inception, plain=True),
        Case("few channels", Concat(1), ((128, 16, 16, 16),) * 2),
        Case("rows", Concat(-1), ((2048, 256), (2048, 256)), plain=True),
    ]


GROUPS: dict[str, Callable[[], list[Case]]] = {
    "pooling": pooling, "normalization": normalization, "softmax": softmax, "movement": movement, "sums": sums,
    "pointwise": pointwise, "concatenation": concatenation,
}  # fmt: skip


def milliseconds(device: Device, kernel: Kernel, case: Case, seconds: float) -> float:
    """Return the time of the fastest of many calls."""
    node = case.node()
    signature = kernel.layouts(node, [case.lying(value.shape) for value in node.inputs])
    if isinstance(case.op, Reorder):
        signature = LayoutSignature((case.op.source,), (case.op.target,))
    generator = np.random.default_rng(1)

    def array(kind: TensorType, layout: Layout) -> Any:
        operand = device.view(device.allocate(kind.nbytes), 0, kind, layout)
        device.upload(operand, generator.uniform(0.1, 1, kind.shape))  # positions of maxima become 0
        return operand

    inputs = tuple(array(value.type, layout) for value, layout in zip(node.inputs, signature.inputs, strict=True))
    outputs = tuple(array(value.type, layout) for value, layout in zip(node.outputs, signature.outputs, strict=True))
    scratch = kernel.workspace(node, signature)
    run = kernel.bind(node, Buffers(inputs, outputs, signature, device.allocate(scratch) if scratch else None))
    run()
    best, start = float("inf"), perf_counter()
    while perf_counter() - start < seconds:
        before = perf_counter()
        run()
        best = min(best, perf_counter() - before)
    return best * 1e3


def main() -> int:
    """Time the kernels of every case."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--only", help=f"run these groups, separated by commas: {', '.join(GROUPS)} [all]")
    options = report.parsed(parser)
    groups = (options.only or ",".join(GROUPS)).split(",")
    if unknown := [name for name in groups if name not in GROUPS]:
        raise BenchmarkError(f"no such group: {', '.join(unknown)} (there are {', '.join(GROUPS)})")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # read when the first kernel is loaded
    device = open_device("cpu")
    results = Results("kernels", options, "numba", "onednn-cpu-gomp")
    backends = [name for name in device.kernels if name != "reference"]
    seconds = SECONDS / 5 if options.quick else SECONDS
    for group in groups:
        for case in GROUPS[group]():
            took = {name: ms / 1e3 for name, ms in raced(device, case, backends, seconds).items()}
            results.add({"operation": f"{case.op.name}, {case.label}", "seconds": took})
    return results.end()


def raced(device: Device, case: Case, backends: list[str], seconds: float) -> dict[str, float]:
    """Return the time of each backend's first kernel that accepts the operation."""
    types = [value.type for value in case.node().inputs]
    times: dict[str, float] = {}
    for kernel in kernels_for(type(case.op), backends):
        if kernel.backend not in times and kernel.reject_reason(case.op, *types) is None:
            times[kernel.backend] = milliseconds(device, kernel, case, seconds)
    return times


if __name__ == "__main__":
    sys.exit(report.run(main))
