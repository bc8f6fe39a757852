"""Costs of a net: shapes, parameters, arithmetic and memory, by layer and in total. Nothing is allocated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from netspec.backends.cuda.gpus import GPUS
from netspec.backends.device_registry import PlannedGpu
from netspec.compile import Compiler, ProgramKind
from netspec.compile.layer_costs import LayerCost, flops_of, layer_costs
from netspec.errors import InputError, RunError, did_you_mean, listing
from netspec.graph.execution_plan import ExecutionPlan, align_up
from netspec.graph.kernel import NoKernelError
from netspec.graph.value import Node
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.solvers.groups import group_of
from netspec.tools.bounds import require_at_least
from netspec.tools.compilers import compiler_for, device_for, own_solver
from netspec.tools.planning.batch_limit import BatchLimit, batch_limit
from netspec.tools.planning.gpu_plan import GpuCosts, gpu_costs
from netspec.tools.specs import batch_size_of, load_spec

if TYPE_CHECKING:
    from netspec.tools.planning.gpu_worker_plan import GpuWorkers
    from netspec.tools.planning.worker_plan import StageCost, WorkerMemory, WorkerTraffic

PLANNING = ("null", *GPUS)
"""Devices to plan for: the CPU, or a GPU."""


@dataclass(frozen=True)
class ProgramCost:
    """One compiled program, with the memory allocated for it in addition to the states."""

    nodes: int
    """Operations of each run."""
    invariant_nodes: int
    """Operations that run only after states have changed, such as converting weights to the layout of a kernel."""
    flops: int
    """Floating-point operations of each run."""
    arena_bytes: int
    """Bytes of all values of a step and of the kernels' scratch memory; this is what is allocated."""
    lower_bound_bytes: int
    """The most bytes alive at once: no plan can be smaller."""
    constant_bytes: int
    invariant_bytes: int
    """Bytes of the results of invariant operations."""
    staged_bytes: int
    """Bytes of inputs that are staged for the copy to a GPU."""
    recomputed_nodes: int
    """Operations that run a second time, because their results are not kept for the gradients."""
    recomputed_flops: int
    """Floating-point operations of these, in each run."""
    spared_bytes: int
    """Bytes that the arena is smaller by because of them."""

    @property
    def nbytes(self) -> int:
        """Bytes allocated for the program in addition to the states."""
        return self.arena_bytes + self.constant_bytes + self.invariant_bytes + self.staged_bytes


@dataclass(frozen=True)
class KernelUse:
    """One node of a program, and the kernel that runs it."""

    op: str
    layer: str
    phase: str
    types: tuple[str, ...]
    """Element type and shape of each result."""
    layouts: tuple[str, ...]
    """Memory layout of each result: `plain`, an order of axes, or a layout private to the kernel."""
    invariant: bool
    """Whether it runs only when states have changed."""
    kernel: str
    rejected: tuple[tuple[str, str], ...]
    """Faster kernels, and why they can't take the node."""


@dataclass(frozen=True)
class GroupUse:
    """A group of a solver's parameters."""

    settings: str
    """The settings of the group in one line."""
    parameters: tuple[str, ...]
    """The trained parameters that are in it."""


