"""`python -m tests.backends.cuda.compile`: compile all generated CUDA C++ with NVRTC, which needs no GPU.

Kernels are bound to CuPy's own arrays, and CuPy launches them as far as it can without a GPU. They are compiled for two
architectures. The exit status is 1, after the errors, if CuPy or the compiler rejects something.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from netspec.backends.backend import load_kernels
from netspec.backends.cuda import launch
from netspec.backends.cuda.cublaslt.library import SETTING
from netspec.backends.cuda.execution_queue import ExecutionQueue
from netspec.backends.cuda.graph_capture import bind_input_copies
from netspec.distributed import Communicator
from netspec.distributed.backends.nccl.memory import BucketBuffer
from netspec.distributed.backends.nccl.one_bit import OneBitAllReduce
from netspec.distributed.backends.nccl.sixteen_bit import FORMS, SixteenBitAllReduce
from netspec.graph.kernel import registered_kernels
from tests.backends.cuda import nvrtc
from tests.backends.cuda.calls import KERNELS, prepared
from tests.backends.cuda.cublaslt.library import stand_in
from tests.backends.cuda.cudnn import fake
from tests.backends.cuda.emulator import OnHost
from tests.backends.cuda.without_gpu import CupyDevice, StartingEngine, load, wrapped

ARCHITECTURES = ("sm_80", "sm_90")
"""Ampere, the first with bfloat16, and Hopper. Newer ones compile the same source, and take as long again each."""
_NO_NCCL: Any = None
"""Stands for NCCL, which nothing calls here."""
AT_ONCE = 200
"""Number of kernels that are compiled as one source: every source begins with the same code."""


class Collector(OnHost):
    """Binds kernels to NumPy's arrays, and runs none."""

    def starter(self, name: str, text: str) -> launch.Starter:
        """A starter that does nothing."""
        assert text.isascii(), f"CuPy writes sources in the encoding of the locale, and this is not ASCII:\n{text}"
        return lambda blocks, threads, arguments: None


def main() -> int:
    """Bind, start and compile everything, and return the exit status."""
    cupy, began = load(), time.perf_counter()
    CupyDevice.cupy = cupy
    engine, device = StartingEngine(cupy), CupyDevice()
    launch.use(engine)
    for kernel in KERNELS:
        for case in prepared(kernel, device):
            case.run()
    _of_graphs(cupy, device)
    _of_libraries(device)
    _of_workers(cupy)
    texts, wrong = (
        list(engine.texts.values()),
        [f"{name}: {complaint}" for name, complaint in engine.complaints.items()],
    )
    wrong += [f"{name}: CuPy writes it in the encoding of the locale, and it is not ASCII" for name, text in
              engine.texts.items() if not text.isascii()]  # fmt: skip
    for architecture in ARCHITECTURES:
        for start in range(0, len(texts), AT_ONCE):
            text = "\n".join([launch.prelude(), *texts[start : start + AT_ONCE]])
            if (output := nvrtc.complaints(text, architecture)) is not None:
                wrong.append(f"{architecture}:\n{output[:4000]}")
    seconds = time.perf_counter() - began
    print("\n".join(wrong))
    print(f"{len(texts)} kernels, {', '.join(ARCHITECTURES)}: {len(wrong) or 'no'} complaints, {seconds:.0f} s")
    return 1 if wrong or not texts else 0


def _of_graphs(cupy: Any, device: CupyDevice) -> None:
    """Bind the kernels of a graph that belong to no op, and a call of each kernel that the stop flag skips."""
    flow = ExecutionQueue.__new__(ExecutionQueue)  # streams need a GPU
    flow.flag = wrapped(cupy, np.zeros(1, np.int32))
    for dtype in (np.float32, np.float64):
        flow.guard_check(wrapped(cupy, np.zeros((), dtype)))()
    bind_input_copies(wrapped(cupy, np.zeros(64, np.uint8)), {"x": 0}, {"x": wrapped(cupy, np.zeros(16, np.float32))})()
    with flow.stop_context():
        for kernel in KERNELS:
            for case in islice(prepared(kernel, device), 1):
                case.run()


def _of_libraries(device: CupyDevice) -> None:
    """Bind calls of cuBLASLt and cuDNN: stand-ins for the libraries take the addresses of CuPy's arrays."""
    os.environ[SETTING] = stand_in()
    sys.modules["cudnn"] = fake
    for name in ("cublaslt", "cudnn"):
        load_kernels(name)
        for kernel in registered_kernels([name]):
            for case in prepared(kernel, device):
                case.run()


def _of_workers(cupy: Any) -> None:
    """Yield the calls that pack gradients for other workers and add up received ones."""
    group = Communicator()
    group.size = 2

    def arrays(dtype: Any) -> Sequence[Any]:
        return [wrapped(cupy, np.zeros(shape, dtype)) for shape in ((33, 7), (5, 3, 2, 2))]

    for dtype in (np.float32, np.float64):
        sums: list[OneBitAllReduce | SixteenBitAllReduce] = [OneBitAllReduce(group, _NO_NCCL, arrays(dtype))]
        sums += [SixteenBitAllReduce(group, _NO_NCCL, form, arrays(dtype)) for form in FORMS]
        for buffer in [*sums, BucketBuffer(arrays(dtype))]:
            buffer.pack()
            buffer.unpack()


if __name__ == "__main__":
    sys.exit(main())
