"""RAdam: Adam that ignores the second moment until its variance is small enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Greater, Maximum, Where, cast, scalar
from netspec.graph.ops.unary import Sqrt
from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.adam import MomentsSpec
from netspec.solvers.rules import ScalingSolver, average, debias, to_power
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.solvers.transform import DeclaredSlots, Param, Slots, Step, Updates, UpdateTransform, for_each

MIN_LENGTH = 5.0
"""Length of the approximated moving average above which the second moment is used."""


@dataclass(frozen=True)
class ScaleByRAdam(UpdateTransform):
    """u ← m / (1 - β₁ᵗ) · r · √(1 - β₂ᵗ) / (√v + epsilon) if ρₜ > 5, before that u ← m / (1 - β₁ᵗ)

    with moving averages m of u and v of u², ρ = 2 / (1 - β₂) - 1, ρₜ = ρ - 2t · β₂ᵗ / (1 - β₂ᵗ), and the rectification
    r = √((ρₜ - 4)(ρₜ - 2)ρ / ((ρ - 4)(ρ - 2)ρₜ)).
    """

    beta_1: float | ScheduleSpec
    beta_2: float
    epsilon: float

    def init(self, param: Param) -> DeclaredSlots:
        return {"first_moment": 0.0, "second_moment": 0.0}

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        is_rectified, factor = self._rectification(step.count)
        corrected = 1.0 / debias(step.now(self.beta_1, step.count.dtype), step.count)

        def rule(_: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            dtype = update.dtype
            first = average(slots["first_moment"], update, step.now(self.beta_1, update.dtype))
            second = average(slots["second_moment"], update * update, self.beta_2)
            scale = cast(factor, dtype) / (Sqrt()(second) + self.epsilon)
            scaled = cast(corrected, dtype) * first * Where()(is_rectified, scale, scalar(1.0, dtype))
            return scaled, {"first_moment": first, "second_moment": second}

        return for_each(updates, slots, step, rule)

    def _rectification(self, count: Value) -> tuple[Value, Value]:
        """Return whether the second moment is used, and the factor r · √(1 - β₂ᵗ): scalars."""
        max_length, corrected = 2 / (1 - self.beta_2) - 1, debias(self.beta_2, count)
        if not self.beta_2:  # the average has length 1
            return Greater()(scalar(0.0, count.dtype), count), corrected
        length = max_length - 2.0 * count * to_power(self.beta_2, count) / corrected
        safe = Maximum()(length, scalar(MIN_LENGTH, count.dtype))
        share = max_length / ((max_length - 4) * (max_length - 2)) if max_length > 4 else 0.0  # never above 5
        factor = Sqrt()((safe - 4.0) * (safe - 2.0) * share / safe * corrected)
        return Greater()(length, scalar(MIN_LENGTH, count.dtype)), factor


@SOLVERS.register
class RAdam(MomentsSpec, ScalingSolver):
    """Adam that ignores the second moment during the first steps, while its variance is large.

    g ← ∂loss/∂w + weight_decay · w; m ← β₁ · m + (1 - β₁) · g; v ← β₂ · v + (1 - β₂) · g²; ρ = 2 / (1 - β₂) - 1,
    ρₜ = ρ - 2t · β₂ᵗ / (1 - β₂ᵗ). If ρₜ > 5: w ← w - lr · r · m / (1 - β₁ᵗ) · √(1 - β₂ᵗ) / (√v + epsilon) with
    r = √((ρₜ - 4)(ρₜ - 2)ρ / ((ρ - 4)(ρ - 2)ρₜ)); before that w ← w - lr · m / (1 - β₁ᵗ). Liu et al. 2020,
    arXiv:1908.03265; PyTorch's RAdam (not in Keras).
    """

    type: Literal["RAdam"] = "RAdam"
    epsilon: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment (without bias correction), to avoid division by 0."""
    samples: ClassVar = (
        {},
        {"learning_rate": 0.02, "beta_1": 0.7, "beta_2": 0.9, "weight_decay": 0.01},
        {"learning_rate": 0.02, "beta_2": 0.5},
        {"learning_rate": 0.02, "beta_1": {"type": "OneCycle", "initial": 0.95, "peak": 0.85, "end": 0.9}},
    )

    def rule(self) -> UpdateTransform:
        return ScaleByRAdam(self.beta_1, self.beta_2, self.epsilon)
