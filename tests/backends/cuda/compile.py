"""`python -m tests.backends.cuda.compile`: all generated CUDA C++ goes through NVRTC, which needs no GPU.

It is compiled for two architectures. Exit status 1, with what the compiler says, where it complains.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from netspec.backends.cuda import launch
from netspec.backends.cuda.flow import Flow
from netspec.backends.cuda.steps import taking
from netspec.backends.nccl.one_bit import BitSum
from netspec.parallel import Communicator
from tests.backends.cuda import nvrtc
from tests.backends.cuda.calls import KERNELS, prepared
from tests.backends.cuda.emulator import OnHost
from tests.backends.cuda.fake import Machine

ARCHITECTURES = ("sm_80", "sm_90")
"""Ampere, the first with bfloat16, and Hopper. Newer ones compile the same source, and take as long again each."""
_NO_NCCL: Any = None
"""Nothing is sent."""
AT_ONCE = 200
"""Kernels of one source: each has the same beginning."""


class Collector(OnHost):
    """Keeps sources, and runs nothing."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def starter(self, name: str, text: str) -> launch.Starter:
        """None that does anything."""
        self.texts[name] = text.removeprefix(launch.prelude())
        return lambda blocks, threads, arguments: None


def main() -> int:
    """Compile everything; the exit status."""
    collector, began = Collector(), time.perf_counter()
    launch.use(collector)
    for one in KERNELS:
        for _ in prepared(one):
            pass
    _of_graphs()
    _of_workers()
    texts, failed = list(collector.texts.values()), 0
    for architecture in ARCHITECTURES:
        for start in range(0, len(texts), AT_ONCE):
            text = "\n".join([launch.prelude(), *texts[start : start + AT_ONCE]])
            if (said := nvrtc.complaints(text, architecture)) is not None:
                print(f"{architecture}:\n{said[:4000]}")
                failed += 1
    seconds = time.perf_counter() - began
    print(f"{len(texts)} kernels, {', '.join(ARCHITECTURES)}: {failed or 'no'} complaints, {seconds:.0f} s")
    return 1 if failed or not texts else 0


def _of_graphs() -> None:
    """What a recorded step has beside kernels of ops, and one call of each of those as the flag stops it."""
    flow = Flow(Machine().cupy())
    for dtype in (np.float32, np.float64):
        flow.judge(np.zeros((), dtype))
    taking(np.zeros(64, np.uint8), {"x": 0}, {"x": np.zeros(16, np.float32)})
    with flow.stopping():
        for one in KERNELS:
            next(prepared(one), None)


def _of_workers() -> None:
    """What packs gradients for other workers, and makes their sum of what comes."""
    group = Communicator()
    group.size = 2
    for dtype in (np.float32, np.float64):
        BitSum(group, _NO_NCCL, [np.zeros((33, 7), dtype), np.zeros((5, 3, 2, 2), dtype)])


if __name__ == "__main__":
    sys.exit(main())
