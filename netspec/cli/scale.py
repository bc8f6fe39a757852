"""`netspec scale`: predict the speed of a training on many workers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import Device, Json, NetModel, Overrides, Threads, writable
from netspec.cli.output import count, print_json, size, table
from netspec.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from netspec.distributed.cost_model.strategies import StepPrediction
    from netspec.tools.planning.scale import ScalingReport

app = CommandApp()
WorkerCounts: TypeAlias = Annotated[
    str | None, typer.Option(metavar="N|A..B|A,B,…", help="Predict for these worker counts [default: 1..64].")
]
BatchSize: TypeAlias = Annotated[
    str | None, typer.Option(metavar="N|N/worker", help="Use N samples per step [default: the file's].")
]
Strategies: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME,…", help="Predict for these strategies [default: all].")
]
StepTime: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="Set one worker's step time [default: measured].")
]
Servers: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", help="Use N workers as parameter servers [default: 25 %].")
]
AverageEvery: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", help="Average every N steps in local_sgd [default: 8].")
]
MicroBatches: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", help="Use N pipeline micro-batches [default: 4 a stage].")
]
EXPECTED_WORKERS = "a number, 8..4096 or 1,2,4"


@app.add_command(
    "netspec scale train.yaml --workers 8..4096 --network ib-hdr --batch-size 32/worker",
    "netspec scale train.yaml --network ethernet-25g --workers-per-host 4 --output scale.svg",
    "netspec scale net.yaml --step-time 120ms --batch-size 8192 --network alpha=5us,beta=0.2ns",
)
def scale(
    spec: NetModel,
    overrides: Overrides = None,
    workers: WorkerCounts = None,
    network: Annotated[str, typer.Option(metavar="NAME", help="Use this network between hosts.")] = "ib-hdr",
    within: Annotated[str, typer.Option(metavar="NAME", help="Use this within a host.")] = "shared-memory",
    workers_per_host: Annotated[
        int | None, typer.Option("--workers-per-host", metavar="N", help="Place N workers on each host [default: 1].")
    ] = None,
    batch_size: BatchSize = None,
    strategy: Strategies = None,
    algorithm: Annotated[str, typer.Option(metavar="NAME", help="Sum gradients by this algorithm.")] = "auto",
    step_time: StepTime = None,
    compute_scale: Annotated[float, typer.Option(metavar="X", help="Assume workers X times as fast.")] = 1.0,
    jitter: Annotated[str, typer.Option(metavar="P%", help="Vary compute times by this share.")] = "0%",
    servers: Servers = None,
    every: AverageEvery = None,
    density: Annotated[str, typer.Option(metavar="P%", help="Send this share in top_k.")] = "1%",
    micro_batches: MicroBatches = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Write charts to this SVG file.")] = None,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Predict the step time and speedup of many workers.

    Times steps of a few batch sizes on this machine, with synthetic inputs, and models the network: a message of n
    bytes takes alpha + n · beta. Sums of gradients overlap with the backward pass as far as possible. Speedup compares
    samples per second with one worker; efficiency is speedup per worker.

    --workers A..B doubles from A up to B. --batch-size N counts the samples of all workers, N/worker those of each. A
    network is a name (ib-hdr, ethernet-25g, nvlink4, pcie4, shared-memory, …) or alpha=2us,beta=0.1ns. Algorithms of
    all-reduce are auto, ring, tree, doubling, halving and hierarchical. Settings of the training file's own strategy
    replace the defaults.
    """
    if output is not None:
        writable(output, "--output", ".svg")
    from netspec.distributed.cost_model.networks import parse_seconds
    from netspec.tools.planning.scale import scale as scale_spec

    samples, per_worker = _batch_size(batch_size)
    report = scale_spec(
        spec, overrides=overrides or (), workers=None if workers is None else _worker_counts(workers),
        batch_size=samples, per_worker=per_worker, network=network, within=within,
        workers_per_host=1 if workers_per_host is None else workers_per_host,
        strategies=None if strategy is None else strategy.split(","), algorithm=algorithm,
        step_time=None if step_time is None else parse_seconds(step_time, "--step-time"), compute_scale=compute_scale,
        jitter=_percent(jitter, "--jitter"), servers=servers, every=every, density=_percent(density, "--density"),
        micro_batches=micro_batches, device=device,
    )  # fmt: skip
    if output is not None:
        report.write_svg(output)
    if as_json:
        print_json(report.as_json())
        return
    _print(report)
    if output is not None:
        print(f"\n{output}: speedup, efficiency")


