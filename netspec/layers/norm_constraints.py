"""Constraints on the lengths of vectors in a parameter. Keras's names and formulas."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.elementwise import Maximum, Minimum, elementwise
from netspec.graph.ops.functions import Sqrt
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.value import Value
from netspec.layers.checks import Axes
from netspec.layers.constraints import ConstraintSpec
from netspec.schema.kinds import CONSTRAINTS
from netspec.schema.spec import problem

EPSILON = 1e-7
"""Keras's, added to what is divided by: a vector of zeros stays one."""


class OfNorms(ConstraintSpec):
    """Base of constraints on the lengths of vectors in a parameter."""

    axis: Axes | None = None
    """the axis or axes along which a vector lies; default: those of the weights of one output, which is 0 of a dense
    kernel (in, out), and all but 0 of a convolution kernel (out, in, window…). (Keras's default is 0 throughout, of
    kernels (window…, in, out))"""

    def why_not(self, shape: tuple[int, ...]) -> str | None:
        """The axes must be there."""
        wrong = [axis for axis in self.axis or () if not -len(shape) <= axis < len(shape)]
        return f"there is no axis {wrong[0]} to measure along" if wrong else None

    def to_length(self, weight: Value, wanted: Value, norms: Value) -> Value:
        """The vectors of lengths `norms` stretched or shrunk to those wanted."""
        return weight * (wanted / (norms + EPSILON))

    def norms(self, weight: Value) -> Value:
        """The lengths of the vectors, which stay broadcastable."""
        rank = len(weight.shape)
        axes = self.axis if self.axis is not None else tuple(range(1, rank)) if rank > 2 else tuple(range(rank))[:1]
        return Sqrt()(ReduceSum(axes, keepdims=True)(weight * weight))


@CONSTRAINTS.register
class MaxNorm(OfNorms):
    """Vectors longer than `max_value` are shrunk to it. Srivastava et al. 2014, JMLR 15"""

    type: Literal["MaxNorm"] = "MaxNorm"
    max_value: float = Field(default=2.0, ge=0)
    """the greatest length"""
    samples: ClassVar = ({}, {"max_value": 0.5, "axis": [0, 1]})

    def project(self, weight: Value) -> Value:
        """w · min(|w|, max) / (|w| + ε)"""
        norms = self.norms(weight)
        return self.to_length(weight, elementwise(Minimum(), norms, self.max_value), norms)


@CONSTRAINTS.register
class UnitNorm(OfNorms):
    """Vectors are stretched or shrunk to length 1"""

    type: Literal["UnitNorm"] = "UnitNorm"
    samples: ClassVar = ({}, {"axis": -1})

    def project(self, weight: Value) -> Value:
        """w / (|w| + ε)"""
        return weight / (self.norms(weight) + EPSILON)


@CONSTRAINTS.register
class MinMaxNorm(OfNorms):
    """Vectors shorter than `min_value` or longer than `max_value` come nearer to them by the share `rate`"""

    type: Literal["MinMaxNorm"] = "MinMaxNorm"
    min_value: float = Field(default=0.0, ge=0)
    """the least length"""
    max_value: float = Field(default=1.0, ge=0)
    """the greatest length"""
    rate: float = Field(default=1.0, ge=0, le=1)
    """share of the way to the allowed length that one step goes"""
    samples: ClassVar = ({}, {"min_value": 0.7, "max_value": 0.8, "rate": 0.5})

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_value > self.max_value:
            raise problem(
                "the least length is larger than the greatest", field="min_value",
                expected=f"{self.max_value:g} or less", got=f"{self.min_value:g}",
            )  # fmt: skip
        return self

    def project(self, weight: Value) -> Value:
        """w · (rate · clip(|w|, min, max) + (1 - rate) · |w|) / (|w| + ε)"""
        norms = self.norms(weight)
        allowed = elementwise(Minimum(), elementwise(Maximum(), norms, self.min_value), self.max_value)
        wanted = allowed if self.rate == 1 else allowed * self.rate + norms * (1 - self.rate)
        return self.to_length(weight, wanted, norms)
