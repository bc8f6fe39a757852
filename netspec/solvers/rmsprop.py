"""RMSprop: steps scaled by a moving average of squared gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.rules import average, root
from netspec.solvers.schedules.constant import Constant, Schedule
from netspec.solvers.sgd import Momentum, MomentumSolver, descend_with
from netspec.solvers.transform import DeclaredSlots, Param, ParamSlots, ParamUpdate, Step, UpdateTransform


@dataclass(frozen=True)
class ScaleByRMS(UpdateTransform):
    """u ← u / √(v + epsilon), with a moving average v of u²; `centered`: v - m² in place of v, with that of u as m

    If epsilon is not `inside` the root: u / (√v + epsilon).
    """

    rho: float
    epsilon: float
    centered: bool = False
    inside: bool = True

    def init(self, param: Param) -> DeclaredSlots:
        return {"second_moment": 0.0, "first_moment": 0.0} if self.centered else {"second_moment": 0.0}

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        second = average(slots["second_moment"], update * update, self.rho)
        following = {"second_moment": second}
        if self.centered:
            first = average(slots["first_moment"], update, self.rho)
            following["first_moment"] = first
            second = second - first * first
        return update / root(second, self.epsilon, inside=self.inside), following


@SOLVERS.register
class RMSprop(MomentumSolver):
    """Steps scaled, for each element, by a moving average of the squared gradient.

    g ← ∂loss/∂w + weight_decay · w; v ← rho · v + (1 - rho) · g²; s = lr · g / √(v + epsilon), with `centered`
    v - m² in place of v, where m ← rho · m + (1 - rho) · g; w ← w - s, or with a momentum
    velocity ← momentum · velocity - s; w ← w + velocity. Tieleman and Hinton 2012, lecture 6.5 of "Neural Networks for
    Machine Learning"; centered: Graves 2013, arXiv:1308.0850. As in Keras; PyTorch and Caffe add epsilon to the root
    (`epsilon_in_root: false`), and PyTorch's momentum does not contain the rate (`rate_in_velocity: false`):
    m ← momentum · m + g / (√v + epsilon); w ← w - lr · m.
    """

    type: Literal["RMSprop"] = "RMSprop"
    foreign_fields: ClassVar[dict[str, str]] = {
        "rms_decay": "`rms_decay` is Caffe's name: use `rho`",
        "alpha": "`alpha` is PyTorch's name: use `rho`",
    }
    usual_learning_rates: ClassVar[tuple[float, float]] = (1e-5, 0.01)
    learning_rate: Schedule = Constant(initial=0.001)
    """Learning rate: a number, or a schedule such as `{type: CosineDecay, initial: 0.001}`."""
    rho: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the moving averages."""
    epsilon: float = Field(default=1e-7, gt=0)
    """Added to the average square, under the root."""
    epsilon_in_root: bool = True
    """Whether epsilon is added under the root, as in Keras. false: to the root, as in PyTorch and Caffe."""
    centered: bool = False
    """Whether to scale by an estimate of the variance: the average square minus the square of the average."""
    samples: ClassVar = (
        {},
        {"learning_rate": 0.02, "rho": 0.7, "momentum": 0.9, "epsilon": 1e-3, "weight_decay": 0.01},
        {"learning_rate": 0.01, "centered": True, "epsilon": 0.01},
        {
            "learning_rate": 0.02,
            "epsilon": 1e-3,
            "epsilon_in_root": False,
            "weight_decay_norm": "L1",
            "weight_decay": 0.02,
        },
        {"learning_rate": 0.02, "momentum": 0.9, "rate_in_velocity": False, "epsilon": 1e-3, "epsilon_in_root": False},
        {"learning_rate": 0.02, "momentum": {"type": "CyclicLR", "initial": 0.9, "peak": 0.8, "step_size_up": 3}},
    )

    def transforms(self) -> Sequence[UpdateTransform]:
        rule = ScaleByRMS(self.rho, self.epsilon, self.centered, self.epsilon_in_root)
        momentum = Momentum(self.momentum, of_gradients=not self.rate_in_velocity)
        return [*self.coupled(), rule, *descend_with(momentum)]
