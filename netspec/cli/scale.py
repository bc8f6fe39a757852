"""`netspec scale`: how a training would do on many workers, before there are any."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Device, Json, Overrides, Spec, Threads, WorkersPerHost, check_batch, writable
from netspec.cli.output import count, print_json, size, table
from netspec.errors import InputError, did_you_mean, listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from netspec.distributed.cost_model.strategies import Prediction
    from netspec.tools.scale import Scaling

app = command_app()
MOST_WORKERS = 2**20
MOST_BY_DEFAULT = 64
MOST_COUNTS = 32
"""Numbers of workers in one table."""


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec scale train.yaml --workers 8..4096 --network ib-hdr --batch-size 32/worker",
        "netspec scale train.yaml --network ethernet-25g --workers-per-host 4 --out scale.svg",
        "netspec scale net.yaml --step-time 120ms --batch-size 8192 --network alpha=5us,beta=0.2ns",
    ),
)
def scale(
    spec: Spec,
    overrides: Overrides = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|A..B|A,B,…",
            help=(
                "Predict for these numbers of workers; A..B doubles from A up to B [default: 1..64, at most "
                "the batch size]."
            ),
            show_default=False,
        ),
    ] = None,
    network: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Model the network between hosts: a name such as ib-hdr, or alpha=2us,beta=0.1ns."
        ),
    ] = "ib-hdr",
    within: Annotated[
        str, typer.Option(metavar="NAME", help="Model the connection within a host, in the same form.")
    ] = "shared-memory",
    workers_per_host: WorkersPerHost = None,
    batch_size: Annotated[
        str | None,
        typer.Option(
            metavar="N|N/worker",
            help=(
                "Set the samples of a step, of all workers together or of each [default: the training "
                "file's batch size together]."
            ),
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="Predict for these strategies only [default: all].", show_default=False),
    ] = None,
    algorithm: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Use this all-reduce algorithm: auto, ring, tree, doubling, halving, hierarchical."
        ),
    ] = "auto",
    step_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Take this time of a step on one worker, such as 120ms, instead of measuring it.",
            show_default=False,
        ),
    ] = None,
    compute_scale: Annotated[
        float, typer.Option(metavar="X", help="Assume that each worker computes X times as fast as this machine.")
    ] = 1.0,
    jitter: Annotated[
        str, typer.Option(metavar="P%", help="Set the standard deviation of a worker's computing time.")
    ] = "0%",
    servers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Make N of the workers servers of `parameter_server` [default: a quarter].",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Average every N steps in `local_sgd` [default: the training file's setting, else 8].",
            show_default=False,
        ),
    ] = None,
    density: Annotated[
        str, typer.Option(metavar="P%", help="Set the share of gradient elements that `top_k` sends.")
    ] = "1%",
    micro_batches: Annotated[
        int | None,
        typer.Option(
            metavar="M", help="Set the micro-batches of `pipeline` [default: four per stage].", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Plot speedup and efficiency to this file.", show_default=False),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Predict a step's time and speedup on many workers.

    Steps of a few batch sizes are timed on this machine, on synthetic data; the network is a model: n bytes take
    alpha + n beta seconds. What gradients' sums take is hidden by backward as far as it goes. Speedup is in samples a
    second, against one worker alone; efficiency is the speedup of each worker.
    """
    for option, number in (
        ("--workers-per-host", workers_per_host), ("--servers", servers), ("--every", every),
        ("--micro-batches", micro_batches),
    ):  # fmt: skip
        check_batch(number, option)
    if not 0 < compute_scale < float("inf"):
        raise InputError("--compute-scale must be above 0", got=str(compute_scale))
    if out is not None:
        writable(out, "--out")
        if out.suffix != ".svg":
            raise InputError("--out: a chart is written as SVG", expected="a file name that ends in .svg", got=str(out))
    wanted = _counts(workers or f"1..{MOST_BY_DEFAULT}")
    from netspec.distributed.cost_model.collectives import algorithm_called
    from netspec.distributed.cost_model.networks import Cluster, parse_network, parse_seconds
    from netspec.distributed.cost_model.plans import Job
    from netspec.distributed.cost_model.strategies import STRATEGIES, predict

    chosen = _chosen(strategy, list(STRATEGIES))
    reduced = algorithm_called(algorithm)
    cluster = Cluster(1, parse_network(network), parse_network(within, "--within"), workers_per_host or 1)
    deviation, share = _percent(jitter, "--jitter", least=0.0), _percent(density, "--density", least=1e-9)
    seconds = parse_seconds(step_time, "--step-time") if step_time is not None else None
    if seconds == 0:
        raise InputError("--step-time must be above 0", got=str(step_time))
    from netspec.schema.specs.train import TrainSpec
    from netspec.tools.scale import Scaling, as_trained, given, measure, sizes_to_measure
    from netspec.tools.specs import load_spec, net_of

    found = load_spec(spec, overrides or ())
    samples, per_worker = _batch(batch_size, found.data.train.batch_size if isinstance(found, TrainSpec) else None)
    most = MOST_WORKERS if per_worker else samples
    counts = wanted if workers is not None else [number for number in wanted if number <= most]
    if counts[-1] > most:
        raise InputError(
            f"a batch of {samples:,} has no sample for each of {counts[-1]:,} workers",
            location=found.data.train.where("batch_size")
            if isinstance(found, TrainSpec) and batch_size is None
            else None,
            expected=f"at most {samples:,} workers, or a larger --batch-size",
            hint="--batch-size 32/worker gives each worker as many, however many there are",
        )
    if seconds is not None:
        base = given(found, seconds, samples)
    else:
        base = measure(found, sizes_to_measure(samples, counts, per_worker=per_worker), device)
    job = Job(
        base.compute.faster(compute_scale), samples, per_worker, reduced, adding=base.adding / compute_scale,
        jitter=deviation, density=share, servers=servers, micro_batches=micro_batches,
    )  # fmt: skip
    job = as_trained(job, found, every)
    predictions = {name: [predict(name, job, cluster.of(number)) for number in counts] for name in chosen}
    result = Scaling(net_of(found).name, base.how, job, cluster, counts, predictions)
    if out is not None:
        from netspec.tools.charts import as_svg

        out.write_text(as_svg(result.charts()), encoding="utf-8")
    if as_json:
        print_json(result.as_json())
        return
    _print(result)
    if out is not None:
        print(f"\n{out}: speedup, efficiency")


