"""A process that trains one net on a GPU in one way and prints the time of a step.

python -m benchmarks.gpu_subject '{"subject": "eager", "net": "lenet", "batch_size": 64, "precision": "tf32"}'

Times are those between CUDA events in the stream of the steps, after some steps that are not counted. With `compared`,
prints the losses of the first steps without dropout instead; with `dry`, builds and plans the net without running it.
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

WARM_UP_STEPS, MIN_STEPS, MAX_STEPS = 10, 30, 1000
"""Number of steps that are not counted, and minimum and maximum number of those that are."""
SECONDS = 3.0
"""Approximate total seconds of the steps that are counted."""
COMPARED_STEPS = 3


def times(step: Callable[[], object], mark: Callable[[], Any], between: Callable[[Any, Any], float],
          wait: Callable[[], object]) -> list[float]:  # fmt: skip
    """Return the seconds of steps, between events in the stream. The CPU waits only for the last one."""
    for _ in range(WARM_UP_STEPS):
        step()
    wait()
    start = perf_counter()
    for _ in range(WARM_UP_STEPS):
        step()
    wait()
    count = max(MIN_STEPS, min(MAX_STEPS, int(SECONDS * WARM_UP_STEPS / (perf_counter() - start))))
    marks = [mark()]
    for _ in range(count):
        step()
        marks.append(mark())
    wait()
    return [between(start, end) / 1e3 for start, end in pairwise(marks)]


class NetspecGpuTraining:
    """The program that `netspec train --device cuda` runs."""

    def __init__(self, net: Net, precision: str, *, compared: bool) -> None:
        from benchmarks.netspec_subject import NetspecTraining

        self.training = NetspecTraining(net, compared=compared, precision=precision, device="cuda")

    def timed(self) -> dict[str, Any]:
        """Time steps with and without copying a batch, and compute the minimum time of the arithmetic."""
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
        """Return the losses of the first steps."""
        return self.training.compare(folder, COMPARED_STEPS)


class TorchGpuTraining:
    """PyTorch: `eager`, `compile` or `autotune`, in channels_last if the net reads images."""

    def __init__(self, net: Net, precision: str, variant: str, *, compared: bool) -> None:
        import torch

        from benchmarks.torch_subject import TorchTraining

        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        named = variant if variant == "float64" else f"{variant}_channels_last"
        self.training = TorchTraining(net, named, compared=compared, precision=precision, device="cuda")

    def timed(self) -> dict[str, Any]:
        """Time steps on a batch on the device."""
        import torch

        def mark() -> Any:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            return event

        seconds = times(self.training.step, mark, lambda start, end: start.elapsed_time(end), torch.cuda.synchronize)
        return {"times": seconds, "peak": torch.cuda.max_memory_allocated()}

    def losses(self, folder: Path) -> list[float]:
        """Return the losses of the first steps."""
        return self.training.compare(folder, COMPARED_STEPS)


def dry(net: Net, precision: str, subject: str) -> dict[str, Any]:
    """Build and plan; for PyTorch's nets, only compute shapes."""
    if subject == "netspec":
        from benchmarks.netspec_subject import planned

        return planned(net, "float32" if precision == "tf32" else precision)
    import torch

    from benchmarks import torch_nets

    with torch.device("meta"):
        model = torch_nets.build(net.name)
        kind = torch.int32 if net.symbols else torch.float32
        scores = model(torch.empty((net.batch_size, *net.shape), dtype=kind))
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return {"shape": list(scores.shape), "parameters": trained}


def _gpu() -> dict[str, Any]:
    import cupy

    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(runtime.getDevice())["name"]
    return {"name": name.decode(), "driver": runtime.driverGetVersion(), "cuda": runtime.runtimeGetVersion()}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a subject."""
    net = replace(catalogue.NETS[request["net"]], batch_size=request["batch_size"])
    precision, name, compared = request["precision"], request["subject"], request.get("compared", False)
    if request.get("dry"):
        return dry(net, precision, name)
    ours = name == "netspec"
    subject: NetspecGpuTraining | TorchGpuTraining = (
        NetspecGpuTraining(net, precision, compared=compared)
        if ours
        else TorchGpuTraining(net, precision, name, compared=compared)
    )
    if not compared:
        return subject.timed()
    with tempfile.TemporaryDirectory() as folder:
        return {"losses": subject.losses(Path(folder))}


def main() -> int:
    """Print one line of JSON on standard output; output of libraries goes to standard error."""
    stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(answer(json.loads(sys.argv[1]))), file=stdout, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
