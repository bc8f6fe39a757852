"""Base classes of solvers with coupled or decoupled weight decay, and formulas that several solvers use."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.elementwise import Maximum, Pow, scalar
from netspec.graph.ops.unary import Exp, Expm1, Log, Sqrt
from netspec.graph.value import Value
from netspec.schema.specs.spec import problem
from netspec.solvers.base import SolverSpec
from netspec.solvers.scaling import AddDecayedWeights, Descend
from netspec.solvers.transform import UpdateTransform


class DecayingSolver(SolverSpec):
    """Base of solvers whose weight decay is coupled by default, and decoupled on request."""

    decoupled_weight_decay: bool = False
    """Whether weight decay is decoupled, as in Keras: w ← w - lr · weight_decay · w, followed by the update."""
    weight_decay_norm: Literal["L2", "L1"] = "L2"
    """The norm that coupled weight decay penalizes. `L1` adds `weight_decay · sign(w)` to the gradient: Caffe's
    `regularization_type`."""

    @model_validator(mode="after")
    def _l1_is_coupled(self) -> Self:
        if self.decoupled_weight_decay and self.weight_decay_norm == "L1":
            raise problem(
                "decoupled weight decay supports only L2",
                field="weight_decay_norm",
                expected="`weight_decay_norm: L2`, or `decoupled_weight_decay: false`",
                got="L1",
            )
        return self

    @property
    def decouples(self) -> bool:
        return self.decoupled_weight_decay

    def coupled(self) -> list[UpdateTransform]:
        """Return the transforms that add coupled weight decay to the gradients; none if it is decoupled."""
        return [] if self.decouples else [AddDecayedWeights(self.weight_decay, self.weight_decay_norm == "L1")]


class ScalingSolver(DecayingSolver):
    """Base of solvers that scale the gradient and subtract it: decay → rule → learning rate."""

    def rule(self) -> UpdateTransform:
        """Return the transform that scales gradients."""
        raise NotImplementedError

    def transforms(self) -> Sequence[UpdateTransform]:
        return [*self.coupled(), self.rule(), Descend()]


class DecoupledSolver(SolverSpec):
    """Base of solvers with decoupled weight decay."""

    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay: each step first subtracts lr · weight_decay · w from the weights."""

    @property
    def decouples(self) -> bool:
        return True


MIN_DECAY = 1e-30
"""Replaces a scheduled decay of 0, whose logarithm is infinite."""


def debias(beta: float | Value, count: Value) -> Value:
    """Return 1 - beta^count, a scalar: the total weight of the first `count` values in a moving average from 0.

    Computed as -expm1(count · ln beta), which keeps all digits in float32 if beta is near 1. If beta is scheduled, its
    current value is used for all steps, as in PyTorch.
    """
    if isinstance(beta, Value):
        return -Expm1()(count * Log()(Maximum()(beta, scalar(MIN_DECAY, beta.dtype))))
    return -Expm1()(count * log(beta)) if beta else scalar(1.0, count.dtype)


def to_power(base: float, count: Value) -> Value:
    """Return base^count for a base above 0."""
    return Exp()(count * log(base))


def average(old: Value, new: Value, decay: float | Value) -> Value:
    """Return the next value of a moving average: decay · old + (1 - decay) · new."""
    return old + (new - old) * (1 - decay)


def root(square: Value, epsilon: float, *, inside: bool) -> Value:
    """Return √(square + epsilon), or √square + epsilon if epsilon is not `inside` the root."""
    return Sqrt()(square + epsilon) if inside else Sqrt()(square) + epsilon


def power(x: Value, exponent: float) -> Value:
    """Return x^exponent for x above 0, as a square root if possible."""
    return Sqrt()(x) if exponent == 0.5 else Pow(exponent)(x)
