"""The two links that every solver has: the decay of weights and the learning rate."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.value import Value
from netspec.solvers.transform import Param, Slots, Step, Transform, Updates, for_each


@dataclass(frozen=True)
class AddDecayedWeights(Transform):
    """u ← u + decay · w, times the parameter's `weight_decay_multiplier`.

    Before the rule the decay is a part of the gradient (coupled: an L2 penalty); between the rule and the learning
    rate the rule does not see it (decoupled: Loshchilov and Hutter 2019, arXiv:1711.05101).
    """

    decay: float

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        def rule(param: Param, update: Value, own: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            decay = self.decay * param.weight_decay_multiplier
            return (update + decay * param.value if decay else update), own

        return for_each(updates, slots, step, rule)


@dataclass(frozen=True)
class Descend(Transform):
    """u ← -lr · u, times the parameter's `learning_rate_multiplier`: from a gradient to a step downhill"""

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        def rule(param: Param, update: Value, own: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            return -step.rate(param) * update, own

        return for_each(updates, slots, step, rule)
