"""Rprop: step sizes that depend only on the signs of the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.elementwise import Equal, Greater, Maximum, Minimum, Where, cast, scalar
from netspec.graph.ops.unary import Sign
from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.schema.specs.spec import problem
from netspec.solvers.base import SolverSpec
from netspec.solvers.scaling import AddDecayedWeights
from netspec.solvers.schedules.constant import Constant
from netspec.solvers.transform import DeclaredSlots, Param, Slots, Step, Updates, UpdateTransform, for_each


@dataclass(frozen=True)
class StepBySign(UpdateTransform):
    """u ← -s · sign(u); s grows while the signs of two successive u agree, and shrinks when they differ

    An element whose sign changed is not updated, and its u counts as 0 in the next comparison.
    """

    shrink: float
    grow: float
    least: float
    most: float

    def init(self, param: Param) -> DeclaredSlots:
        return {"previous_gradient": 0.0, "step_size": 0.0}

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        is_first = Equal()(step.count, scalar(1.0, step.count.dtype))

        def rule(param: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            dtype = update.dtype
            zero, one = scalar(0.0, dtype), scalar(1.0, dtype)
            agreement = update * slots["previous_gradient"]
            is_reversed = Greater()(zero, agreement)
            factor = Where()(is_reversed, scalar(self.shrink, dtype), one)
            factor = Where()(Greater()(agreement, zero), scalar(self.grow, dtype), factor)
            size = Where()(is_first, cast(step.rate(param), dtype), slots["step_size"]) * factor
            size = Minimum()(Maximum()(size, scalar(self.least, dtype)), scalar(self.most, dtype))
            gradient = Where()(is_reversed, zero, update)
            return -size * Sign()(gradient), {"previous_gradient": gradient, "step_size": size}

        return for_each(updates, slots, step, rule)


@SOLVERS.register
class Rprop(SolverSpec):
    """Steps that depend only on the signs of the gradients: for training with the whole dataset in each step.

    g ← ∂loss/∂w + weight_decay · w; for each element s ← s · eta_plus if g · g' > 0, s · eta_minus if g · g' < 0, where
    g' is g of the step before; then s is clipped to step_size_min … step_size_max. If g · g' < 0, g ← 0.
    w ← w - s · sign(g). s starts at the learning rate, which has no effect after that. Riedmiller and Braun 1993, "A
    direct adaptive method for faster backpropagation learning: the RPROP algorithm"; PyTorch's Rprop (not in Keras).
    """

    type: Literal["Rprop"] = "Rprop"
    foreign_fields: ClassVar[dict[str, str]] = {
        "etas": "use `eta_minus` and `eta_plus`",
        "step_sizes": "use `step_size_min` and `step_size_max`",
    }
    eta_minus: float = Field(default=0.5, gt=0, lt=1)
    """Factor on the step size of an element whose gradient changes its sign."""
    eta_plus: float = Field(default=1.2, gt=1)
    """Factor on the step size of an element whose gradient keeps its sign."""
    step_size_min: float = Field(default=1e-6, gt=0)
    """Minimum step size."""
    step_size_max: float = Field(default=50.0, gt=0)
    """Maximum step size."""
    samples: ClassVar = (
        {},
        {"learning_rate": 0.1, "eta_minus": 0.4, "eta_plus": 1.5, "step_size_max": 0.2, "weight_decay": 0.01},
        {"learning_rate": 0.5, "step_size_min": 0.2},
    )

    @model_validator(mode="after")
    def _sizes_are_ordered(self) -> Self:
        if self.step_size_min > self.step_size_max:
            raise problem(
                "`step_size_min` is larger than `step_size_max`",
                field="step_size_min",
                expected=f"at most {self.step_size_max:g}",
                got=f"{self.step_size_min:g}",
            )
        return self

    @model_validator(mode="after")
    def _rates_are_constant(self) -> Self:
        rates = {"learning_rate": self.learning_rate}
        rates |= {
            f"groups.{index}.learning_rate": group.learning_rate
            for index, group in enumerate(self.groups)
            if group.learning_rate is not None
        }
        for field, rate in rates.items():
            if not isinstance(rate, Constant):
                raise problem(
                    "Rprop uses the learning rate only as the initial step size, so a schedule has no effect",
                    field=field,
                    expected="a number",
                    got=rate.type,
                )
        return self

    def transforms(self) -> Sequence[UpdateTransform]:
        rule = StepBySign(self.eta_minus, self.eta_plus, self.step_size_min, self.step_size_max)
        return [AddDecayedWeights(self.weight_decay), rule]
