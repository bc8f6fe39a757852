"""ScheduleFreeAdamW: AdamW with averaged weights instead of a decaying learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Maximum, cast, scalar
from netspec.graph.ops.unary import Exp, Log, Sqrt
from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.adam import MomentsSpec
from netspec.solvers.rules import average, debias, power
from netspec.solvers.scaling import AddDecayedWeights
from netspec.solvers.schedules.constant import Constant, Schedule
from netspec.solvers.transform import DeclaredSlots, Param, Slots, SlotSpec, Step, Updates, UpdateTransform, for_each

MIN_WEIGHT_SUM = 1e-30
"""Replaces a sum of weights of 0, which it is while the learning rate is 0."""


@dataclass(frozen=True)
class ScaleBySquares(UpdateTransform):
    """u ← u / (√(v / (1 - β₂ᵗ)) + epsilon), with a moving average v of u²"""

    beta_2: float
    epsilon: float

    def init(self, param: Param) -> DeclaredSlots:
        return {"second_moment": 0.0}

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        corrected = 1.0 / debias(self.beta_2, step.count)

        def rule(_: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            second = average(slots["second_moment"], update * update, self.beta_2)
            root = Sqrt()(second * cast(corrected, update.dtype))
            return update / (root + self.epsilon), {"second_moment": second}

        return for_each(updates, slots, step, rule)


@dataclass(frozen=True)
class ScheduleFree(UpdateTransform):
    """u ← y - w, with z ← z - lr · u, x ← (1 - c) · x + c · z and y = (1 - β) · z + β · x

    c is the weight of this step, t^r · (largest lr so far)^power, divided by the sum of the weights of all steps.
    Parameters of one learning rate share the slots of the largest rate and the sum. Evaluation uses x.
    """

    beta: float
    r: float
    power: float

    def init(self, param: Param) -> DeclaredSlots:
        shared = {name: SlotSpec(0.0, (), shared=True) for name in ("largest_rate", "weight_sum")}
        return {"z": SlotSpec(None), "average": SlotSpec(None), **shared}

    def evaluated(self, param: Param) -> str | None:
        return "average"

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        count_weight = Exp()(Log()(step.count) * self.r) if self.r else None

        def rule(param: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            dtype = update.dtype
            largest = Maximum()(slots["largest_rate"], cast(step.scheduled(param), dtype))
            weight = power(largest, self.power) if self.power else scalar(1.0, dtype)
            weight = weight if count_weight is None else weight * cast(count_weight, dtype)
            total = slots["weight_sum"] + weight
            share = weight / Maximum()(total, scalar(MIN_WEIGHT_SUM, dtype))
            z = slots["z"] - step.rate(param) * update
            x = slots["average"] + (z - slots["average"]) * share
            y = z + (x - z) * self.beta
            return y - param.value, {"z": z, "average": x, "largest_rate": largest, "weight_sum": total}

        return for_each(updates, slots, step, rule)


@SOLVERS.register
class ScheduleFreeAdamW(MomentsSpec):
    """AdamW with a running average of the weights for evaluation, so that the learning rate need not decay.

    Gradients g are taken at y, the parameters; v ← β₂ · v + (1 - β₂) · g²;
    z ← z - lr · (g / (√(v / (1 - β₂ᵗ)) + epsilon) + weight_decay · y); a = t^r · (largest lr so far)^weight_lr_power,
    c = a / (sum of all a); x ← (1 - c) · x + c · z; y ← (1 - β₁) · z + β₁ · x. Evaluation, prediction and saved weights
    use x. Defazio et al. 2024, "The Road Less Scheduled", arXiv:2405.15682, as in the authors' package
    `schedulefree`; equal to Keras's for a constant rate without decay. Warm up with
    `learning_rate: {type: Warmup, steps: …, then: 0.0025}`.
    """

    type: Literal["ScheduleFreeAdamW"] = "ScheduleFreeAdamW"
    averages: ClassVar[bool] = True
    foreign_fields: ClassVar[dict[str, str]] = {
        "warmup_steps": "warm up with `learning_rate: {type: Warmup, steps: …, then: 0.0025}`"
    }
    learning_rate: Schedule = Constant(initial=0.0025)
    """Learning rate: a number, or a `Warmup` to a number. It need not decay."""
    beta_1: float = Field(default=0.9, ge=0, lt=1)
    """Share of the average in the weights at which gradients are computed."""
    epsilon: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment, to avoid division by 0."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay: each step subtracts lr · weight_decay · y from z."""
    r: float = Field(default=0.0, ge=0)
    """Exponent of the number of the update in the weight of a step in the average."""
    weight_lr_power: float = Field(default=2.0, ge=0)
    """Exponent of the largest learning rate so far in that weight, so that steps of a warm-up count less."""
    samples: ClassVar = (
        {},
        {
            "learning_rate": 0.05,
            "beta_1": 0.8,
            "beta_2": 0.9,
            "epsilon": 1e-3,
            "weight_decay": 0.01,
            "r": 0.5,
            "weight_lr_power": 1.5,
        },
    )

    def transforms(self) -> Sequence[UpdateTransform]:
        averaged = ScheduleFree(self.beta_1, self.r, self.weight_lr_power)
        return [ScaleBySquares(self.beta_2, self.epsilon), AddDecayedWeights(self.weight_decay), averaged]
