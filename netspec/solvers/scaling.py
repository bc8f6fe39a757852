"""Transforms of many solvers: coupled weight decay, the learning rate, a factor."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.ops.unary import Sign
from netspec.graph.value import Value
from netspec.solvers.transform import Param, ParamSlots, ParamUpdate, Step, UpdateTransform


@dataclass(frozen=True)
class AddDecayedWeights(UpdateTransform):
    """u ← u + decay · w, or with `signs` u + decay · sign(w), with the decay and multiplier of the parameter

    Before the rule of a solver this is coupled weight decay: an L2 penalty, or with `signs` an L1 penalty.
    """

    decay: float
    signs: bool = False

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        decay = param.decay(self.decay)
        if not decay:
            return update, slots
        return update + decay * (Sign()(param.value) if self.signs else param.value), slots


@dataclass(frozen=True)
class Descend(UpdateTransform):
    """u ← -lr · u, with the rate and multiplier of the parameter: converts a gradient to a step"""

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        return -step.rate(param) * update, slots


@dataclass(frozen=True)
class Scale(UpdateTransform):
    """u ← factor · u"""

    factor: float

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        return (update if self.factor == 1 else self.factor * update), slots
