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
    state_bytes: int,
    passes: Sequence[Pass] = (),
) -> ExecutionPlan:
    """Plan a training step within the memory budget of `loop`, of which states take `state_bytes`.

    Raises `SpecError` if it does not fit.
    """
    budget, limit = loop.memory_budget, None
    if loop.recompute == "all":
        limit = 0
    elif loop.recompute == "auto":
        available = budget or device.free_bytes()
        limit = None if available is None else max(available - state_bytes, 0)
    plan = make_plan(graph, device, precision, limit=limit, passes=passes)
    if budget is not None and state_bytes + plan.memory.nbytes > budget:
        hint = "set `recompute: auto`" if loop.recompute == "none" else "reduce `batch_size`"
        raise SpecError(Problem(
            "the training step does not fit into its memory budget", loop.where("memory_budget"), "train.memory_budget",
            expected=f"{state_bytes + plan.memory.nbytes} bytes or more", got=f"{budget} bytes", hint=hint,
        ))  # fmt: skip
    return plan


def make_plan(
    graph: Graph,
    device: Device,
    precision: DType | Precision = Precision.FLOAT32,
    *,
    limit: int | None = None,
    passes: Sequence[Pass] = (),
    minimal_recompute: bool = True,
) -> ExecutionPlan:
    """Plan the execution of a graph on a device: passes, layouts, order, kernels and memory.

    `precision` sets the type in which float32 values are stored, and whether products may be rounded (tf32). If the
    program needs more than `limit` bytes in addition to the states, it recomputes values instead of keeping them: as
    few as needed to fit, or, if nothing fits, those that minimize its memory. Without `minimal_recompute`, the search
    ends with the first set of values that fits, which takes fewer plans.
    """
    with device.planning_context():
        return _make_plan(graph, device, Precision(precision), limit, passes, minimal_recompute=minimal_recompute)


def _make_plan(
    graph: Graph,
    device: Device,
    precision: Precision,
    limit: int | None,
    passes: Sequence[Pass],
    *,
    minimal_recompute: bool,
) -> ExecutionPlan:
    storage_dtype = precision.storage_dtype
    accepts = partial(device.accepts, precision=precision)
    fusing = FuseEpilogues(accepts), FusePrologues(accepts), FuseElementwise(accepts), GroupMultiTensor(accepts)
    graph = run_passes(graph, (OrderCommunication(), *PASSES, *passes, *fusing))
    narrow = (
        None
        if storage_dtype == storage_dtype.compute_dtype
        else NarrowedValues(narrowable_values(graph), storage_dtype)
    )
    assigned = assign_layouts(graph, device, narrow, precision)
    without_recompute = RecomputeVariant(assigned.graph, assigned.layouts, assigned.choices)
    plan_of = cache(partial(_plan_memory, slots=device.input_slots))

    if limit is None:
        return plan_of(without_recompute)
    variant = recompute(
        without_recompute, lambda candidate: plan_of(candidate).memory.nbytes, limit, minimal=minimal_recompute
    )
    saved = plan_of(without_recompute).memory.arena_bytes - plan_of(variant).memory.arena_bytes
    return replace(plan_of(variant), recomputed=variant.recomputed, recompute_saved_bytes=saved)


def _plan_memory(variant: RecomputeVariant, slots: int) -> ExecutionPlan:
    """Decide the execution order and the storage of all values."""
    graph, layouts, kernels = variant.graph, variant.layouts, variant.choices
    scheduled = schedule(graph)
    chosen_kernels = {node: kernels[node].kernel for node in scheduled.order if node in kernels}
    workspace = {
        node: kernel.workspace(node, layout_signature(node, layouts)) for node, kernel in chosen_kernels.items()
    }
    not_inplace = frozenset(node for node, kernel in chosen_kernels.items() if not kernel.supports_inplace)
    scheduled = lower_peak(graph, scheduled, workspace, layouts, not_inplace)
    order, invariant_count = scheduled.order, scheduled.invariant_count
    before_guard_count = scheduled.before_guard_count
    choices = {node: kernels[node] for node in order if node in kernels}
    memory = plan_memory(
        graph, order, workspace, before_guard_count=before_guard_count, layouts=layouts,
        invariant_count=invariant_count, input_slots=slots, out_of_place=not_inplace,
    )  # fmt: skip
    return ExecutionPlan(graph, order, invariant_count, before_guard_count, choices, layouts, memory)