def _worker_counts(text: str) -> list[int]:
    """Parse `--workers`. Raises `InputError`."""
    if re.fullmatch(r"[0-9]{1,9}(\.\.[0-9]{1,9}|(,[0-9]{1,9})*)", text) is None:
        raise InputError("--workers: not numbers of workers", expected=EXPECTED_WORKERS, got=repr(text))
    first, range_sign, last = text.partition("..")
    if not range_sign:
        return [int(number) for number in text.split(",")]
    if int(first) > int(last):
        raise InputError("--workers: the range ends before it begins", expected=EXPECTED_WORKERS, got=repr(text))
    counts = [int(first)]
    while 0 < counts[-1] < int(last):
        counts.append(min(2 * counts[-1], int(last)))
    return counts


def _batch_size(text: str | None) -> tuple[int | None, bool]:
    """Parse `--batch-size`: the samples of a step, and whether that is the number per worker. Raises `InputError`."""
    if text is None:
        return None, False
    parsed = re.fullmatch(r"([0-9]{1,9})(/worker)?", text)
    if parsed is None:
        raise InputError("--batch-size: not a batch size", expected="256, or 32/worker", got=repr(text))
    return int(parsed[1]), parsed[2] is not None


def _percent(text: str, option: str) -> float:
    """Parse `P%`. Raises `InputError`."""
    parsed = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*%", text)
    if parsed is None:
        raise InputError(f"{option}: not a percentage", expected="such as 3%, up to 100%", got=repr(text))
    return float(parsed[1]) / 100


def _print(report: ScalingReport) -> None:
    job, cluster = report.job, report.cluster
    per = " for each worker" if job.per_worker else " in total"
    print(f"{report.name}: a batch of {count(job.samples)}{per}, {size(job.compute.steps[0].nbytes)} of gradients")
    print(f"one worker  {report.origin}")
    hosts = f", {count(cluster.per_host)} workers a host" if cluster.per_host > 1 else ""
    print(f"network     {cluster.between.describe()}{hosts}")
    if cluster.per_host > 1:
        print(f"            within hosts {cluster.within.describe()}")
    counts = [count(number) for number in report.workers]
    cells: list[tuple[str, Callable[[StepPrediction], str]]] = [
        ("step, ms", lambda prediction: _ms(prediction.times.step)),
        ("not hidden, ms", lambda prediction: _ms(prediction.times.exposed)),
        ("speedup", lambda prediction: f"{prediction.speedup:,.1f}"),
        ("efficiency, %", lambda prediction: f"{100 * prediction.efficiency:.1f}"),
        ("sent by each worker in a step", lambda prediction: size(round(prediction.traffic.by_role["worker"]))),
    ]
    for title, cell in cells:
        print(f"\n{title}")
        rows = [
            [name, *("-" if isinstance(prediction, str) else cell(prediction) for prediction in row)]
            for name, row in report.predictions.items()
        ]
        table(["workers", *counts], rows, right=range(1, len(counts) + 1))
    for line in report.missing():
        print(f"\n{line}", end="")
    print()


def _ms(seconds: float) -> str:
    """Format milliseconds, with three significant digits below 10 ms."""
    return f"{1000 * seconds:,.1f}" if seconds >= 0.01 else f"{1000 * seconds:.3g}"
