"""Lion: steps of equal size, with the sign of a moving average of the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.unary import Sign
from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.rules import DecoupledSolver, average
from netspec.solvers.scaling import Descend
from netspec.solvers.schedules.constant import Constant, Schedule
from netspec.solvers.transform import DeclaredSlots, Param, ParamSlots, ParamUpdate, Step, UpdateTransform


@dataclass(frozen=True)
class SignOfMomentum(UpdateTransform):
    """u ← sign(β₁ · m + (1 - β₁) · u), with a moving average m of u whose decay is β₂"""

    beta_1: float
    beta_2: float

    def init(self, param: Param) -> DeclaredSlots:
        return {"first_moment": 0.0}

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        first = slots["first_moment"]
        mixed = self.beta_1 * first + (1 - self.beta_1) * update
        return Sign()(mixed), {"first_moment": average(first, update, self.beta_2)}


@SOLVERS.register
class Lion(DecoupledSolver):
    """Steps of size lr for every weight, against the sign of recent gradients.

    w ← w - lr · weight_decay · w; w ← w - lr · sign(β₁ · m + (1 - β₁) · g); m ← β₂ · m + (1 - β₂) · g. Chen et al.
    2023, "Symbolic Discovery of Optimization Algorithms", arXiv:2302.06675; Keras's Lion. Its steps are larger than
    Adam's: a rate 3 to 10 times lower, and a decay as much higher, is usual.
    """

    type: Literal["Lion"] = "Lion"
    foreign_fields: ClassVar[dict[str, str]] = {"momentum": "use `beta_2`, and `beta_1` for the step"}
    usual_learning_rates: ClassVar[tuple[float, float]] = (1e-6, 0.001)
    learning_rate: Schedule = Constant(initial=0.001)
    """Learning rate, the size of a step: a number, or a schedule such as `{type: CosineDecay, initial: 0.0001}`."""
    beta_1: float = Field(default=0.9, ge=0, le=1)
    """Share of the moving average in the sum whose sign is the step."""
    beta_2: float = Field(default=0.99, ge=0, lt=1)
    """Decay of the moving average."""
    samples: ClassVar = ({}, {"learning_rate": 0.01, "beta_1": 0.5, "beta_2": 0.7, "weight_decay": 0.1})

    def transforms(self) -> Sequence[UpdateTransform]:
        return [SignOfMomentum(self.beta_1, self.beta_2), Descend()]
