"""Stochastic gradient descent, plain, with momentum, or with Nesterov's momentum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.value import Value
from netspec.schema.kinds import SOLVERS
from netspec.schema.spec import problem
from netspec.solvers.rules import DecayingSolver
from netspec.solvers.scaling import Descend
from netspec.solvers.transform import Declared, Param, Slots, Step, Transform, Updates, for_each


@dataclass(frozen=True)
class Momentum(Transform):
    """velocity ← momentum · velocity + u; u ← velocity, or with `nesterov` momentum · velocity + u

    Its operands are steps, not gradients: a change of the learning rate leaves the velocity as it is.
    """

    momentum: float
    nesterov: bool = False

    def init(self, param: Param) -> Declared:
        return {"velocity": 0.0}

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        def rule(_: Param, update: Value, own: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            velocity = self.momentum * own["velocity"] + update
            return (self.momentum * velocity + update if self.nesterov else velocity), {"velocity": velocity}

        return for_each(updates, slots, step, rule)


def refuse_nesterov_alone(momentum: float, *, nesterov: bool) -> None:
    """Raises a problem where Nesterov's momentum is asked for and there is none."""
    if nesterov and not momentum:
        raise problem(
            "Nesterov's momentum needs a momentum",
            field="nesterov",
            expected="`momentum` above 0, or `nesterov: false`",
            got="momentum 0",
            hint="0.9 is usual: `momentum: 0.9`",
        )


@SOLVERS.register
class SGD(DecayingSolver):
    """Stochastic gradient descent, with momentum.

    g ← ∂loss/∂w + weight_decay · w; velocity ← momentum · velocity - lr · g; w ← w + velocity, or with `nesterov`
    w ← w + momentum · velocity - lr · g. Keras's SGD and Caffe's; PyTorch's velocity holds gradients, without lr.
    Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning".
    """

    type: Literal["SGD"] = "SGD"
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """share of the last step that goes into this one"""
    nesterov: bool = False
    """Nesterov's momentum: step as if the gradient were taken where the velocity leads"""
    samples: ClassVar = (
        {},
        {"learning_rate": 0.1, "weight_decay": 0.01},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
        {"momentum": 0.5, "weight_decay": 0.01, "weight_decay_norm": "L1"},
    )

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Self:
        refuse_nesterov_alone(self.momentum, nesterov=self.nesterov)
        return self

    def transforms(self) -> Sequence[Transform]:
        links: list[Transform] = [*self.coupled(), Descend()]
        return [*links, Momentum(self.momentum, self.nesterov)] if self.momentum else links
