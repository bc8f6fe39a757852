"""Nadam: Adam with Nesterov's momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import cast
from netspec.graph.ops.unary import Sqrt
from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.adam import MomentsSpec
from netspec.solvers.rules import ScalingSolver, average, debias, to_power
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.solvers.transform import DeclaredSlots, Param, Slots, SlotSpec, Step, Updates, UpdateTransform, for_each


@dataclass(frozen=True)
class ScaleByNadam(UpdateTransform):
    """u ← (μₜ₊₁ · m / (1 - μ₁ … μₜ₊₁) + (1 - μₜ) · u / (1 - μ₁ … μₜ)) / (√(v / (1 - β₂ᵗ)) + epsilon)

    with moving averages m of u and v of u², and μₜ = β₁ · (1 - ½ · 0.96^(t · momentum_decay)). The parameters
    share a slot for the product of all μ so far.
    """

    beta_1: float | ScheduleSpec
    beta_2: float
    epsilon: float
    momentum_decay: float

    def init(self, param: Param) -> DeclaredSlots:
        return {"first_moment": 0.0, "second_moment": 0.0, "momentum_product": SlotSpec(1.0, (), shared=True)}

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        beta_1 = step.now(self.beta_1, step.count.dtype)
        momentum, next_momentum = (self._momentum(beta_1, count) for count in (step.count, step.count + 1.0))
        corrected = debias(self.beta_2, step.count)

        def rule(_: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            dtype = update.dtype
            first = average(slots["first_moment"], update, step.now(self.beta_1, dtype))
            second = average(slots["second_moment"], update * update, self.beta_2)
            product = slots["momentum_product"] * cast(momentum, dtype)
            first_factor = cast(next_momentum, dtype) / (1.0 - product * cast(next_momentum, dtype))
            update_factor = (1.0 - cast(momentum, dtype)) / (1.0 - product)
            scaled = (first_factor * first + update_factor * update) / (
                Sqrt()(second / cast(corrected, dtype)) + self.epsilon
            )
            return scaled, {"first_moment": first, "second_moment": second, "momentum_product": product}

        return for_each(updates, slots, step, rule)

    def _momentum(self, beta_1: float | Value, count: Value) -> Value:
        """Return μ of an update, a scalar."""
        return beta_1 * (1.0 - 0.5 * to_power(0.96**self.momentum_decay, count))


@SOLVERS.register
class Nadam(MomentsSpec, ScalingSolver):
    """Adam with Nesterov momentum.

    g ← ∂loss/∂w + weight_decay · w; m ← β₁ · m + (1 - β₁) · g; v ← β₂ · v + (1 - β₂) · g²;
    m̂ = μₜ₊₁ · m / (1 - μ₁ … μₜ₊₁) + (1 - μₜ) · g / (1 - μ₁ … μₜ) with μₜ = β₁ · (1 - ½ · 0.96^(t · momentum_decay));
    w ← w - lr · m̂ / (√(v / (1 - β₂ᵗ)) + epsilon). Dozat 2016, "Incorporating Nesterov Momentum into Adam". By default
    as in Keras; with `momentum_decay: 0.004` as in PyTorch's NAdam.
    """

    type: Literal["Nadam"] = "Nadam"
    foreign_fields: ClassVar[dict[str, str]] = {"schedule_decay": "use `momentum_decay`"}
    momentum_decay: float = Field(default=1.0, ge=0)
    """Rate at which the momentum μ rises to `beta_1`: 1 in Keras, 0.004 in PyTorch and in the paper."""
    samples: ClassVar = (
        {},
        {"learning_rate": 0.02, "beta_1": 0.7, "beta_2": 0.9, "momentum_decay": 0.004, "weight_decay": 0.01},
        {"learning_rate": 0.02, "beta_1": {"type": "OneCycle", "initial": 0.95, "peak": 0.85, "end": 0.9}},
    )

    def rule(self) -> UpdateTransform:
        return ScaleByNadam(self.beta_1, self.beta_2, self.epsilon, self.momentum_decay)
