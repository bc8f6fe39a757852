"""Regularizers: penalties on parameters, added to the loss. Keras's names and meaning."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.functions import Abs
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.value import Value
from netspec.schema.kinds import REGULARIZERS
from netspec.schema.spec import Member, Spec


class RegularizerFields(Spec):
    """Base of regularizers."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)

    def penalty(self, weight: Value) -> Value:
        """The scalar penalty on `weight`."""
        raise NotImplementedError


Regularizer = Annotated[RegularizerFields, Member(REGULARIZERS)]


@REGULARIZERS.register
class L1(RegularizerFields):
    """l1 · Σ|w|"""

    type: Literal["L1"] = "L1"
    l1: float = Field(default=0.01, ge=0)
    """factor"""

    def penalty(self, weight: Value) -> Value:
        """Σ|w| · l1"""
        return ReduceSum()(Abs()(weight)) * self.l1


@REGULARIZERS.register
class L2(RegularizerFields):
    """l2 · Σw²  (no factor ½: its gradient is 2 · l2 · w, unlike weight decay's)"""

    type: Literal["L2"] = "L2"
    l2: float = Field(default=0.01, ge=0)
    """factor"""

    def penalty(self, weight: Value) -> Value:
        """Σw² · l2"""
        return ReduceSum()(weight * weight) * self.l2


@REGULARIZERS.register
class L1L2(RegularizerFields):
    """l1 · Σ|w| + l2 · Σw²"""

    type: Literal["L1L2"] = "L1L2"
    l1: float = Field(default=0.0, ge=0)
    """factor of the absolute values"""
    l2: float = Field(default=0.0, ge=0)
    """factor of the squares"""
    samples: ClassVar = ({"l1": 0.1, "l2": 0.2},)

    def penalty(self, weight: Value) -> Value:
        """Σ|w| · l1 + Σw² · l2"""
        return ReduceSum()(Abs()(weight)) * self.l1 + ReduceSum()(weight * weight) * self.l2
