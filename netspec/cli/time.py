"""`netspec time`: time of a step by layer, compared with the machine's peak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli import DONE
from netspec.cli.app import CommandApp
from netspec.cli.options import Autotune, Device, Json, NetModel, Overrides, Threads
from netspec.cli.output import count, print_json, scaled, size, table
from netspec.cli.workers import should_start, start
from netspec.distributed import world
from netspec.tools.bounds import require_at_least

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netspec.tools.measuring.overlap import Overlap
    from netspec.tools.measuring.timing import Cost, NodeTime, Timing

app = CommandApp()


@app.add_command(
    "netspec time train.yaml",
    "netspec time net.yaml --batch-size 32 --inference",
    "netspec time train.yaml --nodes --steps 50",
    "netspec time train.yaml --workers 2",
)
def time(
    spec: NetModel,
    overrides: Overrides = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Use N samples per batch [default: the file's, else 1].")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", help="Measure N steps [default: as many as take two seconds].")
    ] = None,
    inference: Annotated[bool, typer.Option("--inference", help="Time predictions instead of training steps.")] = False,
    nodes: Annotated[bool, typer.Option("--nodes", help="List all operations, in the order of execution.")] = False,
    device: Device = "auto",
    threads: Threads = None,
    autotune: Autotune = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", help="Time N processes, and their communication [default: 1]."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Time a training step: in total, by layer, by operation.

    No data is read: inputs are synthetic, and the learning rate is 1e-8. A net file is trained with SGD and momentum;
    if it has no losses, its predictions are timed.

    `% of roofline` compares an operation with the rates of this machine, measured with a large matrix product and a
    copy; above 100 % is possible for data that stays in a cache. A multiplication and an addition count as two FLOP.

    With --workers, or in an MPI job, also times the step without communication and the communication alone: how long
    the step waits for each message, and how much of the communication it hides.
    """
    from netspec.tools.measuring.timing import check_timed_workers
    from netspec.tools.measuring.timing import time as time_spec

    require_at_least(1, {"--batch-size": batch_size, "--steps": steps})
    if workers is not None and should_start(workers):
        from netspec.tools.specs import batch_size_of, load_spec

        loaded = load_spec(spec, overrides or ())
        check_timed_workers(loaded, workers, batch_size_of(loaded, batch_size), inference=inference)
        words = [spec, *(overrides or []), "--device", device, *["--nodes"] * nodes, *["--json"] * as_json]
        for name, value in (("--batch-size", batch_size), ("--steps", steps), ("--autotune", autotune)):
            words += [name, str(value)] if value is not None else []
        return start(workers, ["time", *words])
    timing = time_spec(
        spec, overrides=overrides or (), batch_size=batch_size, steps=steps, inference=inference, device=device,
        autotune=autotune,
    )  # fmt: skip
    if world().is_first:
        if as_json:
            print_json(timing.as_json())
        else:
            _show(timing, nodes=nodes)
            if timing.communication is not None:
                _print_overlap(timing.communication)
    return DONE


def _show(timing: Timing, *, nodes: bool) -> None:
    _print_summary(timing)
    _print_layers(timing)
    if nodes:
        _print_nodes(timing)


def _print_summary(timing: Timing) -> None:
    step = f"training step with {timing.solver}" if timing.solver else "prediction"
    read = f"{timing.batches} batches" if timing.batches > 1 else "a batch"
    several = timing.workers > 1
    workers = f" on {count(timing.workers)} workers" if several else ""
    share = f" ({count(timing.batch_size)} for the first worker, to which the layers below belong)" if several else ""
    samples = f"{count(timing.all_samples)}{share}"
    print(f"{timing.name}: {step}{workers}, {read} of {samples}, {timing.precision}, on {timing.device}\n")
    per_second = timing.samples_per_second
    rate = scaled(timing.flops / timing.step_seconds, "FLOP/s")
    everyone, of_first = (" of all workers", " of the first") if several else ("", "")
    print(
        f"step      {_ms(timing.step_seconds)} ms (median of {count(timing.steps)}, fastest "
        f"{_ms(timing.fastest_step_seconds)} ms): {count(round(per_second))} samples/s{everyone}, {rate}{of_first}"
    )
    print(f"compiled  in {timing.compile_seconds:.2f} s")
    peak, copy = timing.roofline.flops_per_second, timing.roofline.bytes_per_second
    print(f"machine   {scaled(peak, 'FLOP/s')} (matrix product), {scaled(copy, 'B/s')} (copy), measured now\n")


