"""Patterns of normalizations along axes, softmax included: written with means, variances and roots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

from netspec.exchange.lift.patterns.finding import OperatorPattern, patterns
from netspec.exchange.lift.patterns.formula import (
    NumberTerm,
    Reduced,
    Term,
    VariableTerm,
    WeightsTerm,
    call,
    clip,
    mean,
)
from netspec.exchange.lift.patterns.matching import Match

LAYER, ROOT_MEAN_SQUARE, UNIT = "LayerNormalization", "RMSNormalization", "UnitNormalization"
MAX_EPSILON = 1e-2
"""Largest epsilon that counts as a guard against division by zero."""
x, gamma, beta, epsilon = VariableTerm(), WeightsTerm("gamma"), WeightsTerm("beta"), NumberTerm("epsilon")


@patterns
def normalizations() -> Sequence[OperatorPattern]:
    """The largest formulas first: with gamma and beta, with gamma, without both."""
    return [*_layer(), *_root_mean_square(), *_unit()]


def _layer() -> Iterator[OperatorPattern]:
    centered = x - mean(x)
    of_squares = mean(x**2) - mean(x) ** 2
    for variance in (mean(centered**2), of_squares, clip(of_squares, 0.0, inf)):  # the last as in Flax
        inverse = (variance + epsilon) ** -0.5
        for formula in (gamma * centered * inverse + beta, gamma * centered * inverse, centered * inverse):
            yield _over_axes(LAYER, formula)
        # As in TensorFlow: y = x · a + (beta - mean · a), a = gamma / √(variance + epsilon)
        yield _over_axes(LAYER, x * (gamma * inverse) + beta - mean(x) * (gamma * inverse))


def _root_mean_square() -> Iterator[OperatorPattern]:
    inverse = (mean(x**2) + epsilon) ** -0.5
    yield _over_axes(ROOT_MEAN_SQUARE, gamma * x * inverse)
    yield _over_axes(ROOT_MEAN_SQUARE, x * inverse)


def _unit() -> Iterator[OperatorPattern]:
    length = Reduced("ReduceL2", x, "axes")
    square = Reduced("ReduceSum", x**2, "axes")
    squares = Reduced("ReduceSumSquare", x, "axes")
    least = clip(length, 1e-12, inf)  # as in PyTorch
    for divisor in (length, least, square**0.5, squares**0.5, clip(square, 1e-12, inf) ** 0.5):
        yield _over_axes(UNIT, x / divisor)


def _over_axes(op_type: str, formula: Term) -> OperatorPattern:
    return OperatorPattern(op_type, formula, ("x", "gamma", "beta"), _attributes)


def _attributes(match: Match) -> dict[str, Any] | None:
    least = match.numbers.get("epsilon", 0.0)
    if not 0 <= least <= MAX_EPSILON:
        return None
    return {"axes": match.numbers["axes"], "epsilon": least, "count": match.numbers.get("count")}


x = VariableTerm()


@patterns
def softmaxes() -> Sequence[OperatorPattern]:
    """Softmax and log-softmax as formulas, which JAX exports."""
    return list(_softmaxes())


def _softmaxes() -> Iterator[OperatorPattern]:
    for shifted in (x - Reduced("ReduceMax", x, "axes"), x):
        exponential = call("Exp", shifted)
        total = Reduced("ReduceSum", exponential, "axes")
        yield OperatorPattern("Softmax", exponential / total, attributes=_axis)
        yield OperatorPattern("LogSoftmax", shifted - call("Log", total), attributes=_axis)
    yield OperatorPattern("LogSoftmax", x - Reduced("ReduceLogSumExp", x, "axes"), attributes=_axis)


def _axis(match: Match) -> dict[str, Any] | None:
    axes = match.numbers["axes"]
    return {"axes": axes} if all(len(axis) == 1 for axis in axes) else None
