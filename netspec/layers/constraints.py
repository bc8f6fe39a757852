"""Constraints: what a parameter is projected on after each step. Keras's names and formulas.

The projection is part of the update in the graph, after the solver's rule; the solver's slots know nothing of it.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from netspec.graph.ops.functions import Relu
from netspec.graph.value import Value
from netspec.schema.kinds import CONSTRAINTS
from netspec.schema.spec import Member, Spec


class ConstraintSpec(Spec):
    """Base of constraints."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)

    def project(self, weight: Value) -> Value:
        """The nearest allowed value to `weight`, of its type."""
        raise NotImplementedError  # abstract: subclasses say

    def why_not(self, shape: tuple[int, ...]) -> str | None:
        """Why a parameter of this shape cannot be constrained so, where it cannot."""
        return None


Constraint = Annotated[ConstraintSpec, Member(CONSTRAINTS)]


@CONSTRAINTS.register
class NonNeg(ConstraintSpec):
    """max(w, 0)"""

    type: Literal["NonNeg"] = "NonNeg"

    def project(self, weight: Value) -> Value:
        """What is negative becomes 0."""
        return Relu()(weight)
