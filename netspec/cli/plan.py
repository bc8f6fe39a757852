"""`netspec plan`: layers, shapes, parameters, FLOPs and memory of a net, before anything is allocated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import Json, NetModel, Overrides, autotune_option
from netspec.cli.output import STATES, count, print_json, scaled, size, table
from netspec.errors import counted, listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netspec.distributed.cost_model.comm_volume import CollectiveMessage
    from netspec.tools.planning.batch_limit import BatchLimit
    from netspec.tools.planning.gpu_plan import GpuCosts
    from netspec.tools.planning.gpu_worker_plan import GpuWorkers
    from netspec.tools.planning.plan import Costs, KernelUse, Plan, WorkerPlan
    from netspec.tools.planning.worker_plan import StageCost, WorkerMemory, WorkerTraffic

app = CommandApp()


@app.add_command(
    "netspec plan train.yaml",
    "netspec plan train.yaml --kernels",
    "netspec plan train.yaml --largest-batch",
    "netspec plan train.yaml --workers 8",
    "netspec plan train.yaml --device h200 train.precision=bfloat16",
)
def plan(
    spec: NetModel,
    overrides: Overrides = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Use N samples per batch [default: the file's, else 1].")
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="List kernels, and why faster ones were rejected.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Show what each of N workers sends and allocates.")
    ] = None,
    workers_per_host: Annotated[
        int | None, typer.Option(metavar="N", help="Place N workers on each host [default: see above].")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="Plan for this GPU, present or not [default: the CPU]."),
    ] = None,
    largest_batch: Annotated[
        bool, typer.Option("--largest-batch", help="Find the largest batch that fits into memory.")
    ] = False,
    autotune: Annotated[str | None, autotune_option("Use tuning")] = None,
    as_json: Json = False,
) -> None:
    """Show layers, shapes, parameters, FLOPs and memory.

    All figures are for one batch. FLOPs count a multiplication and an addition as two; those of layers are for the
    forward pass. Memory is what the compiled programs will allocate. This command allocates nothing and reads no data.

    --device accepts t4, a100, l40s, rtx4090, h100, h200 and b200. The plan then shows whether the net fits into the
    GPU's memory, the largest batch that does, and the minimum time of a step.

    --workers-per-host is 1 by default, or 8 if --device is a GPU; with hogwild, which needs shared memory, all workers
    are on one host.

    --autotune uses the kernels that an earlier tuning, such as that of `netspec time`, found fastest.

    --largest-batch plans more batch sizes, without recomputing activations, and compares them with the memory of this
    machine or, with --device, of the GPU. Batches in the loader and Python itself need some memory in addition.
    """
    from netspec.tools.planning.plan import plan as plan_spec

    planned = plan_spec(
        spec, overrides=overrides or (), batch_size=batch_size, workers=workers, workers_per_host=workers_per_host,
        device=device, autotune=autotune, largest_batch=largest_batch,
    )  # fmt: skip
    if as_json:
        print_json(planned.as_json(kernels=kernels))
    else:
        _print_plan(planned, kernels=kernels)


def _print_plan(planned: Plan, *, kernels: bool) -> None:
    costs = planned.costs
    _print_layers(costs)
    _print_groups(costs)
    _print_programs(costs)
    if costs.gpu is not None:
        _print_gpu(costs.gpu, costs.batch_size, costs.largest_batch)
    elif costs.largest_batch is not None:
        print()
        _print_largest_batch(costs.largest_batch.samples, costs.largest_batch)
    if costs.remark is not None:
        print(f"\n{costs.remark}")
    if planned.workers is not None:
        _print_workers(planned.workers)
    if kernels:
        for purpose, uses in costs.kernels.items():
            _print_kernels(purpose, uses)
            for note in costs.notes.get(purpose, ()):
                print(note)


def _print_layers(costs: Costs) -> None:
    print(f"{costs.name}: a batch of {count(costs.batch_size)}, {costs.precision}\n")
    rows = []
    for layer in costs.layers:
        cells = [count(layer.parameters), scaled(layer.flops, "FLOP"), size(layer.memory_bytes)]
        rows.append([layer.name, layer.type, str(list(layer.output_shape)), *cells])
        if len(layer.outputs) > 1:
            rows += [[f"  {name}", "", str(list(shape)), "", "", ""] for name, shape in layer.outputs.items()]
    total = ["total", "", "", count(costs.parameters), scaled(costs.flops, "FLOP"), size(costs.memory_bytes)]
    table(["layer", "type", "output", "parameters", "forward", "memory"], [*rows, total], right=(3, 4, 5))
    frozen = costs.parameters - costs.trainable_parameters
    if frozen:
        print(f"\n{count(costs.trainable_parameters)} parameters are trainable, {count(frozen)} are frozen")


def _print_groups(costs: Costs) -> None:
    if not costs.groups:
        return
    print("\nparameter groups of the solver")
    rows = [[count(number), group.settings, count(len(group.parameters)), listing(group.parameters, 6)]
            for number, group in enumerate(costs.groups, 1)]  # fmt: skip
    table(["", "settings", "parameters", "names"], rows, right=(0, 2))


def _print_programs(costs: Costs) -> None:
    from netspec.backends.memory import machine_memory

    states_bytes = sum(costs.states_bytes.values())
    staged = any(program.staged_bytes for program in costs.programs.values())
    rows = [
        [
            purpose,
            count(program.nodes),
            scaled(program.flops, "FLOP"),
            size(program.arena_bytes),
            size(program.constant_bytes),
            size(program.invariant_bytes),
            *[size(program.staged_bytes)] * staged,
            size(states_bytes),
            size(program.nbytes + states_bytes),
        ]
        for purpose, program in costs.programs.items()
    ]
    print()
    inputs = ["inputs"] * staged
    columns = ["program", "operations", "arithmetic", "arena", "constants", "invariant", *inputs, "states", "total"]
    table(columns, rows, right=range(1, len(columns)))
    parts = [f"{STATES[role]} {size(nbytes)}" for role, nbytes in costs.states_bytes.items() if nbytes]
    invariant = [
        f"{count(program.invariant_nodes)} of {purpose}"
        for purpose, program in costs.programs.items()
        if program.invariant_nodes
    ]
    if invariant:
        print(f"\noperations that run only after states change: {', '.join(invariant)}")
    print(f"\nstates, shared by all programs: {', '.join(parts) or 'none'}")
    memory = machine_memory()
    needed = sum(costs.states_bytes.values()) + max((cost.nbytes for cost in costs.programs.values()), default=0)
    if memory is not None and needed > memory:
        print(f"\nwarning: {size(needed)} do not fit into the memory of this machine, {size(memory)}")
    for purpose, cost in costs.programs.items():
        if cost.recomputed_nodes:
            share = 100 * cost.recomputed_flops / (cost.flops - cost.recomputed_flops)
            print(
                f"\n{purpose} runs {count(cost.recomputed_nodes)} operations twice, so that their results do not have "
                f"to be kept: this saves {size(cost.spared_bytes)} of its arena and adds "
                f"{scaled(cost.recomputed_flops, 'FLOP')} ({share:.1f} %) to its arithmetic"
            )


def _lying(kind: str, layout: str) -> str:
    return kind if layout == "plain" else f"{kind} as {layout}"


def _print_kernels(purpose: str, uses: tuple[KernelUse, ...]) -> None:
    print(f"\nkernels of {purpose}, in the order of execution")
    rows = [
        [
            count(number),
            use.op,
            use.layer,
            f"{use.phase}, invariant" if use.invariant else use.phase,
            ", ".join(_lying(kind, layout) for kind, layout in zip(use.types, use.layouts, strict=True)),
            use.kernel,
            "; ".join(f"{name}: {reason}" for name, reason in use.rejected),
        ]
        for number, use in enumerate(uses, 1)
    ]
    table(["", "operation", "layer", "phase", "result", "kernel", "faster ones that decline"], rows, right=(0,))


def _print_workers(plan: WorkerPlan) -> None:
    print()
    if plan.stages:
        _print_stages(plan.stages)
        print()
    _print_sent(plan.sent)
    if plan.gpus is None:
        _print_worker(plan.worker)
    else:
        _print_gpus(plan.gpus)


def _print_largest_batch(samples: int | None, limit: BatchLimit | None) -> None:
    needed = ""
    if limit is not None:
        memory = f"{limit.memory_of} has {size(limit.memory_bytes)}"
        needed = f" (the program `{limit.program}` needs {size(limit.needed_bytes)}, and {memory})"
    if samples is None:
        print(f"not even one sample fits{needed}")
    else:
        print(f"the largest batch that fits without recomputation: {_batch(samples)}{needed}")


def _print_gpu(gpu: GpuCosts, batch_size: int, limit: BatchLimit | None) -> None:
    fits = "fits" if gpu.needed_bytes <= gpu.memory_bytes else "does not fit"
    print(f"\n{gpu.title}: {size(gpu.needed_bytes)} of {size(gpu.memory_bytes)} are needed, which {fits}")
    _print_largest_batch(gpu.largest_batch, limit)
    for name, minimum in gpu.least.items():
        rate = batch_size / minimum.seconds if minimum.seconds else 0.0
        print(
            f"{name} takes about {_time(minimum.seconds)} at best ({count(round(rate))} samples/s): arithmetic "
            f"{_time(minimum.arithmetic)}, memory {_time(minimum.memory)}, launches {_time(minimum.launches)}"
        )
        if minimum.reference:
            print(f"  {count(minimum.reference)} of its operations run reference code, which is slower")
    print("estimated from the GPU's data sheet and 2 µs per launch; nothing was measured")


def _batch(samples: int) -> str:
    from netspec.compile.largest_batch import MAX_SAMPLES

    return f"{count(samples)} or more" if samples >= MAX_SAMPLES else count(samples)


def _print_gpus(gpus: GpuWorkers) -> None:
    fits = "fits" if gpus.needed_bytes <= gpus.memory_bytes else "does not fit"
    print(
        f"\n{count(gpus.workers)} × {gpus.title}: each needs {size(gpus.needed_bytes)} of "
        f"{size(gpus.memory_bytes)} for {count(gpus.samples)} samples, which {fits}"
    )
    print(
        f"a step takes about {_time(gpus.step)} at best ({count(round(gpus.batch / gpus.step))} samples/s): "
        f"{_time(gpus.compute)} of computation, and {_time(gpus.exposed)} of exposed communication, of "
        f"{_time(gpus.exchange)} in total"
    )
    if gpus.hosted:
        print(f"{count(gpus.hosted)} operations communicate through the CPU, which hides none of it")
    for note in gpus.notes:
        print(note)
    links = f"within a host {gpus.within}"
    if gpus.workers > gpus.per_host:
        links += f"; between hosts, one connection each, {gpus.between}"
    print(f"{links}; nothing was measured")


def _print_sent(sent: WorkerTraffic) -> None:
    _print_messages(sent)
    if sent.shared:
        print(f"each worker reads and writes {size(sent.shared)} of memory that all workers share")
    if sent.remark is not None:
        print(sent.remark)


def _print_messages(sent: WorkerTraffic) -> None:
    hosts = sent.cluster.hosts
    where = "one host" if hosts == 1 else f"{count(hosts)} hosts"
    senders = " and ".join(counted(number, role) for role, number in sent.roles.items())
    print(f"{sent.strategy} on {senders} of {where}: what a step sends\n")
    titles = [f"a {role} sends" for role in sent.roles]
    rows = [
        [
            message.name, listing(message.contents, 3), *([_times_per_step(message)] if _repeats(sent) else []),
            size(round(message.nbytes)), *(size(round(nbytes)) for nbytes in sent.sent_bytes(message).values()),
            size(round(message.left() / message.every)), _send_time(message),
        ]
        for message in sent.messages
    ]  # fmt: skip
    times = ["times"] * _repeats(sent)
    total = sum(message.times * message.nbytes / message.every for message in sent.messages)
    last = ["total", "", *([""] * len(times)), size(round(total))]
    last += [*(size(round(nbytes)) for nbytes in sent.sent_bytes().values()), size(round(sent.between_hosts)), ""]
    columns = ["message", "contents", *times, "bytes", *titles, "between hosts", "starts"]
    table(columns, [*rows, last], right=range(2, len(columns) - 1))
    print(f"\nin total {size(round(sent.total))} per step, {size(round(sent.between_hosts))} of it between hosts")


def _repeats(sent: WorkerTraffic) -> bool:
    return any((message.times, message.every) != (1, 1) for message in sent.messages)


def _times_per_step(message: CollectiveMessage) -> str:
    """Number of times per step: `3`, `1/8`."""
    return count(message.times) + (f"/{count(message.every)}" if message.every > 1 else "")


def _send_time(message: CollectiveMessage) -> str:
    """Return when a message is sent, as text."""
    if message.starts is None:
        return "between steps"
    share = round(100 * message.starts)
    return "before backward" if share == 0 else "after backward" if share == 100 else f"{share} % of backward done"


def _print_worker(worker: WorkerMemory) -> None:
    parts = [f"{STATES.get(role, role)} {size(nbytes)}" for role, nbytes in worker.states_bytes.items() if nbytes]
    print(
        f"a worker has {count(worker.samples)} samples of a batch and allocates {size(worker.nbytes)} for a training "
        f"step, including states: {', '.join(parts) or 'none'}"
    )


def _print_stages(stages: Sequence[StageCost]) -> None:
    rows = [
        [
            f"stage {stage.stage}", stage.layers[0], stage.layers[-1], count(stage.parameters),
            scaled(stage.flops, "FLOP"), size(stage.memory_bytes),
        ]
        for stage in stages
    ]  # fmt: skip
    table(["", "from", "to", "parameters", "a step", "memory without states"], rows, right=(3, 4, 5))


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
