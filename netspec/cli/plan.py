"""`netspec plan`: what a net is and costs, before anything is allocated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Autotune, Json, Overrides, Spec, WorkersPerHost, check_batch
from netspec.cli.output import STATES, count, print_json, scaled, size, table
from netspec.errors import InputError, listing

if TYPE_CHECKING:
    from netspec.cli.costs import Costs, KernelUse

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec plan train.yaml",
        "netspec plan net.yaml --batch-size 32 vars.width=64",
        "netspec plan train.yaml --kernels",
        "netspec plan train.yaml --workers 8",
        "netspec plan train.yaml --device h200 train.precision=bfloat16",
        "netspec plan train.yaml --device h200 --workers 16 --workers-per-host 8",
    ),
)
def plan(
    spec: Spec,
    overrides: Overrides = None,
    batch_size: Annotated[
        int | None,
        typer.Option(metavar="N", help="Samples in a batch. Default: those of the training file; 1 for a net."),
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="List the kernel of each operation, and why faster ones decline.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Also say what each of so many workers sends in a step, and allocates.",
            show_default=False,
        ),
    ] = None,
    workers_per_host: WorkersPerHost = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="NAME",
            help="Plan for a GPU, which need not be there: t4, a100, l40s, rtx4090, h100, h200 or b200. Also says "
            "whether it fits, the largest batch that does, and the least time of a step. Default: the processor.",
            show_default=False,
        ),
    ] = None,
    autotune: Autotune = None,
    as_json: Json = False,
) -> None:
    """Show layers, shapes, parameters, arithmetic and memory.

    Everything is for one batch; FLOPs are those of the forward direction, a multiplication and an addition being two.
    The memory of the programs is what they will allocate. Nothing is allocated now, and no data is read.
    """
    check_batch(batch_size)
    _check_hosts(workers, workers_per_host)
    from netspec.cli.costs import costs
    from netspec.cli.specs import autotune_of, deterministic_of, load_spec, net_of, precision_of, rounding_of
    from netspec.schema.train import TrainSpec
    from netspec.solvers.base import SolverSpec

    found = load_spec(spec, overrides or ())
    solver = None
    if isinstance(found, TrainSpec):
        assert isinstance(found.solver, SolverSpec)
        solver = found.solver
        batch_size = batch_size or found.data.train.batch_size
    device = device or "null"
    loop = found.train if isinstance(found, TrainSpec) else None
    result = costs(
        net_of(found),
        batch_size or 1,
        dtype=precision_of(found),
        solver=solver,
        autotune=autotune or autotune_of(found),
        rounding=rounding_of(found),
        deterministic=deterministic_of(found),
        loop=loop,
        device=device,
    )
    sent = gpus = None
    if workers is not None:
        from netspec.backends.cuda.gpus import GPUS
        from netspec.cli.gpu_workers import OF_A_HOST, gpu_workers
        from netspec.cli.one_worker import one_worker
        from netspec.cli.sending import sending
        from netspec.cli.stages import as_json as stages_as_json
        from netspec.cli.stages import show, stage_costs

        if device in GPUS:
            workers_per_host = workers_per_host or min(workers, OF_A_HOST)
            gpus = gpu_workers(found, device, workers, workers_per_host, batch_size or 1)
        sent = sending(found, workers, workers_per_host, batch_size or 1, device)
        worker = one_worker(found, workers, batch_size or 1, device)
        stages = stage_costs(found, workers, batch_size or 1, device)
    if as_json:
        spread = {}
        if sent is not None:
            spread = {"sent": sent.as_json(), "worker": worker.as_json(), **stages_as_json(stages)}
            if gpus is not None:
                spread["gpus"] = gpus.as_json()
        print_json({**result.as_json(kernels=kernels), **spread})
        return
    _print_layers(result)
    _print_groups(result)
    _print_programs(result)
    if result.gpu is not None:
        result.gpu.show(result.batch_size)
    if result.remark is not None:
        print(f"\n{result.remark}")
    if sent is not None:
        print()
        if stages:
            show(stages)
            print()
        sent.show()
        if gpus is None:
            worker.show()
        else:
            gpus.show()
    if kernels:
        for purpose, uses in result.kernels.items():
            _print_kernels(purpose, uses)
            for note in result.notes.get(purpose, ()):
                print(note)


def _check_hosts(workers: int | None, per_host: int | None) -> None:
    """Raise `InputError` where hosts of so many workers can't be: of no workers, or of none in all."""
    check_batch(workers, "--workers")
    check_batch(per_host, "--workers-per-host")
    if per_host is not None and workers is None:
        raise InputError("--workers-per-host says nothing without --workers", hint="add how many they are: --workers 8")


