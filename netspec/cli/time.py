"""`netspec time`: how long a step takes, layer by layer, beside what the machine can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Autotune, Device, Json, Overrides, Spec, Threads, check_batch
from netspec.cli.output import count, print_json, scaled, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netspec.cli.timing import Cost, NodeTime, Timing

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec time train.yaml",
        "netspec time net.yaml --batch-size 32 --inference",
        "netspec time train.yaml --nodes --steps 50",
    ),
)
def time(
    spec: Spec,
    overrides: Overrides = None,
    batch_size: Annotated[
        int | None,
        typer.Option(metavar="N", help="Samples in a batch. Default: those of the training file; 1 for a net."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", help="Steps to measure. Default: as many as two seconds hold.")
    ] = None,
    inference: Annotated[bool, typer.Option("--inference", help="Time predictions, not training steps.")] = False,
    nodes: Annotated[bool, typer.Option("--nodes", help="List every operation, in the order of execution.")] = False,
    device: Device = "auto",
    threads: Threads = None,
    autotune: Autotune = None,
    as_json: Json = False,
) -> None:
    """Time the training step: whole, by layer, by operation.

    No data is read: inputs are made up, and the learning rate is 0. A net file is trained by SGD with momentum;
    without losses its predictions are timed. `of roof` is the time that arithmetic and memory traffic would take at
    the machine's rates, measured with a large matrix product and a copy, as a share of the time taken; what stays in
    a cache can be above 100 %. A multiplication and an addition count as two FLOP.
    """
    check_batch(batch_size)
    check_batch(steps, "--steps")
    from netspec.cli.specs import autotune_of, load_spec, net_of, precision_of, rounding_of
    from netspec.cli.timing import time_net
    from netspec.schema.train import TrainSpec
    from netspec.solvers.base import SolverSpec
    from netspec.solvers.sgd import SGD

    found = load_spec(spec, overrides or ())
    net = net_of(found)
    solver: SolverSpec | None = SGD(type="SGD", momentum=0.9) if net.losses else None
    if isinstance(found, TrainSpec):
        assert isinstance(found.solver, SolverSpec)
        solver = found.solver
        batch_size = batch_size or found.data.train.batch_size
    timing = time_net(
        net,
        batch_size or 1,
        solver=None if inference else solver,
        dtype=precision_of(found),
        device=device,
        autotune=autotune or autotune_of(found),
        rounding=rounding_of(found),
        steps=steps,
        loop=found.train if isinstance(found, TrainSpec) else None,
    )
    if as_json:
        print_json(timing.as_json())
        return
    _print_summary(timing)
    _print_layers(timing)
    if nodes:
        _print_nodes(timing)


def _print_summary(found: Timing) -> None:
    what = f"training step with {found.solver}" if found.solver else "prediction"
    read = f"{found.batches} batches" if found.batches > 1 else "a batch"
    print(f"{found.name}: {what}, {read} of {count(found.batch_size)}, {found.precision}, on {found.device}\n")
    per_second = found.samples_per_second
    rate = scaled(found.flops / found.step_seconds, "FLOP/s")
    print(
        f"step      {_ms(found.step_seconds)} ms (median of {count(found.steps)}, fastest "
        f"{_ms(found.fastest_step_seconds)} ms): {count(round(per_second))} samples/s, {rate}"
    )
    print(f"compiled  in {found.compile_seconds:.2f} s")
    peak, copy = found.roofline.flops_per_second, found.roofline.bytes_per_second
    print(f"machine   {scaled(peak, 'FLOP/s')} (matrix product), {scaled(copy, 'B/s')} (copy), measured now\n")


def _print_layers(found: Timing) -> None:
    trains = found.solver is not None
    phases = ("forward", "backward", "update") if trains else ("forward",)
    columns = ["layer", "type", *(f"{phase} ms" for phase in phases), "share", "arithmetic", "traffic", "of roof"]
    rows = [
        [one.name or "-", one.type, *(_ms(one.phases[phase]) for phase in phases), *_rates(found, one)]
        for one in found.layers
    ]
    spent = [_ms(sum(one.phases[phase] for one in found.layers)) for phase in phases]
    total = ["all nodes", "", *spent, "100.0 %", "", "", ""]
    table(columns, [*rows, total], right=range(2, len(columns)))
    rest = max(0.0, found.step_seconds - found.nodes_seconds)
    print(f"\nbeside the nodes: {_ms(rest)} ms a step, for copying inputs in and for the calls")
    if found.steady:
        taken = f"{_ms(found.steady_seconds)} ms for {count(len(found.steady))} operations"
        print(f"only when weights have changed: {taken}, not counted above")


def _print_nodes(found: Timing) -> None:
    _print_costs(found, found.nodes)
    if found.steady:
        print("\nonly when weights have changed; shares are of a step")
        _print_costs(found, found.steady)


def _print_costs(found: Timing, nodes: Sequence[NodeTime]) -> None:
    columns = ["", "operation", "layer", "phase", "result", "kernel", "ms", "share", "arithmetic", "traffic", "of roof"]
    rows = [
        [
            count(number),
            one.op,
            one.layer or "-",
            one.phase,
            ", ".join(one.types),
            one.kernel,
            _ms(one.seconds),
            *_rates(found, one),
        ]
        for number, one in enumerate(nodes, start=1)
    ]
    print()
    table(columns, rows, right=(0, *range(6, len(columns))))


def _rates(found: Timing, one: Cost) -> list[str]:
    """Share of the nodes' time, FLOP/s, bytes/s, and the share of what the machine can do."""
    rates = one.rates(found.nodes_seconds)
    return [
        f"{100 * rates['share']:.1f} %",
        scaled(rates["flops_per_second"], "FLOP/s"),
        scaled(rates["bytes_per_second"], "B/s"),
        f"{100 * rates['of_roofline']:.0f} %",
    ]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.3f}"
