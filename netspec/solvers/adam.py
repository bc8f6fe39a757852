"""Adam, and AdamW, its form with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Maximum, cast
from netspec.graph.ops.unary import Sqrt
from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.base import SolverSpec
from netspec.solvers.rules import DecoupledSolver, ScalingSolver, average, debias
from netspec.solvers.scaling import Descend
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.solvers.schedules.constant import Coefficient, Constant, Schedule
from netspec.solvers.transform import DeclaredSlots, Param, Slots, Step, Updates, UpdateTransform, for_each


@dataclass(frozen=True)
class ScaleByAdam(UpdateTransform):
    """u ← α · m / (√v + epsilon), with moving averages m of u and v of u², and α = √(1 - β₂ᵗ) / (1 - β₁ᵗ)

    With `amsgrad`, the largest v so far replaces v. With `corrected`, epsilon · √(1 - β₂ᵗ) replaces epsilon, so that
    epsilon is added to the root of the bias-corrected v.
    """

    beta_1: float | ScheduleSpec
    beta_2: float
    epsilon: float
    amsgrad: bool = False
    corrected: bool = False

    def init(self, param: Param) -> DeclaredSlots:
        slots = {"first_moment": 0.0, "second_moment": 0.0}
        return {**slots, "largest_second_moment": 0.0} if self.amsgrad else slots

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        correction = Sqrt()(debias(self.beta_2, step.count))
        beta_1 = step.now(self.beta_1, step.count.dtype)
        alpha, scaled = correction / debias(beta_1, step.count), correction * self.epsilon

        def rule(_: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            first = average(slots["first_moment"], update, step.now(self.beta_1, update.dtype))
            second = average(slots["second_moment"], update * update, self.beta_2)
            following = {"first_moment": first, "second_moment": second}
            if self.amsgrad:
                second = Maximum()(slots["largest_second_moment"], second)
                following["largest_second_moment"] = second
            root = Sqrt()(second) + (cast(scaled, update.dtype) if self.corrected else self.epsilon)
            return cast(alpha, update.dtype) * first / root, following

        return for_each(updates, slots, step, rule)


class MomentsSpec(SolverSpec):
    """Base of solvers with moving averages of the gradient and its square."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "momentum": "use `beta_1`",
        "momentum2": "`momentum2` is Caffe's name: use `beta_2`",
    }

    usual_learning_rates: ClassVar[tuple[float, float]] = (1e-5, 0.01)
    learning_rate: Schedule = Constant(initial=0.001)
    """Learning rate: a number, or a schedule such as `{type: CosineDecay, initial: 0.001}`."""
    beta_1: Coefficient = 0.9
    """Decay of the first moment, the moving average of the gradients: a number, or a schedule."""
    beta_2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the second moment, the moving average of the squared gradients."""
    epsilon: float = Field(default=1e-7, gt=0)
    """Added to the root of the second moment, to avoid division by 0."""


class AdamBase(MomentsSpec):
    """Base of solvers that use Adam's rule."""

    epsilon_mode: Literal["uncorrected", "bias_corrected"] = "uncorrected"
    """The root to which epsilon is added: `uncorrected`: √v, as in Keras and Caffe; `bias_corrected`:
    √(v / (1 - β₂ᵗ)), as in PyTorch and algorithm 1 of the paper."""
    amsgrad: bool = False
    """Whether to divide by the root of the largest second moment so far: Reddi et al. 2018, arXiv:1904.09237."""

    def rule(self) -> UpdateTransform:
        """Return Adam's rule with these settings."""
        corrected = self.epsilon_mode == "bias_corrected"
        return ScaleByAdam(self.beta_1, self.beta_2, self.epsilon, self.amsgrad, corrected)


@SOLVERS.register
class Adam(AdamBase, ScalingSolver):
    """Adam: steps scaled, for each element, by moving averages of the gradient and its square.

    g ← ∂loss/∂w + weight_decay · w; m ← β₁ · m + (1 - β₁) · g; v ← β₂ · v + (1 - β₂) · g²;
    w ← w - lr · √(1 - β₂ᵗ) / (1 - β₁ᵗ) · m / (√v + epsilon), t = 1 at the first update. Kingma and Ba 2015,
    arXiv:1412.6980, the form at the end of its section 2, as in Keras and Caffe. With `epsilon_mode: bias_corrected`
    it is PyTorch's: w ← w - lr · m / (1 - β₁ᵗ) / (√(v / (1 - β₂ᵗ)) + epsilon). The weight decay is coupled, as in
    PyTorch's Adam.
    """

    type: Literal["Adam"] = "Adam"
    samples: ClassVar = (
        {},
        {"learning_rate": 0.01, "beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3, "weight_decay": 0.01},
        {"learning_rate": 0.1, "amsgrad": True, "beta_2": 0.5},
        {"learning_rate": 0.1, "amsgrad": True, "beta_2": 0.5, "epsilon": 1e-3, "epsilon_mode": "bias_corrected"},
        {"beta_1": 0.0},
        {"beta_1": {"type": "Warmup", "steps": 4, "then": 0.9}},
    )


@SOLVERS.register
class AdamW(AdamBase, DecoupledSolver):
    """Adam with decoupled weight decay, which is not part of the gradient, so that Adam does not scale it.

    w ← w - lr · weight_decay · w, then Adam's step. Loshchilov and Hutter 2019, arXiv:1711.05101; Keras's AdamW, and
    with `epsilon_mode: bias_corrected` PyTorch's.
    """

    type: Literal["AdamW"] = "AdamW"
    weight_decay: float = Field(default=0.004, ge=0)
    """Decoupled weight decay: each step first subtracts lr · weight_decay · w from the weights."""
    samples: ClassVar = (
        {},
        {"learning_rate": 0.05, "weight_decay": 0.1, "amsgrad": True},
        {"learning_rate": 0.05, "weight_decay": 0.1, "epsilon": 1e-2, "epsilon_mode": "bias_corrected"},
        {"beta_1": {"type": "OneCycle", "initial": 0.95, "peak": 0.85, "end": 0.95}, "learning_rate": 0.05},
    )

    def transforms(self) -> Sequence[UpdateTransform]:
        return [self.rule(), Descend()]