def _counts(text: str) -> list[int]:
    """The numbers of workers that `--workers` asks for, rising. Raises `InputError`."""

    def wrong(message: str) -> InputError:
        return InputError(f"--workers: {message}", expected="a number, 8..4096 or 1,2,4", got=repr(text))

    if re.fullmatch(r"[0-9]{1,9}(\.\.[0-9]{1,9}|(,[0-9]{1,9})*)", text) is None:
        raise wrong("not numbers of workers")
    first, doubled, last = text.partition("..")
    found = sorted({int(one) for one in text.split(",")}) if not doubled else [int(first), int(last)]
    if found[0] < 1:
        raise wrong("there must be at least one worker")
    if found[-1] > MOST_WORKERS:
        raise wrong(f"there may be at most {MOST_WORKERS:,}")
    if doubled:
        if int(first) > int(last):
            raise wrong("the range ends before it begins")
        found = [int(first)]
        while found[-1] < int(last):
            found.append(min(2 * found[-1], int(last)))
    if len(found) > MOST_COUNTS:
        raise wrong(f"there may be at most {MOST_COUNTS} numbers")
    return found


def _batch(text: str | None, default: int | None) -> tuple[int, bool]:
    """Return the samples of a step, and whether that is the number per worker. Raises `InputError`."""
    if text is None:
        if default is None:
            hint = "the batch size is in a training file; for a net give it here"
            raise InputError(
                "a net has no batch size", expected="--batch-size 256, or --batch-size 32/worker", hint=hint
            )
        return default, False
    found = re.fullmatch(r"([0-9]{1,9})(/worker)?", text)
    if found is None or int(found[1]) < 1:
        raise InputError("--batch-size: not a batch size", expected="256, or 32/worker", got=repr(text))
    return int(found[1]), found[2] is not None


def _chosen(text: str | None, known: list[str]) -> list[str]:
    """The strategies that `--strategy` names. Raises `InputError`."""
    if text is None:
        return known
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in known:
            expected, hint = f"some of {listing(known)}", did_you_mean(name, known)
            raise InputError("--strategy: there is no such strategy", expected=expected, got=repr(name), hint=hint)
    return names


def _percent(text: str, option: str, *, least: float) -> float:
    """A share from `P%`. Raises `InputError`."""
    found = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*%", text)
    if found is None or not least <= float(found[1]) / 100 <= 1:
        raise InputError(f"{option}: not a percentage", expected="such as 3%, up to 100%", got=repr(text))
    return float(found[1]) / 100


def _print(found: Scaling) -> None:
    job, cluster = found.job, found.cluster
    each = " for each worker" if job.per_worker else " in total"
    print(f"{found.name}: a batch of {count(job.samples)}{each}, {size(job.compute.known[0].nbytes)} of gradients")
    print(f"one worker  {found.how}")
    hosts = f", {count(cluster.per_host)} workers a host" if cluster.per_host > 1 else ""
    print(f"network     {cluster.between.told()}{hosts}")
    if cluster.per_host > 1:
        print(f"            within hosts {cluster.within.told()}")
    counts = [count(number) for number in found.counts]
    cells: list[tuple[str, Callable[[Prediction], str]]] = [
        ("step, ms", lambda one: _ms(one.times.step)),
        ("not hidden, ms", lambda one: _ms(one.times.exposed)),
        ("speedup", lambda one: f"{one.speedup:,.1f}"),
        ("efficiency, %", lambda one: f"{100 * one.efficiency:.1f}"),
        ("sent by each worker in a step", lambda one: size(round(one.traffic.by_role["worker"]))),
    ]
    for title, cell in cells:
        print(f"\n{title}")
        rows = [
            [name, *("-" if isinstance(one, str) else cell(one) for one in row)]
            for name, row in found.predictions.items()
        ]
        table(["workers", *counts], rows, right=range(1, len(counts) + 1))
    for line in found.left_out():
        print(f"\n{line}", end="")
    print()


def _ms(seconds: float) -> str:
    """Milliseconds, with digits enough to tell times below one apart."""
    return f"{1000 * seconds:,.1f}" if seconds >= 0.01 else f"{1000 * seconds:.3g}"
