"""LARS and Lamb: every layer takes steps in proportion to the length of its weights, for very large batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.elementwise import Greater, Where, cast, scalar
from netspec.graph.ops.unary import Sqrt
from netspec.graph.value import Value
from netspec.schema.specs.field_types import Names, NamesOrNone
from netspec.schema.specs.kinds import SOLVERS
from netspec.schema.specs.patterns import matches
from netspec.schema.specs.spec import problem
from netspec.solvers.adam import MomentsSpec
from netspec.solvers.clipping import sum_of_squares
from netspec.solvers.rules import DecayingSolver, average, debias
from netspec.solvers.scaling import Descend
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.solvers.schedules.constant import Coefficient, Constant, Schedule
from netspec.solvers.sgd import Momentum, refuse_nesterov_alone
from netspec.solvers.transform import Declared, Param, Slots, Step, Updates, UpdateTransform, for_each


def ratio(one: Value, other: Value) -> Value:
    """one / other, or 1 where either is 0: scalars that are not negative."""
    zero, whole = scalar(0.0, one.dtype), scalar(1.0, one.dtype)
    known = Where()(Greater()(other, zero), other, whole)
    return Where()(Greater()(one * other, zero), one / known, whole)


def norm(x: Value) -> Value:
    """The L2 norm, a scalar"""
    return Sqrt()(sum_of_squares(x))


@dataclass(frozen=True)
class ScaleByTrust(UpdateTransform):
    """u ← u · trust · ‖w‖ / (‖u‖ + decay · ‖w‖), and then + the decay of w, scaled alike; excluded parameters: u

    Where w or the sum below it is 0, the factor is 1. For LARS the decay is counted in; for Lamb, which has it in u, it
    is 0.
    """

    trust: float = 1.0
    decay: float = 0.0
    excluded: Names = ()

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        def rule(param: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            decay = param.decay(self.decay)
            decayed = update + decay * param.value if decay else update
            if matches(self.excluded, param.name):
                return decayed, slots
            length = norm(param.value)
            other = norm(update) + decay * length if decay else norm(update)
            factor = ratio(self.trust * length, other) if self.trust != 1 else ratio(length, other)
            return factor * decayed, slots

        return for_each(updates, slots, step, rule)


@dataclass(frozen=True)
class ScaleByMoments(UpdateTransform):
    """u ← (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + epsilon), with moving averages m of u and v of u²"""

    beta_1: float | ScheduleSpec
    beta_2: float
    epsilon: float

    def init(self, param: Param) -> Declared:
        return {"first_moment": 0.0, "second_moment": 0.0}

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        one, two = (1.0 / debias(step.now(beta, step.count.dtype), step.count) for beta in (self.beta_1, self.beta_2))

        def rule(_: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            dtype = update.dtype
            first = average(slots["first_moment"], update, step.now(self.beta_1, dtype))
            second = average(slots["second_moment"], update * update, self.beta_2)
            scaled = first * cast(one, dtype) / (Sqrt()(second * cast(two, dtype)) + self.epsilon)
            return scaled, {"first_moment": first, "second_moment": second}

        return for_each(updates, slots, step, rule)


class LayerwiseSolver(DecayingSolver):
    """Base of solvers that compare the length of a step with that of the weights."""

    exclude: NamesOrNone = ()
    """parameters whose steps are not scaled so: names, or patterns such as `*/bias`"""

    def patterns(self) -> Mapping[str, Names]:
        return {"exclude": self.exclude}


@SOLVERS.register
class LARS(LayerwiseSolver):
    """Momentum whose rate is, in each parameter, a share of ‖w‖ / ‖g‖.

    g ← ∂loss/∂w; s = trust_coefficient · ‖w‖ / (‖g‖ + weight_decay · ‖w‖), 1 where that is 0 / 0;
    velocity ← momentum · velocity - lr · s · (g + weight_decay · w); w ← w + velocity, or with `nesterov`
    w ← w + momentum · velocity - lr · s · (g + weight_decay · w). You, Gitman and Ginsburg 2017, "Large Batch Training
    of Convolutional Networks", arXiv:1708.03888; neither Keras nor PyTorch has it. Biases and the scales of
    normalizations are usually excluded: `exclude: ["*/bias", "*/gamma", "*/beta"]`.
    """

    type: Literal["LARS"] = "LARS"
    foreign_fields: ClassVar[dict[str, str]] = {"eeta": "here it is `trust_coefficient`"}
    learning_rate: Schedule = Constant(initial=1.0)
    """factor of a step, in addition to the trust ratio: a number, or a schedule such as `{type: PolynomialDecay, …}`"""
    momentum: Coefficient = 0.9
    """share of the last step that goes into this one: a number, or a schedule"""
    nesterov: bool = False
    """Nesterov's momentum: step as if the gradient were taken where the velocity leads"""
    trust_coefficient: float = Field(default=0.001, gt=0)
    """how far a step may go, as a share of the length of the weights"""
    samples: ClassVar = (
        {},
        {"learning_rate": 2.0, "momentum": 0.5, "nesterov": True, "trust_coefficient": 0.02, "weight_decay": 0.01},
        {"momentum": 0.0, "exclude": "*/bias", "weight_decay": 0.01},
        {"momentum": {"type": "CyclicLR", "initial": 0.9, "peak": 0.8, "step_size_up": 3}},
    )

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Self:
        refuse_nesterov_alone(self.momentum, nesterov=self.nesterov)
        return self

    @model_validator(mode="after")
    def _decay_is_a_length(self) -> Self:
        if self.weight_decay_norm == "L1":
            raise problem(
                "LARS measures the decay by the length of the weights",
                field="weight_decay_norm",
                expected="`weight_decay_norm: L2`",
                got="L1",
            )
        return self

    def transforms(self) -> Sequence[UpdateTransform]:
        decay = 0.0 if self.decouples else self.weight_decay
        links: list[UpdateTransform] = [ScaleByTrust(self.trust_coefficient, decay, self.exclude), Descend()]
        return [*links, Momentum(self.momentum, self.nesterov)] if self.momentum else links


@SOLVERS.register
class Lamb(MomentsSpec, LayerwiseSolver):
    """Adam's steps, made in each parameter as long as lr times the weights.

    m ← β₁ · m + (1 - β₁) · g; v ← β₂ · v + (1 - β₂) · g²; u = m / (1 - β₁ᵗ) / (√(v / (1 - β₂ᵗ)) + epsilon) +
    weight_decay · w; w ← w - lr · ‖w‖ / ‖u‖ · u, the quotient being 1 where w or u is 0. You et al. 2020, "Large Batch
    Optimization for Deep Learning: Training BERT in 76 minutes", arXiv:1904.00962. Keras's Lamb, except for the decay:
    the paper's is a part of u, Keras's is what `decoupled_weight_decay: true` is here.
    """

    type: Literal["Lamb"] = "Lamb"
    samples: ClassVar = (
        {},
        {"learning_rate": 0.02, "beta_1": 0.7, "beta_2": 0.9, "weight_decay": 0.05, "exclude": "*/bias"},
        {"learning_rate": 0.02, "beta_1": {"type": "OneCycle", "initial": 0.95, "peak": 0.85, "end": 0.9}},
    )

    def transforms(self) -> Sequence[UpdateTransform]:
        moments = ScaleByMoments(self.beta_1, self.beta_2, self.epsilon)
        return [moments, *self.coupled(), ScaleByTrust(excluded=self.exclude), Descend()]
