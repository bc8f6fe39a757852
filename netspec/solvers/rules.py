"""What most rules have in common: a gradient is scaled, then taken off; decay is coupled unless decoupled is asked for.

And formulas that several of them use.
"""

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
    """Base of solvers whose decay is a part of the gradient, or apart from it, as the user says."""

    decoupled_weight_decay: bool = False
    """the decay is not part of the gradient: w ← w - lr · weight_decay · w, and then the rule, as in Keras"""
    weight_decay_norm: Literal["L2", "L1"] = "L2"
    """`L1`: the coupled decay is `weight_decay · sign(w)`, Caffe's `regularization_type`"""

    @model_validator(mode="after")
    def _signs_are_coupled(self) -> Self:
        if self.decoupled_weight_decay and self.weight_decay_norm == "L1":
            raise problem(
                "a decoupled decay is a share of the weights",
                field="weight_decay_norm",
                expected="`weight_decay_norm: L2`, or `decoupled_weight_decay: false`",
                got="L1",
            )
        return self

    @property
    def decouples(self) -> bool:
        return self.decoupled_weight_decay

    def coupled(self) -> list[UpdateTransform]:
        """The links that add the decay to the gradients, where it is a part of them."""
        return [] if self.decouples else [AddDecayedWeights(self.weight_decay, self.weight_decay_norm == "L1")]


class ScalingSolver(DecayingSolver):
    """Base of solvers that scale the gradient and take it off: decay → rule → rate."""

    def rule(self) -> UpdateTransform:
        """What makes of gradients what is taken off, times the rate."""
        raise NotImplementedError  # abstract: subclasses say

    def transforms(self) -> Sequence[UpdateTransform]:
        return [*self.coupled(), self.rule(), Descend()]


class DecoupledSolver(SolverSpec):
    """Base of solvers whose decay is never a part of the gradient."""

    weight_decay: float = Field(default=0.0, ge=0)
    """decoupled weight decay: each step takes lr · weight_decay · w off the weights first"""

    @property
    def decouples(self) -> bool:
        return True


LEAST_SHARE = 1e-30
"""Replaces a scheduled share of 0, whose logarithm is infinite."""


def debias(beta: float | Value, count: Value) -> Value:
    """1 - beta^count, a scalar: the weights that a moving average started at 0 has given by its `count`-th value.

    As -expm1(count · ln beta), which float32 has to all its digits where beta is near 1. A scheduled beta is that of
    the step, as in PyTorch: the weights of a beta that was the same at all steps before.
    """
    if isinstance(beta, Value):
        return -Expm1()(count * Log()(Maximum()(beta, scalar(LEAST_SHARE, beta.dtype))))
    return -Expm1()(count * log(beta)) if beta else scalar(1.0, count.dtype)


def to_power(base: float, count: Value) -> Value:
    """base^count for a base above 0."""
    return Exp()(count * log(base))


def average(old: Value, new: Value, share: float | Value) -> Value:
    """A moving average's next value: share · old + (1 - share) · new."""
    return old + (new - old) * (1 - share)


def root(square: Value, epsilon: float, *, inside: bool) -> Value:
    """√(square + epsilon), or, where epsilon does not lie inside of the root, √square + epsilon."""
    return Sqrt()(square + epsilon) if inside else Sqrt()(square) + epsilon


def power(x: Value, exponent: float) -> Value:
    """x^exponent for x above 0, by a root where that does it."""
    return Sqrt()(x) if exponent == 0.5 else Pow(exponent)(x)
