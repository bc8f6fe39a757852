"""Adamax: Adam with the infinity norm of past gradients in place of their average square."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Maximum, cast
from netspec.graph.ops.unary import Abs
from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.adam import MomentsSpec
from netspec.solvers.rules import ScalingSolver, average, debias
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.solvers.transform import DeclaredSlots, Param, Slots, Step, Updates, UpdateTransform, for_each


@dataclass(frozen=True)
class ScaleByAdamax(UpdateTransform):
    """u ← m / ((1 - β₁ᵗ) · (norm + epsilon)), with a moving average m of u, and norm ← max(β₂ · norm, |u|)

    With epsilon `inside` the maximum: u ← m / ((1 - β₁ᵗ) · norm), norm ← max(β₂ · norm, |u| + epsilon).
    """

    beta_1: float | ScheduleSpec
    beta_2: float
    epsilon: float
    inside: bool = False

    def init(self, param: Param) -> DeclaredSlots:
        return {"first_moment": 0.0, "norm": 0.0}

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        corrected = 1.0 / debias(step.now(self.beta_1, step.count.dtype), step.count)

        def rule(_: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            first = average(slots["first_moment"], update, step.now(self.beta_1, update.dtype))
            size = Abs()(update)
            norm = Maximum()(self.beta_2 * slots["norm"], size + self.epsilon if self.inside else size)
            scaled = cast(corrected, update.dtype) * first / (norm if self.inside else norm + self.epsilon)
            return scaled, {"first_moment": first, "norm": norm}

        return for_each(updates, slots, step, rule)


@SOLVERS.register
class Adamax(MomentsSpec, ScalingSolver):
    """Adam with the infinity norm: steps scaled, for each element, by the largest recent gradient.

    g ← ∂loss/∂w + weight_decay · w; m ← β₁ · m + (1 - β₁) · g; u ← max(β₂ · u, |g|);
    w ← w - lr / (1 - β₁ᵗ) · m / (u + epsilon). Kingma and Ba 2015, arXiv:1412.6980, section 7.1, as in Keras; PyTorch
    adds epsilon to |g| before taking the maximum: `epsilon_in_maximum: true`.
    """

    type: Literal["Adamax"] = "Adamax"
    beta_2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the largest gradient."""
    epsilon: float = Field(default=1e-7, gt=0)
    """Added to the largest gradient, to avoid division by 0."""
    epsilon_in_maximum: bool = False
    """Whether epsilon is added to |g| before the maximum, as in PyTorch. false: to the maximum, as in Keras."""
    samples: ClassVar = (
        {},
        {"learning_rate": 0.02, "beta_1": 0.7, "beta_2": 0.9, "weight_decay": 0.01},
        {"learning_rate": 0.02, "beta_2": 0.5, "epsilon": 0.1, "epsilon_in_maximum": True},
        {"learning_rate": 0.02, "beta_1": {"type": "OneCycle", "initial": 0.95, "peak": 0.85, "end": 0.9}},
    )

    def rule(self) -> UpdateTransform:
        return ScaleByAdamax(self.beta_1, self.beta_2, self.epsilon, self.epsilon_in_maximum)
