"""Stochastic gradient descent, plain, with momentum, or with Nesterov's momentum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.elementwise import Equal, Where, cast, scalar
from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.schema.specs.spec import problem
from netspec.solvers.rules import DecayingSolver
from netspec.solvers.scaling import Descend
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.solvers.schedules.constant import Coefficient
from netspec.solvers.transform import DeclaredSlots, Param, Slots, Step, Updates, UpdateTransform, for_each


@dataclass(frozen=True)
class Momentum(UpdateTransform):
    """m ← momentum · m + (1 - dampening) · u; u ← m, or with `nesterov` momentum · m + u

    The first update is not dampened. The slot of m is `velocity` if the updates are steps, as they are after `Descend`,
    and `momentum` if they are gradients. The names differ because a checkpoint of one rule is invalid for the other.
    """

    momentum: float | ScheduleSpec
    nesterov: bool = False
    dampening: float = 0.0
    of_gradients: bool = False

    @property
    def slot(self) -> str:
        """The name of the slot."""
        return "momentum" if self.of_gradients else "velocity"

    def init(self, param: Param) -> DeclaredSlots:
        return {self.slot: 0.0}

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        one = scalar(1.0, step.count.dtype)
        share = Where()(Equal()(step.count, one), one, scalar(1 - self.dampening, step.count.dtype))

        def rule(_: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            added = cast(share, update.dtype) * update if self.dampening else update
            momentum = step.now(self.momentum, update.dtype)
            velocity = momentum * slots[self.slot] + added
            return (momentum * velocity + update if self.nesterov else velocity), {self.slot: velocity}

        return for_each(updates, slots, step, rule)


def descend_with(momentum: Momentum) -> list[UpdateTransform]:
    """Return `Descend` and the momentum in the order that the momentum requires; only `Descend` if it is 0."""
    if not momentum.momentum:
        return [Descend()]
    return [momentum, Descend()] if momentum.of_gradients else [Descend(), momentum]


class MomentumSolver(DecayingSolver):
    """Base of solvers with an optional momentum, of the steps or of the gradients."""

    momentum: Coefficient = 0.0
    """Momentum, the share of the last step that is added to this one: a number, or a schedule such as `{type: CyclicLR,
    initial: 0.9, peak: 0.8}`."""
    rate_in_velocity: bool = True
    """Whether the velocity contains the learning rate, as in Keras and Caffe. With false, as in PyTorch, the velocity
    sums gradients, and the sum is multiplied by the current rate. If the rate is constant, the rules are equal."""


def refuse_nesterov_alone(momentum: float | ScheduleSpec, *, nesterov: bool) -> None:
    """Raise a problem if `nesterov` is set without momentum."""
    if nesterov and not momentum:
        raise problem(
            "`nesterov` has no effect without momentum",
            field="nesterov",
            expected="`momentum` above 0, or `nesterov: false`",
            got="momentum 0",
            hint="a common value is 0.9: `momentum: 0.9`",
        )


@SOLVERS.register
class SGD(MomentumSolver):
    """Stochastic gradient descent, with momentum.

    g ← ∂loss/∂w + weight_decay · w; velocity ← momentum · velocity - lr · (1 - dampening) · g; w ← w + velocity, or
    with `nesterov` w ← w + momentum · velocity - lr · g, as in Keras and Caffe. With `rate_in_velocity: false`, as in
    PyTorch: m ← momentum · m + (1 - dampening) · g; w ← w - lr · m, or with `nesterov` w ← w - lr · (momentum · m + g).
    The first update is not dampened. Sutskever et al. 2013, "On the importance of initialization and momentum in deep
    learning".
    """

    type: Literal["SGD"] = "SGD"
    nesterov: bool = False
    """Whether to use Nesterov momentum."""
    dampening: float = Field(default=0.0, ge=0, lt=1)
    """Dampening of the momentum, as in PyTorch: the share of each gradient, except the first, that is not added."""
    samples: ClassVar = (
        {},
        {"learning_rate": 0.1, "weight_decay": 0.01},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
        {"momentum": 0.5, "weight_decay": 0.01, "weight_decay_norm": "L1"},
        {"momentum": 0.9, "dampening": 0.5},
        {"momentum": 0.9, "dampening": 0.25, "rate_in_velocity": False, "weight_decay": 0.01},
        {"momentum": 0.9, "nesterov": True, "rate_in_velocity": False},
        {"momentum": {"type": "OneCycle", "initial": 0.95, "peak": 0.85, "end": 0.9}},
        {
            "momentum": {"type": "CyclicLR", "initial": 0.9, "peak": 0.8, "step_size_up": 3},
            "nesterov": True,
            "rate_in_velocity": False,
        },
    )

    @model_validator(mode="after")
    def _has_momentum(self) -> Self:
        refuse_nesterov_alone(self.momentum, nesterov=self.nesterov)
        if self.dampening and (self.nesterov or not self.momentum):
            raise problem(
                "`dampening` requires momentum without `nesterov`",
                field="dampening",
                expected="`momentum` above 0 and `nesterov: false`, or `dampening: 0`",
                got="`nesterov: true`" if self.nesterov else "momentum 0",
            )
        return self

    def transforms(self) -> Sequence[UpdateTransform]:
        momentum = Momentum(self.momentum, self.nesterov, self.dampening, not self.rate_in_velocity)
        return [*self.coupled(), *descend_with(momentum)]
