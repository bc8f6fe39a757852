"""A process that trains one net on a GPU in one way, and says how long a step takes.

    python -m benchmarks.gpu_subject '{"subject": "eager", "net": "lenet", "batch_size": 64, "precision": "tf32"}'

Times are those between CUDA events in the stream that the steps run on, after some that are not counted. With
`compared` the losses of the first steps are told instead, without dropout; with `dry` a net is built and planned, and
nothing runs.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import catalogue
from benchmarks.catalogue import Net

WARM, LEAST, MOST = 10, 30, 1000
"""Steps that are not counted, and how many are at least and at most."""
SECONDS = 3.0
"""About as long as the steps that are counted take together."""
COMPARED_STEPS = 3


def times(step: Callable[[], object], mark: Callable[[], Any], between: Callable[[Any, Any], float],
          wait: Callable[[], object]) -> list[float]:  # fmt: skip
    """Seconds of steps, from one mark in the stream to the next; the processor only waits for the last."""
    for _ in range(WARM):
        step()
    wait()
    start = perf_counter()
    for _ in range(WARM):
        step()
    wait()
    count = max(LEAST, min(MOST, int(SECONDS * WARM / (perf_counter() - start))))
    marks = [mark()]
    for _ in range(count):
        step()
        marks.append(mark())
    wait()
    return [between(one, other) / 1e3 for one, other in pairwise(marks)]


class OfNetspec:
    """The program that `netspec train --device cuda` runs."""

    def __init__(self, net: Net, precision: str, *, compared: bool) -> None:
        from benchmarks.netspec_subject import NetspecTraining

        self.training = NetspecTraining(net, compared=compared, precision=precision, device="cuda")

    def timed(self) -> dict[str, Any]:
        """Steps on a batch that is there, steps that are given one each, and the least that the arithmetic takes."""
        import cupy

        training, device = self.training, self.training.compiler.device
        stream = device.flow.stream  # type: ignore[attr-defined]  # a GPU's device has one

        def mark() -> Any:
            return stream.record(cupy.cuda.Event())

        run = training.program.run
        return {
            "times": times(run, mark, cupy.cuda.get_elapsed_time, device.wait),
            "fed": times(training.step, mark, cupy.cuda.get_elapsed_time, device.wait),
            "floor": training.floor(),
            "notes": device.notes(training.program.plan),
            "planned": training.planned,
            "gpu": _gpu(),
        }

    def losses(self, folder: Path) -> list[float]:
        """Of the first steps."""
        return self.training.compare(folder, COMPARED_STEPS)


class OfTorch:
    """PyTorch: `eager`, `compile` or `autotune`, in channels_last where the net reads images."""

    def __init__(self, net: Net, precision: str, variant: str, *, compared: bool) -> None:
        import torch

        from benchmarks.torch_subject import TorchTraining

        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        named = variant if variant == "float64" else f"{variant}_channels_last"
        self.training = TorchTraining(net, named, compared=compared, precision=precision, device="cuda")

    def timed(self) -> dict[str, Any]:
        """Steps on a batch that is there."""
        import torch

        def mark() -> Any:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            return event

        found = times(self.training.step, mark, lambda one, other: one.elapsed_time(other), torch.cuda.synchronize)
        return {"times": found, "peak": torch.cuda.max_memory_allocated()}

    def losses(self, folder: Path) -> list[float]:
        """Of the first steps."""
        return self.training.compare(folder, COMPARED_STEPS)


def dry(net: Net, precision: str, subject: str) -> dict[str, Any]:
    """Build and plan; of PyTorch's nets, shapes alone."""
    if subject == "netspec":
        from benchmarks.netspec_subject import planned

        return planned(net, "float32" if precision == "tf32" else precision)
    import torch

    from benchmarks import torch_nets

    with torch.device("meta"):
        model = torch_nets.build(net.name)
        kind = torch.int32 if net.symbols else torch.float32
        scores = model(torch.empty((net.batch_size, *net.shape), dtype=kind))
    trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
    return {"shape": list(scores.shape), "parameters": trained}


def _gpu() -> dict[str, Any]:
    import cupy

    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(runtime.getDevice())["name"]
    return {"name": name.decode(), "driver": runtime.driverGetVersion(), "cuda": runtime.runtimeGetVersion()}


def answer(wanted: dict[str, Any]) -> dict[str, Any]:
    """What a subject finds."""
    net = replace(catalogue.NETS[wanted["net"]], batch_size=wanted["batch_size"])
    precision, name, compared = wanted["precision"], wanted["subject"], wanted.get("compared", False)
    if wanted.get("dry"):
        return dry(net, precision, name)
    ours = name == "netspec"
    subject: OfNetspec | OfTorch = (
        OfNetspec(net, precision, compared=compared) if ours else OfTorch(net, precision, name, compared=compared)
    )
    if not compared:
        return subject.timed()
    with tempfile.TemporaryDirectory() as folder:
        return {"losses": subject.losses(Path(folder))}


def main() -> int:
    """One line of JSON on standard output; whatever a library prints goes to standard error."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(answer(json.loads(sys.argv[1]))), file=told, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
