"""ASGD: gradient descent with a decaying rate and an average of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Maximum, Pow, cast, scalar
from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.averaging import AVERAGE
from netspec.solvers.base import SolverSpec
from netspec.solvers.scaling import AddDecayedWeights
from netspec.solvers.transform import DeclaredSlots, Param, Slots, SlotSpec, Step, Updates, UpdateTransform, for_each


@dataclass(frozen=True)
class DescendAveraged(UpdateTransform):
    """u ← -η · (u + lambd · w), with η = lr / (1 + lambd · lr · (t - 1))^alpha

    average ← average + μ · (w + u - average), with μ = 1 / max(1, t - 1 - t0): the weights up to step t0 + 2.
    """

    lambd: float
    alpha: float
    t0: float

    def init(self, param: Param) -> DeclaredSlots:
        return {AVERAGE: SlotSpec(None)}

    def evaluated(self, param: Param) -> str | None:
        return AVERAGE

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        previous_steps = step.count - 1.0
        share = 1.0 / Maximum()(previous_steps - self.t0, scalar(1.0, step.count.dtype))

        def rule(param: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            dtype = update.dtype
            rate = step.rate(param)
            rate = rate * Pow(-self.alpha)(1.0 + self.lambd * rate * cast(previous_steps, dtype))
            change = -rate * (update + self.lambd * param.value)
            weight = param.value + change
            return change, {AVERAGE: slots[AVERAGE] + (weight - slots[AVERAGE]) * cast(share, dtype)}

        return for_each(updates, slots, step, rule)


@SOLVERS.register
class ASGD(SolverSpec):
    """Averaged stochastic gradient descent: the rate decays, and weights are averaged from step `t0` on.

    g ← ∂loss/∂w + weight_decay · w; η = lr / (1 + lambd · lr · (t - 1))^alpha; w ← w - η · (g + lambd · w);
    average ← average + (w - average) / max(1, t - 1 - t0), t = 1 at the first update. Evaluation and saved weights use
    the average, which equals the weights until t0. Polyak and Juditsky 1992, "Acceleration of stochastic
    approximation by averaging"; PyTorch's ASGD, whose η lags one step behind a scheduled lr (not in Keras).
    """

    type: Literal["ASGD"] = "ASGD"
    averages: ClassVar[bool] = True
    lambd: float = Field(default=1e-4, ge=0)
    """Decay of the weights in each step, and of the learning rate."""
    alpha: float = Field(default=0.75, ge=0)
    """Exponent of the decay of the learning rate."""
    t0: float = Field(default=1e6, ge=0)
    """The step from which on weights are averaged."""
    samples: ClassVar = (
        {},
        {"learning_rate": 0.1, "lambd": 0.05, "alpha": 0.5, "t0": 3, "weight_decay": 0.01},
        {"learning_rate": 0.1, "lambd": 0.5, "t0": 0},
    )

    def transforms(self) -> Sequence[UpdateTransform]:
        return [AddDecayedWeights(self.weight_decay), DescendAveraged(self.lambd, self.alpha, self.t0)]
