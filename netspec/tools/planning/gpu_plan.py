"""Costs of a net on a GPU, present or not: whether it fits, the largest batch, the minimum time of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from netspec.backends.cuda.gpus import Gpu
from netspec.backends.device_registry import PlannedGpu
from netspec.compile.layer_costs import flops_of
from netspec.graph.execution_plan import ExecutionPlan, layout_signature
from netspec.graph.fused import inner_traits
from netspec.graph.kernel import bytes_moved, multiply_precision
from netspec.graph.types import DType, Precision
from netspec.graph.value import Node
from netspec.tools.plain_data import PlainData
from netspec.tools.planning.batch_limit import BatchLimit


@dataclass(frozen=True)
class LeastTime:
    """Minimum time of a program: every kernel runs at the GPU's peak arithmetic or memory rate, without caches."""

    seconds: float
    arithmetic: float
    """Seconds of operations bound by arithmetic."""
    memory: float
    """Seconds of operations bound by memory."""
    launches: float
    """Seconds of operations bound by their launch."""
    reference: int
    """Number of operations that run reference code, which moves more bytes than are counted."""


@dataclass(frozen=True)
class GpuCosts(PlainData):
    """A net on a GPU."""

    name: str
    title: str
    memory_bytes: int
    needed_bytes: int
    """Bytes of the program that needs most, states included."""
    largest_batch: int | None
    """Largest number of samples that fits without recomputation; None if not even one does."""
    least: dict[str, LeastTime]
    """Minimum times, by program."""


def gpu_costs(device: PlannedGpu, plans: Mapping[str, ExecutionPlan], states: int, limit: BatchLimit) -> GpuCosts:
    """Return the costs of the programs of `plans`, which share `states` bytes."""
    gpu = device.gpu
    needed = states + max((plan.memory.nbytes for plan in plans.values()), default=0)
    least = {purpose: least_time(plan, gpu) for purpose, plan in plans.items()}
    return GpuCosts(device.name, gpu.title, gpu.memory, needed, limit.samples, least)


def least_time(plan: ExecutionPlan, gpu: Gpu) -> LeastTime:
    """Return the sum of the roofline times of all operations (Williams et al. 2009, "Roofline")."""
    spent = {"arithmetic": 0.0, "memory": 0.0, "launches": 0.0}
    invariant, reference = set(plan.order[: plan.invariant_count]), 0
    for node, choice in plan.choices.items():
        if node in invariant:
            continue
        reference += choice.kernel.rank <= 0
        bound, seconds = bounded(node, plan, gpu)
        spent[bound] += seconds
    return LeastTime(sum(spent.values()), **spent, reference=reference)


def bounded(node: Node, plan: ExecutionPlan, gpu: Gpu) -> tuple[str, float]:
    """Return the bound of an operation, and its minimum time in seconds."""
    takes = {
        "arithmetic": flops_of(node)
        / gpu.rates.contraction_rate(_computed_in(node, plan, tf32=plan.choices[node].kernel.tf32)),
        "memory": bytes_moved(node, layout_signature(node, plan.layouts)) / gpu.rates.bytes_per_second,
        "launches": gpu.rates.call_seconds,
    }
    bound = max(takes, key=takes.__getitem__)
    return bound, takes[bound]


def _computed_in(node: Node, plan: ExecutionPlan, *, tf32: bool) -> Precision:
    """Products as their operands lie; all else in float32, or in float64."""
    if inner_traits(node.op).is_contraction:
        return multiply_precision(node, layout_signature(node, plan.layouts), tf32=tf32)
    return Precision.FLOAT64 if node.types[0].dtype == DType.FLOAT64 else Precision.FLOAT32
