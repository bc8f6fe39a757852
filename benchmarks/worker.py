"""A process that holds one subject and measures it when told to.

Each subject has a process of its own, and only one of them works at a time. In one process the thread pools of several
libraries would spin beside each other, and the peak of memory would be that of all (see docs/performance.md).

    python -m benchmarks.worker '{"kind": "training", "subject": "eager", "net": "lenet", "compared": false,
                                 "precision": "float32"}'

It answers every line of JSON on standard input with one on standard output.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.catalogue import ALSO, NETS


class Host:
    """A subject, and what can be asked of it."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        _warm_up(wanted)
        self.baseline = resident_bytes()
        self.subject: Any = open_subject(wanted)

    def ready(self) -> dict[str, Any]:
        """What is known once the subject has run its first step."""
        facts = {name: getattr(self.subject, name, None) for name in ("flops", "planned")}
        return {"compile_seconds": self.subject.compile_seconds, **facts}

    def measure(self, seconds: float, least: int) -> dict[str, Any]:
        """Times of steps for so many seconds, and of so many steps at least; one before them is not counted."""
        step, steps = self.subject.step, getattr(self.subject, "steps_per_call", 1)
        gc.collect()
        gc.disable()
        step()
        times: list[float] = []
        end = perf_counter() + seconds
        while len(times) < least or perf_counter() < end:
            start = perf_counter()
            step()
            times.append((perf_counter() - start) / steps)
        gc.enable()
        return {"times": times}

    def compare(self, folder: str, steps: int) -> dict[str, Any]:
        """Losses of the first steps; gradients are written to the folder."""
        return {"losses": self.subject.compare(Path(folder), steps)}

    def roofline(self) -> dict[str, Any]:
        """What the machine can do at best, by netspec's own kernels: FLOP/s of a matrix product, bytes/s of a copy."""
        flops, nbytes = self.subject.roofline()
        return {"flops_per_second": flops, "bytes_per_second": nbytes}

    def save(self, folder: str) -> dict[str, Any]:
        """The net as an ONNX file, with inputs and outputs."""
        self.subject.save(Path(folder))
        return {}

    def difference(self, folder: str) -> dict[str, Any]:
        """From the outputs in the folder."""
        return {"difference": self.subject.largest_difference(Path(folder))}

    def memory(self) -> dict[str, Any]:
        """The most that was resident, and what was after a tiny net."""
        return {"peak": peak_bytes(), "baseline": self.baseline}


MODULES = {
    "netspec": "netspec_subject",
    "onnxruntime": "onnxruntime_subject",
    "jax": "jax_subject",
    "sklearn": "sklearn_subject",
}
"""Of subjects; every other one is a way to use PyTorch."""


def _module(subject: str) -> Any:
    return import_module(f"benchmarks.{MODULES.get(subject, 'torch_subject')}")


def _warm_up(wanted: dict[str, Any]) -> None:
    """Have the library load whatever it loads at first use, so that its code is no part of the net's memory."""
    _module(wanted["subject"]).warm_up()


def open_subject(wanted: dict[str, Any]) -> Any:
    """Make the subject that is wanted."""
    name, net = wanted["subject"], NETS[wanted["net"]]
    module = _module(name)
    if wanted["kind"] == "prediction":
        if name == "netspec":
            return module.NetspecPrediction(net, wanted["batch_size"])
        return module.OnnxRuntimePrediction(Path(wanted["folder"]), wanted["threads"])
    compared, precision = wanted["compared"], wanted["precision"]
    if name in ALSO:
        return getattr(module, {"jax": "JaxTraining", "sklearn": "SklearnTraining"}[name])(net, compared=compared)
    if name == "netspec":
        return module.NetspecTraining(net, compared=compared, precision=precision)
    module.set_threads(wanted["threads"])
    return module.TorchTraining(net, name, compared=compared, precision=precision)


def peak_bytes() -> int:
    """The most memory that was resident at once. `ru_maxrss` would count what the parent had when it forked."""
    status = Path("/proc/self/status")
    if status.is_file():
        return _kilobytes(status, "VmHWM") * 1024
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def resident_bytes() -> int:
    """What is resident now; where that is not known, the most that was."""
    status = Path("/proc/self/status")
    return _kilobytes(status, "VmRSS") * 1024 if status.is_file() else peak_bytes()


def _kilobytes(status: Path, key: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(key))
    return int(line.split()[1])


def main() -> int:
    """Serve one host until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is no answer
    host = Host(json.loads(sys.argv[1]))
    print(json.dumps(host.ready()), file=answers)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(getattr(host, asked.pop("do"))(**asked)), file=answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
