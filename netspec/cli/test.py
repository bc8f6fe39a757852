"""`netspec test`: how good weights are on the test data."""

from __future__ import annotations

import sys

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Device, Json, Overrides, Threads, Training, Weights
from netspec.cli.output import count, print_json, table

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec test runs/lenet_mnist/spec.yaml --weights runs/lenet_mnist/weights.h5",
        "netspec test train.yaml --weights weights.h5 data.test.batch_size=500 --json",
    ),
)
def evaluate(
    spec: Training,
    overrides: Overrides = None,
    *,
    weights: Weights,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Evaluate weights on the test data of a training file.

    Each sample counts exactly once. With --json: one object with samples, loss and metrics.
    """
    from netspec.train.evaluation import test

    found = test(spec, weights, overrides or (), device=device)
    if found.non_finite:
        print(f"warning: not finite (nan or infinite) on the test data: {', '.join(found.non_finite)}", file=sys.stderr)
    if as_json:
        print_json(found.as_json())
        return
    loss = [] if found.loss is None else [["loss", f"{found.loss:.6f}"]]
    metrics = [[name, f"{value:.6f}"] for name, value in found.metrics.items()]
    rows = [["samples", count(found.samples)], *loss, *metrics]
    table(["", ""], rows, right=(1,))
