"""Measures a service under load: 50 clients at a time send images of MNIST to LeNet, as binary tensors and as JSON.

The service, its server and its batches are the same for both subjects; one computes with netspec, the other with ONNX
Runtime. Clients, in a process of their own on the same machine, send the next request when the answer is there. The
subjects alternate.

python -m benchmarks.bench_serving [--quick] [--json] [--clients 50] [--seconds 60]
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.alternate import ROOT, BenchmarkError
from benchmarks.results import Results

SPEC = ROOT / "model_zoo" / "lenet_mnist" / "train.yaml"
SUBJECTS = ("netspec", "onnxruntime")
PATH = "/v2/models/lenet/infer"


def serve(subject: str, run: Path) -> None:
    """Serve a run on a free port until the process is ended; print the port."""
    import uvicorn

    from netspec.tools.serving.application import ServingLimits, application
    from netspec.tools.serving.service import PredictionService

    class OnnxRuntimeService(PredictionService):
        """The same service, whose batches ONNX Runtime computes."""

        def _compute(self, arrays: dict[str, Any]) -> dict[str, Any]:
            return {"logits": session.run(["logits"], dict(arrays))[0]}

    service_class = PredictionService
    if subject == "onnxruntime":
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read on import
        import onnxruntime as ort

        session = ort.InferenceSession(str(run / "lenet.onnx"), providers=["CPUExecutionProvider"])
        service_class = OnnxRuntimeService
    service = service_class(run, device="cpu")
    config = uvicorn.Config(application(service, ServingLimits(), "0"), log_level="error", lifespan="off")
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def service(subject: str, run: Path) -> Iterator[int]:
    """Run a service in a process of its own; yield its port."""
    command = [sys.executable, "-m", "benchmarks.bench_serving", "--serve", subject, "--run", str(run)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.strip().isdigit():
                raise BenchmarkError(f"the service of {subject} did not start")
            yield int(line)
        finally:
            process.terminate()


def requests() -> dict[str, bytes]:
    """Return one HTTP request with one image for each encoding."""
    image = np.random.default_rng(0).random((1, 1, 28, 28)).astype(np.float32)
    tensor = {"name": "image", "shape": list(image.shape), "datatype": "FP32"}
    header = json.dumps(
        {
            "inputs": [{**tensor, "parameters": {"binary_data_size": image.nbytes}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    text = json.dumps({"inputs": [{**tensor, "data": image.ravel().tolist()}]}).encode()
    lengths = {"binary": f"Inference-Header-Content-Length: {len(header)}\r\n", "json": ""}
    bodies = {"binary": header + image.tobytes(), "json": text}
    return {
        name: f"POST {PATH} HTTP/1.1\r\nHost: bench\r\n{lengths[name]}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
        for name, body in bodies.items()
    }


async def client(port: int, request: bytes, end: float, seconds: list[float], failures: list[str]) -> None:
    """Send requests over one connection until `end`; record their durations and the answers that are errors."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while perf_counter() < end:
            start = perf_counter()
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("\r\ncontent-length: ")[2].partition("\r\n")[0])
            body = await reader.readexactly(length)
            seconds.append(perf_counter() - start)
            if " 200 " not in head.partition("\r\n")[0]:
                failures.append(body[:200].decode(errors="replace"))
    finally:
        writer.close()


async def load(port: int, request: bytes, clients: int, duration: float) -> dict[str, Any]:
    """Return the rate and the latencies of many clients at a time."""
    seconds: list[float] = []
    failures: list[str] = []
    start = perf_counter()
    await asyncio.gather(*(client(port, request, start + duration, seconds, failures) for _ in range(clients)))
    took = perf_counter() - start
    quantiles = np.quantile(seconds, [0.5, 0.99])
    return {
        "requests": len(seconds),
        "errors": len(failures),
        "per_second": len(seconds) / took,
        "median": float(quantiles[0]),
        "p99": float(quantiles[1]),
    }


def prepare(folder: Path) -> Path:
    """Train LeNet for a few steps, and export it; return the run directory."""
    import netspec

    run = folder / "lenet"
    netspec.train(SPEC, run_dir=run, **{"train.max_epochs": None, "train.max_steps": 20})
    netspec.export(run, run / "lenet.onnx", with_preprocessing=False)  # requests contain inputs of the net
    return run


def measure(options: Any, results: Results, run: Path) -> None:
    """Measure each encoding for each subject, in alternating rounds."""
    rounds = 1 if options.quick else 3
    duration = 3.0 if options.quick else options.seconds / rounds
    measured: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for turn in range(rounds):
        for subject in SUBJECTS if turn % 2 == 0 else SUBJECTS[::-1]:
            with service(subject, run) as port:
                for name, request in requests().items():
                    asyncio.run(load(port, request, options.clients, 0.5))  # warm-up
                    report.say(f"{subject}, {name}, round {turn + 1}")
                    measured.setdefault((name, subject), []).append(
                        asyncio.run(load(port, request, options.clients, duration))
                    )
    for name in requests():
        result: dict[str, Any] = {"encoding": name, "clients": options.clients}
        for subject in SUBJECTS:
            loads = measured[name, subject]
            result[subject] = {
                "requests": sum(each["requests"] for each in loads),
                "errors": sum(each["errors"] for each in loads),
                **{key: median(each[key] for each in loads) for key in ("per_second", "median", "p99")},
            }
        results.add(result)


def main() -> int:
    """Measure both subjects, or be the process that serves one."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--clients", type=int, default=50, help="send this many requests at a time [50]")
    parser.add_argument("--seconds", type=float, default=60.0, help="measure each subject and encoding this long [60]")
    parser.add_argument("--serve", choices=SUBJECTS, help="serve the run of --run, for the benchmark itself")
    parser.add_argument("--run", type=Path, help="run directory to serve")
    options = report.parsed(parser)
    if options.serve:
        serve(options.serve, options.run)
        return 0
    results = Results("serving", options, "onnxruntime", "starlette", "uvicorn")
    with TemporaryDirectory(prefix="netspec-") as folder:
        measure(options, results, prepare(Path(folder)))
    return results.end()


if __name__ == "__main__":
    sys.exit(report.run(main))
