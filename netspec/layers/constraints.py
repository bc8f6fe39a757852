"""Constraints: projections of a parameter after each step. Keras's names and formulas.

The projection is part of the update in the graph, after the solver's rule; the solver's slots are not projected.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.elementwise import Maximum, Minimum, call_elementwise
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.unary import Relu, Sqrt
from netspec.graph.value import Value
from netspec.layers.checks import Axes
from netspec.schema.specs.kinds import CONSTRAINTS
from netspec.schema.specs.spec import Member, Spec, problem


class ConstraintSpec(Spec):
    """Base of constraints."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)

    def project(self, weight: Value) -> Value:
        """The nearest allowed value to `weight`, of its type."""
        raise NotImplementedError  # subclasses implement it

    def reject_reason(self, shape: tuple[int, ...]) -> str | None:
        """Return why a parameter of this shape cannot have the constraint; None if it can."""
        return None


Constraint = Annotated[ConstraintSpec, Member(CONSTRAINTS)]


@CONSTRAINTS.register
class NonNeg(ConstraintSpec):
    """max(w, 0)"""

    type: Literal["NonNeg"] = "NonNeg"

    def project(self, weight: Value) -> Value:
        """Set negative elements to 0."""
        return Relu()(weight)


EPSILON = 1e-7
"""Keras's constant, added to divisors: a vector of zeros stays zero."""


class NormConstraint(ConstraintSpec):
    """Base of constraints on the lengths of vectors in a parameter."""

    axis: Axes | None = None
    """The axis or axes along which a vector lies; default: the weights of one output, which is axis 0 of a dense kernel
    (in, out), and all axes but 0 of a convolution kernel (out, in, window…). (Keras's default is 0 for all kernels,
    which are (window…, in, out))."""

    def reject_reason(self, shape: tuple[int, ...]) -> str | None:
        """Require that the axes exist."""
        missing = [axis for axis in self.axis or () if not -len(shape) <= axis < len(shape)]
        return f"the parameter has no axis {missing[0]}" if missing else None

    def rescale(self, weight: Value, lengths: Value, norms: Value) -> Value:
        """Rescale vectors with lengths `norms` to `lengths`."""
        return weight * (lengths / (norms + EPSILON))

    def norms(self, weight: Value) -> Value:
        """The lengths of the vectors; reduced axes stay with size 1."""
        rank = len(weight.shape)
        axes = self.axis if self.axis is not None else tuple(range(1, rank)) if rank > 2 else tuple(range(rank))[:1]
        return Sqrt()(ReduceSum(axes, keepdims=True)(weight * weight))


@CONSTRAINTS.register
class MaxNorm(NormConstraint):
    """Vectors longer than `max_value` are shrunk to it. Srivastava et al. 2014, JMLR 15"""

    type: Literal["MaxNorm"] = "MaxNorm"
    max_value: float = Field(default=2.0, ge=0)
    """The maximum length."""
    samples: ClassVar = ({}, {"max_value": 0.5, "axis": [0, 1]})

    def project(self, weight: Value) -> Value:
        """w · min(|w|, max) / (|w| + ε)"""
        norms = self.norms(weight)
        return self.rescale(weight, call_elementwise(Minimum(), norms, self.max_value), norms)


@CONSTRAINTS.register
class UnitNorm(NormConstraint):
    """Vectors are stretched or shrunk to length 1"""

    type: Literal["UnitNorm"] = "UnitNorm"
    samples: ClassVar = ({}, {"axis": -1})

    def project(self, weight: Value) -> Value:
        """w / (|w| + ε)"""
        return weight / (self.norms(weight) + EPSILON)


@CONSTRAINTS.register
class MinMaxNorm(NormConstraint):
    """Vectors shorter than `min_value` or longer than `max_value` move towards that length by the fraction `rate`"""

    type: Literal["MinMaxNorm"] = "MinMaxNorm"
    min_value: float = Field(default=0.0, ge=0)
    """The minimum length."""
    max_value: float = Field(default=1.0, ge=0)
    """The maximum length."""
    rate: float = Field(default=1.0, ge=0, le=1)
    """Share of the distance to the allowed length that one step covers."""
    samples: ClassVar = ({}, {"min_value": 0.7, "max_value": 0.8, "rate": 0.5})

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_value > self.max_value:
            raise problem(
                "`min_value` is larger than `max_value`", field="min_value",
                expected=f"{self.max_value:g} or less", got=f"{self.min_value:g}",
            )  # fmt: skip
        return self

    def project(self, weight: Value) -> Value:
        """w · (rate · clip(|w|, min, max) + (1 - rate) · |w|) / (|w| + ε)"""
        norms = self.norms(weight)
        allowed = call_elementwise(Minimum(), call_elementwise(Maximum(), norms, self.min_value), self.max_value)
        lengths = allowed if self.rate == 1 else allowed * self.rate + norms * (1 - self.rate)
        return self.rescale(weight, lengths, norms)
