"""Transforms of many solvers: coupled weight decay, the learning rate, a factor."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.ops.unary import Sign
from netspec.graph.value import Value
from netspec.solvers.transform import Param, Slots, Step, Updates, UpdateTransform, for_each


@dataclass(frozen=True)
class AddDecayedWeights(UpdateTransform):
    """u ← u + decay · w, or with `signs` u + decay · sign(w), with the decay and multiplier of the parameter

    Before the rule of a solver this is coupled weight decay: an L2 penalty, or with `signs` an L1 penalty.
    """

    decay: float
    signs: bool = False

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        def rule(param: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            decay = param.decay(self.decay)
            if not decay:
                return update, slots
            return update + decay * (Sign()(param.value) if self.signs else param.value), slots

        return for_each(updates, slots, step, rule)


@dataclass(frozen=True)
class Descend(UpdateTransform):
    """u ← -lr · u, with the rate and multiplier of the parameter: converts a gradient to a step"""

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        def rule(param: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            return -step.rate(param) * update, slots

        return for_each(updates, slots, step, rule)


@dataclass(frozen=True)
class Scale(UpdateTransform):
    """u ← factor · u"""

    factor: float

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        def rule(_: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            return (update if self.factor == 1 else self.factor * update), slots

        return for_each(updates, slots, step, rule)
