"""From a graph to a plan: passes, layouts, order, kernels and memory."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

from netspec.backends.base import Device
from netspec.errors import Problem, SpecError
from netspec.graph.graph import Graph
from netspec.graph.plan import Plan, signature
from netspec.graph.types import DType, Precision
from netspec.passes.absorb import Absorb
from netspec.passes.base import run_passes
from netspec.passes.cse import CommonSubexpressions
from netspec.passes.data_parallel import DataParallel
from netspec.passes.detach import Detach
from netspec.passes.epilogue import FuseEpilogues
from netspec.passes.fold import Fold
from netspec.passes.fuse import FuseElementwise
from netspec.passes.group import GroupAlike
from netspec.passes.layout import Narrow, assign_layouts
from netspec.passes.memory import plan_memory
from netspec.passes.peak import lower_peak
from netspec.passes.precision import narrowable
from netspec.passes.prologue import FusePrologues
from netspec.passes.recompute import Variant, recompute
from netspec.passes.schedule import schedule
from netspec.passes.sequence import InSequence
from netspec.passes.simplify import Simplify
from netspec.schema.train import LoopSpec

PASSES = (Fold(), Simplify(), Absorb(), CommonSubexpressions(), Detach())
BUCKETS = DataParallel()


def plan_within(
    loop: LoopSpec,
    graph: Graph,
    device: Device,
    precision: DType | Precision,
    kept: int,
    buckets: DataParallel = BUCKETS,
) -> Plan:
    """The plan of a training step within the memory that `loop` gives it, of which states take `kept` bytes.

    Raises `SpecError` where it does not fit.
    """
    budget, limit = loop.memory_budget, None
    if loop.recompute == "all":
        limit = 0
    elif loop.recompute == "auto":
        room = budget or device.free_bytes()
        limit = None if room is None else max(room - kept, 0)
    plan = make_plan(graph, device, precision, limit=limit, buckets=buckets)
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
    buckets: DataParallel = BUCKETS,
) -> Plan:
    """Passes, layouts, order, kernels and memory for a graph on a device.

    `precision` says what float32 values may be rounded to where they go to memory, and whether products may be (tf32).
    Where more than `limit` bytes would be needed beside the states, results are computed a second time instead of kept:
    as few as fit, or where nothing fits, those that let the step need least.
    """
    with device.planning():
        return _made(graph, device, Precision(precision), limit, buckets)


def _made(graph: Graph, device: Device, precision: Precision, limit: int | None, buckets: DataParallel) -> Plan:
    stored = precision.stored
    accepts = partial(device.accepts, precision=precision)
    fusing = FuseEpilogues(accepts), FusePrologues(accepts), FuseElementwise(accepts), GroupAlike(accepts)
    graph = run_passes(graph, (InSequence(), *PASSES, buckets, *fusing))
    narrow = None if stored == stored.computed else Narrow(narrowable(graph), stored)
    assigned = assign_layouts(graph, device, narrow, precision)
    plain = Variant(assigned.graph, assigned.layouts, assigned.choices)
    planned = cache(partial(_planned, slots=device.slots))

    chosen = plain if limit is None else recompute(plain, lambda one: planned(one).memory.nbytes, limit)
    spared = planned(plain).memory.arena_bytes - planned(chosen).memory.arena_bytes
    return replace(planned(chosen), again=chosen.again, spared_bytes=spared)


def _planned(variant: Variant, slots: int) -> Plan:
    """Order and memory."""
    graph, layouts, kernels = variant.graph, variant.layouts, variant.choices
    scheduled = schedule(graph)
    chosen = {node: kernels[node].kernel for node in scheduled.order if node in kernels}
    workspace = {node: kernel.workspace(node, signature(node, layouts)) for node, kernel in chosen.items()}
    apart = frozenset(node for node, kernel in chosen.items() if not kernel.overwrites)
    scheduled = lower_peak(graph, scheduled, workspace, layouts, apart)
    order, steady, before_guard = scheduled.order, scheduled.steady, scheduled.before_guard
    choices = {node: kernels[node] for node in order if node in kernels}
    memory = plan_memory(graph, order, workspace, before_guard, layouts, steady, slots, apart)
    return Plan(graph, order, steady, before_guard, choices, layouts, memory)
