"""Ftrl: follow the regularized leader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.elementwise import Maximum, Minimum, scalar
from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.schema.specs.spec import problem
from netspec.solvers.rules import DecayingSolver, power
from netspec.solvers.schedules.constant import Constant, Schedule
from netspec.solvers.transform import DeclaredSlots, Param, ParamSlots, ParamUpdate, Step, UpdateTransform


@dataclass(frozen=True)
class FollowRegularizedLeader(UpdateTransform):
    """Convert a gradient to the step to the closed-form solution: see `Ftrl`."""

    exponent: float
    initial: float
    l1: float
    l2: float
    shrinkage: float
    beta: float

    def init(self, param: Param) -> DeclaredSlots:
        return {"accumulator": self.initial, "linear": 0.0}

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        weight, rate, dtype = param.value, step.rate(param), update.dtype
        accumulator = slots["accumulator"] + update * update
        before, after = (power(squares, self.exponent) / rate for squares in (slots["accumulator"], accumulator))
        gradient = update + 2 * self.shrinkage * weight if self.shrinkage else update
        linear = slots["linear"] + gradient - (after - before) * weight
        bound = scalar(self.l1, dtype)
        numerator = Minimum()(Maximum()(linear, -bound), bound) - linear if self.l1 else -linear
        quadratic = after + 2 * self.l2 + self.beta / rate if self.beta else after + 2 * self.l2
        return numerator / quadratic - weight, {"accumulator": accumulator, "linear": linear}


@SOLVERS.register
class Ftrl(DecayingSolver):
    """Follow the regularized leader: each step sets the weights that are optimal for all gradients so far.

    g ← ∂loss/∂w + weight_decay · w; a' = a + g², p = -learning_rate_power;
    z ← z + g + 2 · l2_shrinkage · w - (a'^p - a^p) / lr · w; a ← a';
    w ← (clip(z, -l1, l1) - z) / (a^p / lr + 2 · (l2 + beta / (2 · lr))), with the fields' strengths for l1, l2 and
    l2_shrinkage. A weight with |z| ≤ l1 is exactly 0. McMahan et al. 2013, "Ad Click Prediction: a View
    from the Trenches"; Keras's Ftrl.
    """

    type: Literal["Ftrl"] = "Ftrl"
    foreign_fields: ClassVar[dict[str, str]] = {
        "l1": "use `l1_regularization_strength`",
        "l2": "use `l2_regularization_strength`",
    }
    learning_rate: Schedule = Constant(initial=0.001)
    """Learning rate: a number, or a schedule whose values are above 0, because the rule divides by it."""
    learning_rate_power: float = Field(default=-0.5, lt=0)
    """Power of the sum of squared gradients that scales the learning rate of an element."""
    initial_accumulator_value: float = Field(default=0.1, ge=0)
    """Initial value of the sum of squared gradients."""
    l1_regularization_strength: float = Field(default=0.0, ge=0)
    """L1 penalty, which makes weights exactly 0."""
    l2_regularization_strength: float = Field(default=0.0, ge=0)
    """L2 penalty on the solution."""
    l2_shrinkage_regularization_strength: float = Field(default=0.0, ge=0)
    """L2 penalty that is added to the gradient, but not to the sum of squared gradients."""
    beta: float = Field(default=0.0, ge=0)
    """Added to the root of the sum of squares: β in the paper."""
    samples: ClassVar = (
        {},
        {
            "learning_rate": 0.1,
            "learning_rate_power": -0.7,
            "initial_accumulator_value": 0.2,
            "l1_regularization_strength": 0.3,
            "l2_regularization_strength": 0.1,
            "l2_shrinkage_regularization_strength": 0.05,
            "beta": 0.5,
            "weight_decay": 0.01,
        },
    )

    @model_validator(mode="after")
    def _rate_above_zero(self) -> Self:
        group_rates = [group.learning_rate for group in self.groups if group.learning_rate is not None]
        if any(rate.value(0, 1_000_000) == 0 for rate in (self.learning_rate, *group_rates)):
            raise problem(
                "the learning rate of Ftrl must not be 0, because Ftrl divides by it",
                field="learning_rate",
                expected="a schedule that starts above 0",
                got="0 at the first step",
                hint="set `initial` of a `Warmup`",
            )
        return self

    def transforms(self) -> Sequence[UpdateTransform]:
        rule = FollowRegularizedLeader(
            -self.learning_rate_power,
            self.initial_accumulator_value,
            self.l1_regularization_strength,
            self.l2_regularization_strength,
            self.l2_shrinkage_regularization_strength,
            self.beta,
        )
        return [*self.coupled(), rule]