@dataclass(frozen=True)
class Costs:
    """Costs of a net, or of a training step."""

    name: str
    batch_size: int
    precision: str
    layers: tuple[LayerCost, ...]
    parameters: int
    trainable_parameters: int
    states_bytes: dict[str, int]
    """Bytes that outlive a step, by role: `parameter`, `statistic`, `slot`, `gradient`."""
    programs: dict[str, ProgramCost]
    """Plans by program: `train`, `test`, `predict`."""
    kernels: dict[str, tuple[KernelUse, ...]]
    """For the purposes in `programs`, in the order of execution."""
    notes: dict[str, tuple[str, ...]]
    """Remarks of the device about a program, by program; empty for most."""
    gpu: GpuCosts | None = None
    """Costs on the GPU that was planned for."""
    largest_batch: BatchLimit | None = None
    """The largest batch that fits into memory, on request."""
    remark: str | None = None
    """Remark of the device about the precision."""
    groups: tuple[GroupUse, ...] = ()
    """Parameters by group of the solver, in order; those in no group come last. Empty without groups."""

    def as_json(self, *, kernels: bool) -> dict[str, Any]:
        """The costs as plain data, with the kernels on request."""
        data = asdict(self)
        for name in ("gpu", "largest_batch", "remark"):
            if data[name] is None:
                del data[name]
        data["totals"] = {"flops": self.flops, "memory_bytes": self.memory_bytes}
        if not kernels:
            del data["kernels"], data["notes"]
        return data

    @property
    def flops(self) -> int:
        """Floating-point operations of the forward pass of all layers."""
        return sum(layer.flops for layer in self.layers)

    @property
    def contraction_flops(self) -> int:
        """FLOPs of convolutions, matrix products and recurrent cells in the forward pass, as most papers count."""
        return sum(layer.contraction_flops for layer in self.layers)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the values of all layers."""
        return sum(layer.memory_bytes for layer in self.layers)


@dataclass(frozen=True)
class WorkerPlan:
    """A training step of several workers, planned before there are any."""

    sent: WorkerTraffic
    """Messages of a step."""
    worker: WorkerMemory
    """Memory of the worker that needs most."""
    stages: tuple[StageCost, ...]
    """Stages of a pipeline; empty for other strategies."""
    gpus: GpuWorkers | None
    """Time and memory on the GPUs that it was planned for."""

    def as_json(self) -> dict[str, Any]:
        """The plan as plain data."""
        stages = {"stages": [asdict(stage) for stage in self.stages]} if self.stages else {}
        gpus = {"gpus": self.gpus.as_json()} if self.gpus is not None else {}
        return {"sent": self.sent.as_json(), "worker": self.worker.as_json(), **stages, **gpus}


@dataclass(frozen=True)
class Plan:
    """Costs of a net or a training step, and of the workers if there are several."""

    costs: Costs
    workers: WorkerPlan | None

    def as_json(self, *, kernels: bool = False) -> dict[str, Any]:
        """The plan as plain data, with the kernel of each operation on request."""
        return {**self.costs.as_json(kernels=kernels), **(self.workers.as_json() if self.workers else {})}


def plan(
    source: Source,
    *,
    overrides: Overrides = (),
    batch_size: int | None = None,
    workers: int | None = None,
    workers_per_host: int | None = None,
    device: str | None = None,
    autotune: str | None = None,
    largest_batch: bool = False,
) -> Plan:
    """Plan a net or a training step: shapes, parameters, arithmetic, memory and kernels. Nothing is allocated.

    `batch_size` defaults to that of the training file, or 1 for a net. With `workers`, the plan includes what each
    worker sends and allocates in a step, with `workers_per_host` of them on a host. `device` is the CPU by
    default, or a GPU that need not be present, such as `"h200"`: then the plan says whether the net fits, the largest
    batch that does, and the least time of a step. `largest_batch` searches for the largest batch that fits into the
    memory of this machine, or of the GPU: `costs.largest_batch` has its samples and bytes.

    Raises `InputError` if the spec is wrong or cannot be spread over the workers.

        >>> netspec.plan("train.yaml", device="h200").costs.gpu.largest_batch
    """
    require_at_least(1, {"--batch-size": batch_size, "--workers": workers, "--workers-per-host": workers_per_host})
    if workers_per_host is not None and workers is None:
        raise InputError("--workers-per-host has no effect without --workers", hint="add the number: `--workers 8`")
    if largest_batch and workers is not None:
        raise InputError("--largest-batch is for one worker", hint="omit `--workers`")
    spec, device = load_spec(source, overrides), device or "null"
    samples = batch_size_of(spec, batch_size)
    _check_device(device)
    compiler = compiler_for(spec, own_solver(spec), device_for(spec, device, autotune))
    result = costs(compiler, samples, largest_batch=largest_batch)
    if workers is None:
        return Plan(result, None)
    return Plan(result, _plan_workers(spec, workers, workers_per_host, samples, device))


def _plan_workers(
    spec: NetSpec | TrainSpec, workers: int, per_host: int | None, batch_size: int, device: str
) -> WorkerPlan:
    # A plan of one worker loads nothing of several.
    from netspec.tools.planning.gpu_worker_plan import OF_A_HOST, gpu_workers
    from netspec.tools.planning.worker_plan import stage_costs, worker_memory, worker_traffic

    gpus = None
    if device in GPUS:
        per_host = per_host or min(workers, OF_A_HOST)
        gpus = gpu_workers(spec, device, workers, per_host, batch_size)
    sent = worker_traffic(spec, workers, per_host, batch_size, device)
    worker = worker_memory(spec, workers, batch_size, device)
    return WorkerPlan(sent, worker, tuple(stage_costs(spec, workers, batch_size, device)), gpus)


def costs(compiler: Compiler, batch_size: int, *, largest_batch: bool = False) -> Costs:
    """Plan a net for batches of a size; with a solver also the training step, within the memory that its loop allows.

    With autotuning, the plan uses the kernels that earlier measurements found fastest; planning measures none.
    `largest_batch` plans more sizes, to find the largest batch that fits. Raises `SpecError` if the step does not fit
    into its memory budget.
    """
    net, solver, opened = compiler.spec, compiler.solver, compiler.device
    purposes = [
        *([compiler.batch_program] if solver else []),
        *([ProgramKind.UPDATE] if compiler.updates else []),
        *([ProgramKind.TEST] if net.losses or net.metrics else []),
        ProgramKind.PREDICT,
    ]
    try:
        plans = {
            str(purpose): compiler.plan(purpose, 1 if purpose is ProgramKind.UPDATE else batch_size)
            for purpose in purposes
        }
    except NoKernelError as error:
        raise RunError(f"there is no kernel for a part of this net: {error}") from None
    info = compiler.info.values()
    limit = batch_limit(compiler, batch_size) if largest_batch or isinstance(opened, PlannedGpu) else None
    states = Counter(dict.fromkeys(("parameter", "statistic", "slot", "gradient"), 0))
    for state in info:
        states[state.role] += align_up(state.value.type.nbytes)
    parameters = [state for state in info if state.role == "parameter"]
    return Costs(
        name=net.name,
        batch_size=batch_size,
        precision=str(compiler.precision),
        layers=tuple(layer_costs(compiler, compiler.net_graph(ProgramKind.PREDICT, batch_size))),
        parameters=sum(parameter.value.type.size for parameter in parameters),
        trainable_parameters=sum(parameter.value.type.size for parameter in parameters if parameter.trainable),
        states_bytes=dict(states),
        gpu=gpu_costs(opened, plans, states.total(), limit) if isinstance(opened, PlannedGpu) and limit else None,
        largest_batch=limit if largest_batch else None,
        remark=compiler.remark,
        programs={name: _program(plan) for name, plan in plans.items()},
        kernels={name: tuple(_kernels(plan)) for name, plan in plans.items()},
        notes={name: tuple(remarks) for name, plan in plans.items() if (remarks := opened.notes(plan))},
        groups=tuple(_groups(solver, compiler)) if solver is not None and solver.groups else (),
    )


def _check_device(device: str) -> None:
    """Raise `InputError` unless a device is one that only plans."""
    if device not in PLANNING:
        raise InputError(
            f"`netspec plan` has no device {device!r}", expected=f"one of {listing([*GPUS])}",
            hint=did_you_mean(device, GPUS) or "without `--device` the plan is for the CPU",
        )  # fmt: skip


def _groups(solver: SolverSpec, compiler: Compiler) -> Iterable[GroupUse]:
    trained = [name for name, info in compiler.info.items() if info.trainable]
    for index, group in enumerate(solver.groups):
        members = tuple(name for name in trained if group_of(solver.groups, name) == index)
        yield GroupUse(group.summary(), members)
    ungrouped = tuple(name for name in trained if group_of(solver.groups, name) is None)
    if ungrouped:
        yield GroupUse("the solver's settings", ungrouped)


def _program(plan: ExecutionPlan) -> ProgramCost:
    memory = plan.memory
    invariant = _invariant(plan)
    return ProgramCost(
        nodes=len(plan.choices) - len(invariant),
        invariant_nodes=len(invariant),
        flops=sum(flops_of(node) for node in plan.choices if node not in invariant),
        arena_bytes=memory.arena_bytes,
        lower_bound_bytes=memory.lower_bound,
        constant_bytes=memory.constant_bytes,
        invariant_bytes=memory.invariant_bytes,
        staged_bytes=memory.staged_bytes,
        recomputed_nodes=len(plan.recomputed),
        recomputed_flops=sum(map(flops_of, plan.recomputed)),
        spared_bytes=plan.recompute_saved_bytes,
    )


def _invariant(plan: ExecutionPlan) -> set[Node]:
    return {node for node in plan.order[: plan.invariant_count] if node in plan.choices}


def _kernels(plan: ExecutionPlan) -> Iterable[KernelUse]:
    invariant = _invariant(plan)
    for node, choice in plan.choices.items():
        types = tuple(str(kind) for kind in node.types)
        layouts = tuple(str(plan.layouts[value]) for value in node.outputs)
        scope = node.scope
        yield KernelUse(
            node.op.name, scope.layer, scope.phase, types, layouts, node in invariant, choice.label, choice.rejected
        )