def _print_layers(found: Costs) -> None:
    print(f"{found.name}: a batch of {count(found.batch_size)}, {found.precision}\n")
    rows = []
    for one in found.layers:
        figures = [count(one.parameters), scaled(one.flops, "FLOP"), size(one.memory_bytes)]
        rows.append([one.name, one.type, str(list(one.output_shape)), *figures])
        if len(one.outputs) > 1:
            rows += [[f"  {name}", "", str(list(shape)), "", "", ""] for name, shape in one.outputs.items()]
    total = ["total", "", "", count(found.parameters), scaled(found.flops, "FLOP"), size(found.memory_bytes)]
    table(["layer", "type", "output", "parameters", "forward", "memory"], [*rows, total], right=(3, 4, 5))
    frozen = found.parameters - found.trainable_parameters
    if frozen:
        print(f"\n{count(found.trainable_parameters)} parameters are trained, {count(frozen)} are not")


def _print_groups(found: Costs) -> None:
    if not found.groups:
        return
    print("\ngroups of the solver")
    rows = [[count(number), one.says, count(len(one.parameters)), listing(one.parameters, 6)]
            for number, one in enumerate(found.groups, 1)]  # fmt: skip
    table(["", "what they have", "parameters", "which"], rows, right=(0, 2))


def _print_programs(found: Costs) -> None:
    kept = sum(found.states_bytes.values())
    staged = any(one.staged_bytes for one in found.programs.values())
    rows = [
        [
            purpose,
            count(one.nodes),
            scaled(one.flops, "FLOP"),
            size(one.arena_bytes),
            size(one.constant_bytes),
            size(one.steady_bytes),
            *[size(one.staged_bytes)] * staged,
            size(kept),
            size(one.nbytes + kept),
        ]
        for purpose, one in found.programs.items()
    ]
    print()
    inputs = ["inputs"] * staged
    columns = ["program", "operations", "arithmetic", "arena", "constants", "steady", *inputs, "states", "in all"]
    table(columns, rows, right=range(1, len(columns)))
    parts = [f"{STATES[role]} {size(nbytes)}" for role, nbytes in found.states_bytes.items() if nbytes]
    steady = [f"{count(one.steady_nodes)} of {purpose}" for purpose, one in found.programs.items() if one.steady_nodes]
    if steady:
        print(f"\noperations that run only when states have changed: {', '.join(steady)}")
    print(f"\nstates, which all programs share: {', '.join(parts) or 'none'}")
    for purpose, one in found.programs.items():
        if one.recomputed_nodes:
            share = 100 * one.recomputed_flops / (one.flops - one.recomputed_flops)
            print(
                f"\n{purpose} runs {count(one.recomputed_nodes)} operations a second time, so that their results need "
                f"not be kept: its arena is smaller by {size(one.spared_bytes)}, its arithmetic more by "
                f"{scaled(one.recomputed_flops, 'FLOP')} ({share:.1f} %)"
            )


def _lying(kind: str, layout: str) -> str:
    return kind if layout == "plain" else f"{kind} as {layout}"


def _print_kernels(purpose: str, uses: tuple[KernelUse, ...]) -> None:
    print(f"\nkernels of {purpose}, in the order of execution")
    rows = [
        [
            count(number),
            one.op,
            one.layer,
            f"{one.phase}, steady" if one.steady else one.phase,
            ", ".join(_lying(kind, layout) for kind, layout in zip(one.types, one.layouts, strict=True)),
            one.kernel,
            "; ".join(f"{name}: {reason}" for name, reason in one.declined),
        ]
        for number, one in enumerate(uses, 1)
    ]
    table(["", "operation", "layer", "phase", "result", "kernel", "faster ones that decline"], rows, right=(0,))
