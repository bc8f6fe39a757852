"""Plan the execution of a graph: passes, layouts, order, kernels and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from netspec.backends.device import Device
from netspec.errors import Problem, SpecError
from netspec.graph.execution_plan import ExecutionPlan, layout_signature
from netspec.graph.graph import Graph
from netspec.graph.types import DType, Precision
from netspec.passes.base import Pass, run_passes
from netspec.passes.communication_order import OrderCommunication
from netspec.passes.constant_folding import FoldConstants
from netspec.passes.cse import CommonSubexpressions
from netspec.passes.elementwise_fusion import FuseElementwise
from netspec.passes.epilogue_fusion import FuseEpilogues
from netspec.passes.layout import NarrowedValues, assign_layouts
from netspec.passes.memory import plan_memory
from netspec.passes.mixed_precision import narrowable_values
from netspec.passes.multi_tensor import GroupMultiTensor
from netspec.passes.peak_memory import lower_peak
from netspec.passes.prologue_fusion import FusePrologues
from netspec.passes.recompute import RecomputeVariant, recompute
from netspec.passes.schedule import schedule
from netspec.passes.simplify import Simplify
from netspec.passes.state_aliasing import CopyAliasedStates
from netspec.passes.weight_folding import FoldIntoWeights
from netspec.schema.specs.train import LoopSpec

PASSES = (FoldConstants(), Simplify(), FoldIntoWeights(), CommonSubexpressions(), CopyAliasedStates())


def plan_within(
    loop: LoopSpec,
    graph: Graph,
    device: Device,
    precision: DType | Precision,
    kept: int,
    passes: Sequence[Pass] = (),
) -> ExecutionPlan:
    """Plan a training step within the memory budget of `loop`, of which states take `kept` bytes.

    Raises `SpecError` if it does not fit.
    """
    budget, limit = loop.memory_budget, None
    if loop.recompute == "all":
        limit = 0
    elif loop.recompute == "auto":
        room = budget or device.free_bytes()
        limit = None if room is None else max(room - kept, 0)
    plan = make_plan(graph, device, precision, limit=limit, passes=passes)
    if budget is not None and kept + plan.memory.nbytes > budget:
        less = "`recompute: auto` may make it fit" if loop.recompute == "none" else "a smaller `batch_size` needs less"
        raise SpecError(Problem(
            "the training step does not fit into its memory budget", loop.where("memory_budget"), "train.memory_budget",
            expected=f"{kept + plan.memory.nbytes} bytes or more", got=f"{budget} bytes", hint=less,
        ))  # fmt: skip
    return plan


def make_plan(
    graph: Graph,
    device: Device,
    precision: DType | Precision = Precision.FLOAT32,
    *,
    limit: int | None = None,
    passes: Sequence[Pass] = (),
) -> ExecutionPlan:
    """Plan the execution of a graph on a device: passes, layouts, order, kernels and memory.

    `precision` sets the type in which float32 values are stored, and whether products may be rounded (tf32). If the
    program needs more than `limit` bytes in addition to the states, it recomputes values instead of keeping them: as
    few as needed to fit, or, if nothing fits, those that minimize its memory.
    """
    with device.planning_context():
        return _made(graph, device, Precision(precision), limit, passes)


def _made(
    graph: Graph, device: Device, precision: Precision, limit: int | None, passes: Sequence[Pass]
) -> ExecutionPlan:
    stored = precision.storage_dtype
    accepts = partial(device.accepts, precision=precision)
    fusing = FuseEpilogues(accepts), FusePrologues(accepts), FuseElementwise(accepts), GroupMultiTensor(accepts)
    graph = run_passes(graph, (OrderCommunication(), *PASSES, *passes, *fusing))
    narrow = None if stored == stored.compute_dtype else NarrowedValues(narrowable_values(graph), stored)
    assigned = assign_layouts(graph, device, narrow, precision)
    plain = RecomputeVariant(assigned.graph, assigned.layouts, assigned.choices)
    planned = cache(partial(_planned, slots=device.input_slots))

    chosen = plain if limit is None else recompute(plain, lambda one: planned(one).memory.nbytes, limit)
    spared = planned(plain).memory.arena_bytes - planned(chosen).memory.arena_bytes
    return replace(planned(chosen), recomputed=chosen.recomputed, recompute_saved_bytes=spared)


def _planned(variant: RecomputeVariant, slots: int) -> ExecutionPlan:
    """Order and memory."""
    graph, layouts, kernels = variant.graph, variant.layouts, variant.choices
    scheduled = schedule(graph)
    chosen = {node: kernels[node].kernel for node in scheduled.order if node in kernels}
    workspace = {node: kernel.workspace(node, layout_signature(node, layouts)) for node, kernel in chosen.items()}
    apart = frozenset(node for node, kernel in chosen.items() if not kernel.supports_inplace)
    scheduled = lower_peak(graph, scheduled, workspace, layouts, apart)
    order, invariant_count, before_guard_count = (
        scheduled.order,
        scheduled.invariant_count,
        scheduled.before_guard_count,
    )
    choices = {node: kernels[node] for node in order if node in kernels}
    memory = plan_memory(graph, order, workspace, before_guard_count, layouts, invariant_count, slots, apart)
    return ExecutionPlan(graph, order, invariant_count, before_guard_count, choices, layouts, memory)
