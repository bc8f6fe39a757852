"""LARS and Lamb: the step of each parameter is proportional to the norm of its weights, for large batches."""

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
from netspec.solvers.transform import (
    DeclaredSlots,
    Param,
    ParamSlots,
    ParamUpdate,
    Slots,
    Step,
    Updates,
    UpdateTransform,
    for_each,
)


def ratio(numerator: Value, denominator: Value) -> Value:
    """Return numerator / denominator for scalars ≥ 0, or 1 if either is 0."""
    zero, one = scalar(0.0, numerator.dtype), scalar(1.0, numerator.dtype)
    divisor = Where()(Greater()(denominator, zero), denominator, one)
    return Where()(Greater()(numerator * denominator, zero), numerator / divisor, one)


def norm(x: Value) -> Value:
    """Return the L2 norm, a scalar."""
    return Sqrt()(sum_of_squares(x))


@dataclass(frozen=True)
class ScaleByTrust(UpdateTransform):
    """u ← (u + decay · w) · trust · ‖w‖ / (‖u‖ + decay · ‖w‖); for excluded parameters u + decay · w

    If ‖w‖ or the denominator is 0, the factor is 1. Lamb adds the decay to u beforehand, so its decay here is 0.
    """

    trust: float = 1.0
    decay: float = 0.0
    excluded: Names = ()

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        decay = param.decay(self.decay)
        decayed = update + decay * param.value if decay else update
        if matches(self.excluded, param.name):
            return decayed, slots
        weight_norm = norm(param.value)
        update_norm = norm(update) + decay * weight_norm if decay else norm(update)
        factor = ratio(self.trust * weight_norm if self.trust != 1 else weight_norm, update_norm)
        return factor * decayed, slots


@dataclass(frozen=True)
class ScaleByMoments(UpdateTransform):
    """u ← (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + epsilon), with moving averages m of u and v of u²"""

    beta_1: float | ScheduleSpec
    beta_2: float
    epsilon: float

    def init(self, param: Param) -> DeclaredSlots:
        return {"first_moment": 0.0, "second_moment": 0.0}

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        correction_1, correction_2 = (
            1.0 / debias(step.now(beta, step.count.dtype), step.count) for beta in (self.beta_1, self.beta_2)
        )

        def rule(_: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            dtype = update.dtype
            first = average(slots["first_moment"], update, step.now(self.beta_1, dtype))
            second = average(slots["second_moment"], update * update, self.beta_2)
            scaled = first * cast(correction_1, dtype) / (Sqrt()(second * cast(correction_2, dtype)) + self.epsilon)
            return scaled, {"first_moment": first, "second_moment": second}

        return for_each(updates, slots, step, rule)


class LayerwiseSolver(DecayingSolver):
    """Base of solvers that scale a step by the ratio of the norms of weights and update."""

    exclude: NamesOrNone = ()
    """Parameters whose steps are not scaled: names, or patterns such as `*/bias`."""

    def patterns(self) -> Mapping[str, Names]:
        return {"exclude": self.exclude}


@SOLVERS.register
class LARS(LayerwiseSolver):
    """SGD with momentum, whose learning rate is scaled for each parameter by ‖w‖ / ‖g‖.

    g ← ∂loss/∂w; s = trust_coefficient · ‖w‖ / (‖g‖ + weight_decay · ‖w‖), or 1 if ‖w‖ or the divisor is 0;
    velocity ← momentum · velocity - lr · s · (g + weight_decay · w); w ← w + velocity, or with `nesterov`
    w ← w + momentum · velocity - lr · s · (g + weight_decay · w). You, Gitman and Ginsburg 2017, "Large Batch Training
    of Convolutional Networks", arXiv:1708.03888; neither Keras nor PyTorch has it. Biases and the parameters of
    normalizations are usually excluded: `exclude: ["*/bias", "*/gamma", "*/beta"]`.
    """

    type: Literal["LARS"] = "LARS"
    foreign_fields: ClassVar[dict[str, str]] = {"eeta": "use `trust_coefficient`"}
    usual_learning_rates: ClassVar[tuple[float, float]] = (1e-3, 10.0)
    learning_rate: Schedule = Constant(initial=1.0)
    """Learning rate, in addition to the trust ratio: a number, or a schedule such as `{type: PolynomialDecay, …}`."""
    momentum: Coefficient = 0.9
    """Momentum, the share of the last step that is added to this one: a number, or a schedule."""
    nesterov: bool = False
    """Whether to use Nesterov momentum."""
    trust_coefficient: float = Field(default=0.001, gt=0)
    """Size of a step relative to the norm of the weights."""
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
    def _decay_is_l2(self) -> Self:
        if self.weight_decay_norm == "L1":
            raise problem(
                "LARS supports only L2 weight decay",
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
    """Adam's steps, scaled for each parameter to lr times the norm of the weights.

    m ← β₁ · m + (1 - β₁) · g; v ← β₂ · v + (1 - β₂) · g²; u = m / (1 - β₁ᵗ) / (√(v / (1 - β₂ᵗ)) + epsilon) +
    weight_decay · w; w ← w - lr · ‖w‖ / ‖u‖ · u, where ‖w‖ / ‖u‖ is 1 if either norm is 0. You et al. 2020, "Large
    Batch Optimization for Deep Learning: Training BERT in 76 minutes", arXiv:1904.00962. Keras's Lamb, except for the
    decay: in the paper it is part of u, in Keras it is decoupled (`decoupled_weight_decay: true`).
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
