"""Formulas of patterns, such as `0.5 * x * (1 + call("Erf", x / sqrt2))`, as terms that do not depend on order.

A sum is a number plus terms with coefficients, a product is a number times terms with exponents. Subtraction, division
and roots are sums and products too. The other kinds of terms are limits (`clip`) and other operators (`call`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, TypeAlias

Real: TypeAlias = "float | NumberTerm"


class Term:
    """A part of a formula; the operators of Python combine terms."""

    @cached_property
    def reduced(self) -> bool:
        """Whether all its variables are reduced over axes: the model may expand these axes again at any point."""
        match self:
            case SumTerm(_, terms):
                return all(term.reduced for _, term in terms)
            case ProductTerm(_, powers):
                return all(term.reduced for term, _ in powers)
            case Limits(inner):
                return inner.reduced
            case OperatorTerm(_, operands):
                return all(operand.reduced for operand in operands)
        return isinstance(self, Reduced)

    def __add__(self, other: Term | float) -> Term:
        left, right = _as_sum(self), _as_sum(other)
        if isinstance(left.number, float) and isinstance(right.number, float):
            return SumTerm(left.number + right.number, left.terms + right.terms)
        return SumTerm(left.number if right.number == 0 else right.number, left.terms + right.terms)

    def __mul__(self, other: Term | float) -> Term:
        left, right = _as_product(self), _as_product(other)
        powers = dict(left.powers)
        for term, exponent in right.powers:
            powers[term] = powers.get(term, 0.0) + exponent
        if isinstance(left.factor, float) and isinstance(right.factor, float):
            return ProductTerm(left.factor * right.factor, tuple(powers.items()))
        return ProductTerm(left.factor if right.factor == 1 else right.factor, tuple(powers.items()))

    def __pow__(self, exponent: float) -> Term:
        product = _as_product(self)
        assert isinstance(product.factor, float)
        return ProductTerm(product.factor**exponent, tuple((term, power * exponent) for term, power in product.powers))

    def __sub__(self, other: Term | float) -> Term:
        return self + -1.0 * other

    def __truediv__(self, other: Term | float) -> Term:
        return self * (1 / other if isinstance(other, (int, float)) else other**-1.0)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> Term:
        return -1.0 * self + other

    def __rtruediv__(self, other: float) -> Term:
        return self**-1.0 * other


@dataclass(frozen=True, eq=True)
class VariableTerm(Term):
    """A computed tensor; variables of one name are the same tensor."""

    name: str = "x"


@dataclass(frozen=True)
class WeightsTerm(Term):
    """A constant tensor of any shape."""

    name: str


@dataclass(frozen=True)
class NumberTerm(Term):
    """A constant number of any value."""

    name: str


@dataclass(frozen=True)
class SumTerm(Term):
    """number + Σ coefficient · term."""

    number: Real
    terms: tuple[tuple[float, Term], ...]


@dataclass(frozen=True)
class ProductTerm(Term):
    """factor · Π term ^ exponent."""

    factor: Real
    powers: tuple[tuple[Term, float], ...]


@dataclass(frozen=True)
class Limits(Term):
    """The term, clipped to [`low`, `high`]."""

    term: Term
    low: float = -inf
    high: float = inf


@dataclass(frozen=True)
class OperatorTerm(Term):
    """Another operator. `required` are required attributes, `captured` the attributes to capture, with their names."""

    op_type: str
    operands: tuple[Term, ...]
    required: Mapping[str, Any] = field(default_factory=dict, hash=False)
    captured: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Reduced(Term):
    """A sum, a mean or another reduction over axes, which are removed or keep size 1."""

    op_type: str
    term: Term
    axes: str


def operators(term: Term) -> frozenset[str]:
    """The operators that the formula calls."""
    match term:
        case SumTerm(_, terms):
            return frozenset().union(*(operators(inner) for _, inner in terms))
        case ProductTerm(_, powers):
            return frozenset().union(*(operators(inner) for inner, _ in powers))
        case Limits(inner):
            return operators(inner)
        case Reduced(op_type, inner):
            return operators(inner) | {op_type}
        case OperatorTerm(op_type, operands):
            return frozenset({op_type}).union(*map(operators, operands))
    return frozenset()


def ends_in(term: Term) -> tuple[str, ...]:
    """The operators that may compute the formula's result, as the last node."""
    match term:
        case SumTerm():
            return "Add", "Sub"
        case ProductTerm():
            return "Mul", "Div", "Neg", "Reciprocal", "Sqrt", "Pow"
        case Limits():
            return "Clip", "Max", "Min", "Relu"
        case OperatorTerm(op_type) | Reduced(op_type):
            return (op_type,)
    return ()


def call(op_type: str, *operands: Term, **attributes: Any) -> Term:
    """The operator with these operands and attributes."""
    return OperatorTerm(op_type, operands, attributes)


def mean(x: Term, axes: str = "axes") -> Term:
    """The mean over axes; all reductions whose axes have the same name are over the same axes."""
    return Reduced("ReduceMean", x, axes)


def clip(x: Term, low: float, high: float) -> Term:
    """x, clipped to [`low`, `high`]; nested limits become one."""
    inner = x if isinstance(x, Limits) else Limits(x)
    return Limits(inner.term, max(low, inner.low), min(high, inner.high))


def _as_sum(term: Term | float) -> SumTerm:
    match term:
        case SumTerm():
            return term
        case NumberTerm():
            return SumTerm(term, ())
        case ProductTerm(float() as factor, powers):
            return SumTerm(0.0, ((factor, ProductTerm(1.0, powers)),))
        case Term():
            return SumTerm(0.0, ((1.0, term),))
    return SumTerm(float(term), ())


def _as_product(factor: Term | float) -> ProductTerm:
    match factor:
        case ProductTerm():
            return factor
        case NumberTerm():
            return ProductTerm(factor, ())
        case SumTerm(float() as number, ((coefficient, term),)) if number == 0:
            return coefficient * _as_product(term)  # type: ignore[return-value]  # number · product is a product
        case Term():
            return ProductTerm(1.0, ((factor, 1.0),))
    return ProductTerm(float(factor), ())
