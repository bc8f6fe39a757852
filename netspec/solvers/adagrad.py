"""Adagrad, which sums squared gradients, and Adadelta, which scales steps by the size of earlier steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.unary import Sqrt
from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.rules import ScalingSolver, average, root
from netspec.solvers.schedules.constant import Constant, Schedule
from netspec.solvers.transform import DeclaredSlots, Param, ParamSlots, ParamUpdate, Step, UpdateTransform


@dataclass(frozen=True)
class ScaleByAdagrad(UpdateTransform):
    """u ← u / √(a + epsilon), or u / (√a + epsilon) if epsilon is not `inside`, with the sum a of all u² so far"""

    initial: float
    epsilon: float
    inside: bool = True

    def init(self, param: Param) -> DeclaredSlots:
        return {"accumulator": self.initial}

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        accumulator = slots["accumulator"] + update * update
        return update / root(accumulator, self.epsilon, inside=self.inside), {"accumulator": accumulator}


@dataclass(frozen=True)
class ScaleByAdadelta(UpdateTransform):
    """u ← u · √(d + epsilon) / √(a + epsilon), with moving averages a of u², and d of the squared results"""

    rho: float
    epsilon: float

    def init(self, param: Param) -> DeclaredSlots:
        return {"accumulator": 0.0, "delta_accumulator": 0.0}

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        gradients = average(slots["accumulator"], update * update, self.rho)
        delta = Sqrt()(slots["delta_accumulator"] + self.epsilon) * update / Sqrt()(gradients + self.epsilon)
        deltas = average(slots["delta_accumulator"], delta * delta, self.rho)
        return delta, {"accumulator": gradients, "delta_accumulator": deltas}


@SOLVERS.register
class Adagrad(ScalingSolver):
    """Steps scaled, for each element, by all gradients so far: rarely updated elements take larger steps.

    g ← ∂loss/∂w + weight_decay · w; a ← a + g²; w ← w - lr · g / √(a + epsilon). Duchi, Hazan and Singer 2011,
    "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization". As in Keras; in PyTorch and Caffe a
    starts at 0, and epsilon is added to the root: `epsilon_in_root: false`.
    """

    type: Literal["Adagrad"] = "Adagrad"
    learning_rate: Schedule = Constant(initial=0.001)
    """Learning rate: a number, or a schedule such as `{type: CosineDecay, initial: 0.001}`."""
    initial_accumulator_value: float = Field(default=0.1, ge=0)
    """Initial value of the sum of squared gradients."""
    epsilon: float = Field(default=1e-7, gt=0)
    """Added to the sum of squares, under the root."""
    epsilon_in_root: bool = True
    """Whether epsilon is added under the root, as in Keras. false: to the root, as in PyTorch and Caffe."""
    samples: ClassVar = (
        {},
        {"learning_rate": 0.05, "initial_accumulator_value": 0.0, "epsilon": 1e-3, "epsilon_in_root": False},
        {"learning_rate": 0.05, "initial_accumulator_value": 0.0, "epsilon": 1e-3, "weight_decay": 0.01},
    )

    def rule(self) -> UpdateTransform:
        return ScaleByAdagrad(self.initial_accumulator_value, self.epsilon, self.epsilon_in_root)


@SOLVERS.register
class Adadelta(ScalingSolver):
    """Steps in the unit of the weights: each is scaled by the size of earlier steps.

    g ← ∂loss/∂w + weight_decay · w; a ← rho · a + (1 - rho) · g²; Δ = √(d + epsilon) / √(a + epsilon) · g;
    d ← rho · d + (1 - rho) · Δ²; w ← w - lr · Δ. Zeiler 2012, arXiv:1212.5701, where lr is 1; as in Keras, Caffe and
    PyTorch (whose `learning_rate` is 1 by default, Keras's and this one 0.001).
    """

    type: Literal["Adadelta"] = "Adadelta"
    foreign_fields: ClassVar[dict[str, str]] = {"momentum": "use `rho`, as `momentum` is in Caffe"}
    usual_learning_rates: ClassVar[tuple[float, float]] = (1e-3, 10.0)
    learning_rate: Schedule = Constant(initial=0.001)
    """Learning rate: a number, or a schedule such as `{type: CosineDecay, initial: 1.0}`."""
    rho: float = Field(default=0.95, ge=0, lt=1)
    """Decay of the moving averages."""
    epsilon: float = Field(default=1e-7, gt=0)
    """Added to the average squares, under the roots."""
    samples: ClassVar = ({}, {"learning_rate": 1.0, "rho": 0.8, "epsilon": 1e-4, "weight_decay": 0.01})

    def rule(self) -> UpdateTransform:
        return ScaleByAdadelta(self.rho, self.epsilon)
