"""`PlannedKernel`: base class of kernels that run a plan of cuDNN; autotuning measures other plans."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import TypeVar

from netspec.backends.cuda.cudnn.plans import CudnnPlan, Operation, no_plan_reason, plan_names, require_plan
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Kernel
from netspec.graph.layout import LayoutSignature
from netspec.graph.value import Node

PlannedT = TypeVar("PlannedT", bound="PlannedKernel")


class PlannedKernel(Kernel):
    """Base class: the library plans an operation for each node."""

    pick: str | None = None
    """Name of the plan; default: the one that the library estimates to be fastest."""

    @property
    def label(self) -> str:
        return super().label + ("" if self.pick is None else f" by {self.pick}")

    def operation(self, node: Node, layouts: LayoutSignature) -> Operation:
        """The operation to plan for a node with these layouts."""
        raise NotImplementedError  # abstract

    def tuning_variants(self, node: Node, signature: LayoutSignature) -> Sequence[Kernel]:
        """Return kernels that run other plans of the library."""
        operation = self.operation(node, signature)
        return [] if no_plan_reason(operation) else [with_attributes(self, pick=name) for name in plan_names(operation)]

    def plan_bytes(self, node: Node, layouts: LayoutSignature) -> int:
        """Bytes of the plan's workspace."""
        return align_up(require_plan(self.operation(node, layouts)).workspace)

    def plan(self, node: Node, layouts: LayoutSignature) -> CudnnPlan:
        """The plan to run. Raises `RuntimeError` if there is none."""
        plan = require_plan(self.operation(node, layouts))
        assert isinstance(plan, CudnnPlan), "an assumed plan cannot run"
        return plan


@cache
def with_attributes(kernel: PlannedT, **attributes: str | bool) -> PlannedT:
    """Return a copy of a kernel with other attributes."""
    other = copy(kernel)
    vars(other).update(attributes)
    return other
