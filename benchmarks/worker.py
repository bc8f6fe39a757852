"""A process that holds one subject and measures it on request.

Each subject has its own process, and only one works at a time. In one process the thread pools of several libraries
would spin at the same time, and the peak of memory would be that of all (see docs/performance.md).

python -m benchmarks.worker '{"kind": "training", "subject": "eager", "net": "lenet", "compared": false, "precision":
"float32"}'

Answers every line of JSON on standard input with one on standard output.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.catalogue import ALSO, NETS


class Host:
    """A subject, and the requests that it answers."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.wanted = request
        _warm_up(request)
        self.baseline = resident_bytes()
        self.subject: Any = open_subject(request)

    def ready(self) -> dict[str, Any]:
        """Return the properties that are known once the subject has run its first step."""
        facts = {name: getattr(self.subject, name, None) for name in ("flops", "planned")}
        return {"compile_seconds": self.subject.compile_seconds, **facts}

    def measure(self, seconds: float, least: int, what: str = "step") -> dict[str, Any]:
        """Time steps for `seconds` seconds, but at least `least` steps; one step before them is not counted.

        `what` is the method of the subject that is a step. `processor` is the mean processor time of a step, of all
        threads.
        """
        step, steps = getattr(self.subject, what), getattr(self.subject, "steps_per_call", 1)
        gc.collect()
        gc.disable()
        step()
        times: list[float] = []
        end, worked = perf_counter() + seconds, process_time()
        while len(times) < least or perf_counter() < end:
            start = perf_counter()
            step()
            times.append((perf_counter() - start) / steps)
        worked = process_time() - worked
        gc.enable()
        return {"times": times, "processor": worked / (steps * len(times))}

    def compare(self, folder: str, steps: int) -> dict[str, Any]:
        """Return the losses of the first steps; write gradients to the folder."""
        return {"losses": self.subject.compare(Path(folder), steps)}

    def roofline(self) -> dict[str, Any]:
        """Return the peak rates of netspec's own kernels: FLOP/s of a matrix product, bytes/s of a copy."""
        flops, nbytes = self.subject.roofline()
        return {"flops_per_second": flops, "bytes_per_second": nbytes}

    def save(self, folder: str) -> dict[str, Any]:
        """Write the net as an ONNX file, with inputs and outputs."""
        self.subject.save(Path(folder))
        return {}

    def difference(self, folder: str) -> dict[str, Any]:
        """Return the difference from the outputs in the folder."""
        return {"difference": self.subject.largest_difference(Path(folder))}

    def text(self) -> dict[str, Any]:
        """Return the tokens that a language model generates."""
        return {"tokens": self.subject.text()}

    def memory(self) -> dict[str, Any]:
        """Return the peak resident memory, and that after a step of a tiny net."""
        return {"peak": peak_bytes(), "baseline": self.baseline}


MODULES = {
    "netspec": "netspec_subject",
    "window": "netspec_subject",
    "onnxruntime": "onnxruntime_subject",
    "jax": "jax_subject",
    "sklearn": "sklearn_subject",
}
"""Modules of the subjects; every other subject is a variant of PyTorch."""


def _module(subject: str) -> Any:
    return import_module(f"benchmarks.{MODULES.get(subject, 'torch_subject')}")


def _warm_up(request: dict[str, Any]) -> None:
    """Let the library load what it loads at first use, which must not count as memory of the net."""
    _module(request["subject"]).warm_up()


def open_subject(request: dict[str, Any]) -> Any:
    """Return the requested subject."""
    name = request["subject"]
    module = _module(name)
    if request["kind"] == "generation":
        return _open_generation(request)
    net = NETS[request["net"]]
    if request["kind"] == "prediction":
        if name == "netspec":
            return module.NetspecPrediction(net, request["batch_size"])
        return module.OnnxRuntimePrediction(Path(request["folder"]), request["threads"])
    net = replace(net, batch_size=request.get("batch_size", net.batch_size))
    compared, precision = request["compared"], request["precision"]
    if name in ALSO:
        return getattr(module, {"jax": "JaxTraining", "sklearn": "SklearnTraining"}[name])(net, compared=compared)
    if name == "netspec":
        return module.NetspecTraining(net, compared=compared, precision=precision)
    module.set_threads(request["threads"])
    return module.TorchTraining(net, name, compared=compared, precision=precision)


def _open_generation(request: dict[str, Any]) -> Any:
    """Return a language model that generates a text."""
    name, module = request["subject"], _module(request["subject"])
    if name in ("netspec", "window"):
        return module.NetspecGeneration(request["net"], request["tokens"], by_window=name == "window")
    module.set_threads(request["threads"])
    return import_module("benchmarks.torch_generation").TorchGeneration(request["net"], request["tokens"])


def peak_bytes() -> int:
    """Return the peak resident memory. `ru_maxrss` would include that of the parent when it forked."""
    status = Path("/proc/self/status")
    if status.is_file():
        return _kilobytes(status, "VmHWM") * 1024
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def resident_bytes() -> int:
    """Return the resident memory; if it is not known, the peak."""
    status = Path("/proc/self/status")
    return _kilobytes(status, "VmRSS") * 1024 if status.is_file() else peak_bytes()


def _kilobytes(status: Path, key: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(key))
    return int(line.split()[1])


def main() -> int:
    """Serve one host until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    host = Host(json.loads(sys.argv[1]))
    print(json.dumps(host.ready()), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(host, request.pop("do"))(**request)), file=answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
