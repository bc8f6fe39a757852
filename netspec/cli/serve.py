"""`netspec serve`: answer requests to a trained net over HTTP."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import AnyModel, Autotune, Device, Overrides, Threads, Weights, find_weights

app = CommandApp()
MEGABYTE = 2**20


@app.add_command(
    "netspec serve runs/lenet_mnist",
    "netspec serve runs/adult --port 8080 --max-batch 64 --max-delay 5",
    "netspec serve model.onnx --host 0.0.0.0 --name classifier",
)
def serve(
    spec: AnyModel,
    overrides: Overrides = None,
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Listen on this address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", help="Listen on port N; 0 takes a free one.")] = 8000,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name the model [default: its folder, else its net].")
    ] = None,
    max_batch: Annotated[int, typer.Option(metavar="N", help="Compute up to N samples at a time.")] = 32,
    max_delay: Annotated[float, typer.Option(metavar="MS", help="Wait up to MS ms to fill a batch.")] = 2.0,
    max_size: Annotated[float, typer.Option(metavar="MB", help="Reject requests larger than this.")] = 16.0,
    max_requests: Annotated[int, typer.Option(metavar="N", help="Reject requests beyond N at a time.")] = 256,
    timeout: Annotated[float, typer.Option(metavar="S", help="Cancel a request after S seconds.")] = 30.0,
    max_tokens: Annotated[int, typer.Option(metavar="N", help="Limit prompt plus answer to N tokens.")] = 4096,
    weights: Weights = None,
    device: Device = "auto",
    autotune: Autotune = None,
    threads: Threads = None,
) -> None:
    """Answer requests to a trained net over HTTP.

    POST an image, a JSON row, a text or a prompt to /predict, or tensors to /v2/models/NAME/infer (Open Inference
    Protocol). The page at / has a form for browsers, /metrics is for Prometheus. Needs the extra `serve`. Ctrl-C or
    SIGTERM stops the server after open requests are answered.
    """
    from pathlib import Path

    from netspec.tools.model_inputs import is_model_file
    from netspec.tools.serving.server import serve as serve_model

    if Path(spec).is_dir():
        name = name or Path(spec).resolve().name
    if not is_model_file(Path(spec)):
        spec, weights = find_weights(spec, weights)
    serve_model(
        spec, weights=weights, overrides=overrides or (), name=name, host=host, port=port, max_batch=max_batch,
        max_delay=max_delay / 1000, max_body=int(max_size * MEGABYTE), max_requests=max_requests, timeout=timeout,
        max_tokens=max_tokens, device=device, autotune=autotune, ready=_announce, on_remark=_note,
    )  # fmt: skip


def _announce(name: str, url: str) -> None:
    print(f"serving {name} at {url}", file=sys.stderr, flush=True)


def _note(remark: str) -> None:
    print(f"note: {remark}", file=sys.stderr, flush=True)
