"""The two links that every solver has: the decay of weights and the learning rate."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.value import Value
from netspec.solvers.transform import Param, Slots, Step, Transform, Updates, for_each


@dataclass(frozen=True)
class AddDecayedWeights(Transform):
    """u ← u + decay · w, with the parameter's own decay and multiplier.

    Before the rule the decay is a part of the gradient (coupled: an L2 penalty); between the rule and the learning
    rate the rule does not see it (decoupled: Loshchilov and Hutter 2019, arXiv:1711.05101).
    """

    decay: float

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        def rule(param: Param, update: Value, own: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            decay = param.decay(self.decay)
            return (update + decay * param.value if decay else update), own

        return for_each(updates, slots, step, rule)


@dataclass(frozen=True)
class Descend(Transform):
    """u ← -lr · u, with the parameter's own rate and multiplier: from a gradient to a step downhill"""

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        def rule(param: Param, update: Value, own: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            return -step.rate(param) * update, own

        return for_each(updates, slots, step, rule)
