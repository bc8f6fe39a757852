"""Measure the peak rates of this machine: a large matrix product, and a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from netspec.backends.device import Device
from netspec.backends.program import Program
from netspec.backends.states import States
from netspec.compile import make_plan
from netspec.graph.graph import Graph
from netspec.graph.ops.elementwise import Neg
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, Precision, TensorType

MATRICES = (512, 1024, 2048)
"""Sizes of the square matrices. Large ones amortize most; small ones are done before other work interrupts them."""
COPIED = 2**26
"""Bytes copied at a time: more than caches hold."""
SHORT, LARGEST, MAX_COPIED = 1e-3, 2**14, 2**31
"""Calls shorter than this many seconds are dominated by launches: double the size, up to these matrices and bytes."""
BUDGET = 0.25
"""Duration of each measurement in seconds."""


@dataclass(frozen=True)
class Roofline:
    """The two rates that bound every node (Williams et al. 2009, "Roofline")."""

    flops_per_second: float
    """FLOP/s of a large matrix product by the device's own kernel; a multiplication and an addition are two."""
    bytes_per_second: float
    """Bytes read plus bytes written, for arrays larger than the caches. Data that fits into a cache can be faster."""

    def seconds(self, flops: float, nbytes: float) -> float:
        """Return the minimum time of this work at these rates, if arithmetic and memory traffic overlap."""
        return max(flops / self.flops_per_second, nbytes / self.bytes_per_second)


def measure_roofline(device: Device, dtype: DType | Precision = Precision.FLOAT32) -> Roofline:
    """Measure for about a second. Products run as programs of the device, so their rate includes its kernels."""
    sizes, copied, products, copies = list(MATRICES), COPIED, list[float](), list[float]()
    for size in sizes:
        seconds = _fastest(_product(device, dtype, size))
        products.append(2 * size**3 / seconds)
        if size == sizes[-1] < LARGEST and seconds < SHORT:
            sizes.append(2 * size)
    while not copies or (2 * copied / copies[-1] < SHORT and copied < MAX_COPIED):
        copied *= 1 + bool(copies)
        copies += [2 * copied / _fastest(copy(device, dtype.compute_dtype, copied)) for copy in (_copy, _negation)]
    return Roofline(max(products), max(copies))


def _product(device: Device, dtype: DType | Precision, size: int) -> Callable[[], None]:
    kind = TensorType((size, size), dtype.compute_dtype)
    return _program(device, Graph({"y": MatMul()(Input("a", kind)(), Input("b", kind)())}), dtype)


def _negation(device: Device, dtype: DType, nbytes: int) -> Callable[[], None]:
    """A pass over memory by an elementwise kernel, which may use several threads, unlike a plain copy."""
    kind = TensorType((nbytes // dtype.itemsize,), dtype)
    return _program(device, Graph({"y": Neg()(Input("x", kind)())}), dtype)


def _copy(device: Device, dtype: DType, nbytes: int) -> Callable[[], None]:
    kind = TensorType((nbytes // dtype.itemsize,), dtype)
    source, target = (device.view(device.allocate(kind.nbytes), 0, kind) for _ in range(2))
    copy = device.copier(target, source)

    def run() -> None:
        with device.running():  # on the stream that `wait` waits for
            copy()

    return _awaited(device, run)


def _program(device: Device, graph: Graph, dtype: DType | Precision) -> Callable[[], None]:
    """Return a call of the graph on inputs that are random at first."""
    program = Program(make_plan(graph, device, dtype), device, States({}, device))
    random = np.random.default_rng(0)
    program.write({name: random.standard_normal(value.shape) for name, value in program.inputs.items()})
    return _awaited(device, program.run)


def _awaited(device: Device, call: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        call()
        device.wait()

    return run


def _fastest(call: Callable[[], object]) -> float:
    """Seconds of the fastest call, since other work on the machine only adds time."""
    call()
    best, end = float("inf"), perf_counter() + BUDGET
    while (start := perf_counter()) < end or best == float("inf"):
        call()
        best = min(best, perf_counter() - start)
    return best
