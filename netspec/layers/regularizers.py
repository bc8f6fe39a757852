"""Regularizers: penalties on parameters, added to the loss. Keras's names and meaning."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Maximum, Pow, call_elementwise
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.source import constant
from netspec.graph.ops.unary import Abs
from netspec.graph.types import DType
from netspec.graph.value import Value, require_precomputable
from netspec.layers.checks import require
from netspec.schema.specs.kinds import REGULARIZERS
from netspec.schema.specs.spec import Member, Spec

EPSILON = 1e-7
"""Shorter vectors are not normalized; Keras's value."""


class RegularizerSpec(Spec):
    """Base of regularizers."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)

    def penalty(self, weight: Value) -> Value:
        """The scalar penalty on `weight`."""
        raise NotImplementedError  # subclasses implement it


Regularizer = Annotated[RegularizerSpec, Member(REGULARIZERS)]


@REGULARIZERS.register
class L1(RegularizerSpec):
    """l1 · Σ|w|"""

    type: Literal["L1"] = "L1"
    l1: float = Field(default=0.01, ge=0)
    """Factor."""

    def penalty(self, weight: Value) -> Value:
        return ReduceSum()(Abs()(weight)) * self.l1


@REGULARIZERS.register
class L2(RegularizerSpec):
    """l2 · Σw²  (no factor ½: its gradient is 2 · l2 · w, unlike weight decay's)"""

    type: Literal["L2"] = "L2"
    l2: float = Field(default=0.01, ge=0)
    """Factor."""

    def penalty(self, weight: Value) -> Value:
        return ReduceSum()(weight * weight) * self.l2


@REGULARIZERS.register
class L1L2(RegularizerSpec):
    """l1 · Σ|w| + l2 · Σw²"""

    type: Literal["L1L2"] = "L1L2"
    l1: float = Field(default=0.0, ge=0)
    """Factor of the absolute values."""
    l2: float = Field(default=0.0, ge=0)
    """Factor of the squares."""
    samples: ClassVar = ({"l1": 0.1, "l2": 0.2},)

    def penalty(self, weight: Value) -> Value:
        return ReduceSum()(Abs()(weight)) * self.l1 + ReduceSum()(weight * weight) * self.l2


@REGULARIZERS.register
class OrthogonalRegularizer(RegularizerSpec):
    """factor · mean of |cos| of the angles between rows, or columns, of a matrix: 0 if all are orthogonal."""

    type: Literal["OrthogonalRegularizer"] = "OrthogonalRegularizer"
    factor: float = Field(default=0.01, ge=0)
    """Factor."""
    mode: Literal["rows", "columns"] = "rows"
    """The vectors to make orthogonal; of a dense kernel (in, out), the columns are the outputs."""
    samples: ClassVar = ({}, {"mode": "columns"})

    def penalty(self, weight: Value) -> Value:
        """Σ|cos| over all pairs of different rows / number of such pairs · factor."""
        require(
            len(weight.shape) == 2,
            "`OrthogonalRegularizer` is for matrices",
            expected="2 axes",
            got=weight.type.describe(batch=False),
        )
        along, count = (1, weight.shape[0]) if self.mode == "rows" else (0, weight.shape[1])
        require(
            count > 1,
            f"`OrthogonalRegularizer` needs several {self.mode}",
            expected=f"2 or more {self.mode}",
            got=weight.type.describe(batch=False),
        )
        squares = ReduceSum((along,), keepdims=True)(weight * weight)
        unit = weight * Pow(-0.5)(call_elementwise(Maximum(), squares, EPSILON**2))
        cosines = MatMul(transpose_a=along == 0, transpose_b=along == 1)(unit, unit)
        total = ReduceSum()(Abs()(cosines * _off_diagonal(count, weight.dtype)))
        return total * (self.factor / (count * (count - 1)))


def _off_diagonal(count: int, dtype: DType) -> Value:
    """A matrix of ones with zeros on its diagonal."""
    import numpy as np

    require_precomputable(count * count, "pairs")
    return constant(1 - np.eye(count, dtype=str(dtype)))
