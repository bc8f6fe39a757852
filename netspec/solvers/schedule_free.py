"""ScheduleFreeAdamW: averages of the weights in place of a falling learning rate."""

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
from netspec.solvers.transform import Declared, Kept, Param, Slots, Step, Updates, UpdateTransform, for_each

LEAST_WEIGHT = 1e-30
"""In place of a sum of weights that is 0, as long as the learning rate was."""


@dataclass(frozen=True)
class ScaleBySquares(UpdateTransform):
    """u ← u / (√(v / (1 - β₂ᵗ)) + epsilon), with a moving average v of u²"""

    beta_2: float
    epsilon: float

    def init(self, param: Param) -> Declared:
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
    """u ← what leads to y = (1 - β) · z + β · x, with z ← z - lr · u and x ← (1 - c) · x + c · z

    c is the share of this step's weight t^r · (largest lr so far)^power in the sum of all weights. The weights' largest
    rate and sum are kept once for all parameters of one rate; x is what is evaluated.
    """

    beta: float
    r: float
    power: float

    def init(self, param: Param) -> Declared:
        shared = {name: Kept(0.0, (), shared=True) for name in ("largest_rate", "weight_sum")}
        return {"z": Kept(None), "average": Kept(None), **shared}

    def evaluated(self, param: Param) -> str | None:
        return "average"

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        counted = Exp()(Log()(step.count) * self.r) if self.r else None

        def rule(param: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            dtype = update.dtype
            largest = Maximum()(slots["largest_rate"], cast(step.scheduled(param), dtype))
            weight = power(largest, self.power) if self.power else scalar(1.0, dtype)
            weight = weight if counted is None else weight * cast(counted, dtype)
            total = slots["weight_sum"] + weight
            share = weight / Maximum()(total, scalar(LEAST_WEIGHT, dtype))
            z = slots["z"] - step.rate(param) * update
            x = slots["average"] + (z - slots["average"]) * share
            y = z + (x - z) * self.beta
            following = {"z": z, "average": x, "largest_rate": largest, "weight_sum": total}
            return y - param.value, following

        return for_each(updates, slots, step, rule)


@SOLVERS.register
class ScheduleFreeAdamW(MomentsSpec):
    """AdamW whose weights are averaged as it goes, so that the rate need not fall; the average is what is evaluated.

    Gradients g are taken at y, the parameters; v ← β₂ · v + (1 - β₂) · g²;
    z ← z - lr · (g / (√(v / (1 - β₂ᵗ)) + epsilon) + weight_decay · y); a = t^r · (largest lr so far)^weight_lr_power,
    c = a / (sum of all a); x ← (1 - c) · x + c · z; y ← (1 - β₁) · z + β₁ · x. Evaluation, prediction and saved weights
    are of x. Defazio et al. 2024, "The Road Less Scheduled", arXiv:2405.15682, in the form of its authors' package
    `schedulefree`; Keras's is the same with a constant rate and no decay. Warm up by
    `learning_rate: {type: Warmup, steps: …, then: 0.0025}`.
    """

    type: Literal["ScheduleFreeAdamW"] = "ScheduleFreeAdamW"
    averages: ClassVar[bool] = True
    foreign_fields: ClassVar[dict[str, str]] = {
        "warmup_steps": "warm up by the rate: `learning_rate: {type: Warmup, steps: …, then: 0.0025}`"
    }
    learning_rate: Schedule = Constant(initial=0.0025)
    """factor of a step: a number, or a `Warmup` to one; it need not fall"""
    beta_1: float = Field(default=0.9, ge=0, lt=1)
    """how near to the average the gradients are taken"""
    epsilon: float = Field(default=1e-8, gt=0)
    """added to the root of the average square, so that nothing is divided by 0"""
    weight_decay: float = Field(default=0.0, ge=0)
    """decoupled weight decay, of the weights that gradients are taken at: each step takes lr · weight_decay · y"""
    r: float = Field(default=0.0, ge=0)
    """exponent of the number of the update in its weight in the average"""
    weight_lr_power: float = Field(default=2.0, ge=0)
    """exponent of the largest learning rate so far in that weight: steps of a warm-up count less"""
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
