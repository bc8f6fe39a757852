"""Adam, and AdamW, its form with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Maximum, cast, scalar
from netspec.graph.ops.functions import Expm1, Sqrt
from netspec.graph.value import Value
from netspec.schema.kinds import SOLVERS
from netspec.solvers.base import SolverSpec
from netspec.solvers.scaling import AddDecayedWeights, Descend
from netspec.solvers.schedules.constant import Constant, Schedule
from netspec.solvers.transform import Param, Slots, Step, Transform, Updates, for_each


def debias(beta: float, count: Value) -> Value:
    """1 - beta^count, a scalar: the weights that a moving average started at 0 has given by its `count`-th value.

    As -expm1(count · ln beta), which float32 has to all its digits where beta is near 1.
    """
    return -Expm1()(count * log(beta)) if beta else scalar(1.0, count.dtype)


@dataclass(frozen=True)
class ScaleByAdam(Transform):
    """u ← α · m / (√v + epsilon), with moving averages m of u and v of u², and α = √(1 - β₂ᵗ) / (1 - β₁ᵗ)

    With `amsgrad` the largest v so far stands for v.
    """

    beta_1: float
    beta_2: float
    epsilon: float
    amsgrad: bool = False

    def init(self, param: Param) -> dict[str, float]:
        slots = {"first_moment": 0.0, "second_moment": 0.0}
        return {**slots, "largest_second_moment": 0.0} if self.amsgrad else slots

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        alpha = Sqrt()(debias(self.beta_2, step.count)) / debias(self.beta_1, step.count)

        def rule(_: Param, update: Value, own: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            first, second = own["first_moment"], own["second_moment"]
            first = first + (update - first) * (1 - self.beta_1)
            second = second + (update * update - second) * (1 - self.beta_2)
            following = {"first_moment": first, "second_moment": second}
            if self.amsgrad:
                second = Maximum()(own["largest_second_moment"], second)
                following["largest_second_moment"] = second
            return cast(alpha, update.dtype) * first / (Sqrt()(second) + self.epsilon), following

        return for_each(updates, slots, step, rule)


class AdamBase(SolverSpec):
    """Base of solvers that follow Adam's rule."""

    foreign_fields: ClassVar[dict[str, str]] = {"momentum": "here it is `beta_1`"}

    learning_rate: Schedule = Constant(initial=0.001)
    """factor of a step: a number, or a schedule such as `{type: CosineDecay, initial: 0.001}`"""
    beta_1: float = Field(default=0.9, ge=0, lt=1)
    """share of the past in the moving average of the gradients"""
    beta_2: float = Field(default=0.999, ge=0, lt=1)
    """share of the past in the moving average of the squared gradients"""
    epsilon: float = Field(default=1e-7, gt=0)
    """added to the root of the (uncorrected) average square, so that nothing is divided by 0"""
    amsgrad: bool = False
    """divide by the largest average square so far: Reddi et al. 2018, arXiv:1904.09237"""

    def rule(self) -> Transform:
        """Adam's rule with these settings."""
        return ScaleByAdam(self.beta_1, self.beta_2, self.epsilon, self.amsgrad)


@SOLVERS.register
class Adam(AdamBase):
    """Steps scaled, for each element, by moving averages of the gradient and its square.

    g ← ∂loss/∂w + weight_decay · w; m ← β₁ · m + (1 - β₁) · g; v ← β₂ · v + (1 - β₂) · g²;
    w ← w - lr · √(1 - β₂ᵗ) / (1 - β₁ᵗ) · m / (√v + epsilon), t = 1 at the first update. Kingma and Ba 2015,
    arXiv:1412.6980, the form at the end of its section 2, as in Keras and Caffe; PyTorch corrects v before it adds
    epsilon. The weight decay is coupled, as in PyTorch's Adam.
    """

    type: Literal["Adam"] = "Adam"
    samples: ClassVar = (
        {},
        {"learning_rate": 0.01, "beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3, "weight_decay": 0.01},
        {"learning_rate": 0.1, "amsgrad": True, "beta_2": 0.5},
        {"beta_1": 0.0},
    )

    def transforms(self) -> Sequence[Transform]:
        return [AddDecayedWeights(self.weight_decay), self.rule(), Descend()]


@SOLVERS.register
class AdamW(AdamBase):
    """Adam with decoupled weight decay: the decay is not a part of the gradient, so Adam does not scale it.

    w ← w - lr · weight_decay · w, then Adam's step. Loshchilov and Hutter 2019, arXiv:1711.05101; Keras's AdamW.
    """

    type: Literal["AdamW"] = "AdamW"
    weight_decay: float = Field(default=0.004, ge=0)
    """decoupled weight decay: each step takes lr · weight_decay · w off the weights"""
    samples: ClassVar = ({}, {"learning_rate": 0.05, "weight_decay": 0.1, "amsgrad": True})

    def transforms(self) -> Sequence[Transform]:
        return [self.rule(), AddDecayedWeights(self.weight_decay), Descend()]