def _print_layers(timing: Timing) -> None:
    trains = timing.solver is not None
    phases = ["forward", "backward", "update"] if trains else ["forward"]
    phases += ["communication"] * any(layer.phases["communication"] for layer in timing.layers)
    columns = ["layer", "type", *(f"{phase} ms" for phase in phases), "share", "arithmetic", "traffic", "% of roofline"]
    rows = [
        [layer.name or "-", layer.type, *(_ms(layer.phases[phase]) for phase in phases), *_rates(timing, layer)]
        for layer in timing.layers
    ]
    spent = [_ms(sum(layer.phases[phase] for layer in timing.layers)) for phase in phases]
    total = ["total", "", *spent, "100.0 %", "", "", ""]
    table(columns, [*rows, total], right=range(2, len(columns)))
    overhead = max(0.0, timing.step_seconds - timing.nodes_seconds)
    print(f"\noverhead outside operations: {_ms(overhead)} ms per step, for copying inputs and for calls")
    if timing.invariant_nodes:
        duration = f"{_ms(timing.invariant_seconds)} ms for {count(len(timing.invariant_nodes))} operations"
        print(f"only after weights change: {duration}, not counted above")


def _print_nodes(timing: Timing) -> None:
    _print_costs(timing, timing.nodes)
    if timing.invariant_nodes:
        print("\nonly after weights change; shares refer to a step")
        _print_costs(timing, timing.invariant_nodes)


def _print_costs(timing: Timing, nodes: Sequence[NodeTime]) -> None:
    columns = [
        "",
        "operation",
        "layer",
        "phase",
        "result",
        "kernel",
        "ms",
        "share",
        "arithmetic",
        "traffic",
        "% of roofline",
    ]
    rows = [
        [
            count(number),
            node.op,
            node.layer or "-",
            node.phase,
            ", ".join(node.types),
            node.kernel,
            _ms(node.seconds),
            *_rates(timing, node),
        ]
        for number, node in enumerate(nodes, start=1)
    ]
    print()
    table(columns, rows, right=(0, *range(6, len(columns))))


def _rates(timing: Timing, cost: Cost) -> list[str]:
    """Share of the nodes' time, FLOP/s, bytes/s, and the share of what the machine can do."""
    rates = cost.rates(timing.nodes_seconds)
    return [
        f"{100 * rates['share']:.1f} %",
        scaled(rates["flops_per_second"], "FLOP/s"),
        scaled(rates["bytes_per_second"], "B/s"),
        f"{100 * rates['of_roofline']:.0f}",
    ]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.3f}"


def _print_overlap(overlap: Overlap) -> None:
    print(f"\n{overlap.strategy} on {count(overlap.workers)} workers\n")
    rows = [
        [message.name, ", ".join(message.contents[:3]) + ", …" * (len(message.contents) > 3),
         size(round(message.bytes)), _ms(message.started_seconds), _ms(message.exposed_seconds)]
        for message in overlap.messages
    ]  # fmt: skip
    if overlap.between_seconds:
        rows.append(["between steps", "", "", "", _ms(overlap.between_seconds)])
    table(["message", "of", "bytes", "started at ms", "waited ms"], rows, right=(2, 3, 4))
    print(
        "started at: since the first worker's program began; waited: the time per step that the "
        "worker spends on sending this and waiting for it\n\n"
        f"without communication a step takes {_ms(overlap.silent_seconds)} ms instead of "
        f"{_ms(overlap.step_seconds)} ms\nexposed: {_ms(overlap.exposed_seconds)} ms per step, "
        f"{100 * overlap.exposed_share:.1f} % of it, in which a worker only sends, waits or sums "
        f"(mean over workers)\n{_hidden(overlap)}"
    )


def _hidden(overlap: Overlap) -> str:
    alone = f"the {_ms(overlap.alone_seconds)} ms that communication takes on its own"
    more = overlap.exposed_seconds - overlap.alone_seconds
    if more > 0:
        return f"hidden: nothing; exposed is {_ms(more)} ms more than {alone}: workers waited for each other"
    return f"hidden: {100 * overlap.hidden_share:.0f} % of {alone}"
