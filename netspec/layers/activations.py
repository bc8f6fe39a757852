"""Activation functions: Keras's names, defaults and formulas; `activate` is what other layers call.

Each is made of graph values: what it is made of decides its gradient, its fusion and its ONNX form. In a spec one is
written by its name, `relu`, or with fields, `{type: leaky_relu, negative_slope: 0.1}`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from netspec.graph.value import Value
from netspec.layers.checks import sample_axis
from netspec.schema.kinds import ACTIVATIONS
from netspec.schema.spec import Member, Spec


class ActivationSpec(Spec):
    """Base of activation functions: `of` a value, each element by itself unless the class is an `OverAxis`."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    comes_back: ClassVar[Literal["always", "plain", "never"]] = "plain"
    """Whether it comes back from an ONNX file: with any fields, with its default ones alone, or not at all."""

    def of(self, x: Value) -> Value:
        """The function of `x`."""
        raise NotImplementedError  # abstract: subclasses say

    def over(self, x: Value, axis: int) -> Value:
        """The function of `x`, whose features lie along `axis`."""
        return self.of(x)


class OverAxis(ActivationSpec):
    """Base of functions of all numbers along an axis."""

    verb: ClassVar[str] = "to normalize over"
    """What the function does along its axis, for messages."""

    axis: int | None = None
    """the axis; default: that of the features, which is 1 of a convolution's output, else the last"""

    def of(self, x: Value) -> Value:
        """Along the last axis."""
        return self.over(x, -1)

    def over(self, x: Value, axis: int) -> Value:
        """Along the axis given, else along `axis`."""
        return self.along(x, sample_axis(x, axis if self.axis is None else self.axis, self.verb))

    def along(self, x: Value, axis: int) -> Value:
        """The function along an axis counted from the front."""
        raise NotImplementedError  # abstract: subclasses say


Activation = Annotated[ActivationSpec, Member(ACTIVATIONS)]


def activate(function: ActivationSpec | None, x: Value, axis: int = -1) -> Value:
    """The function of `x`, whose features lie along `axis`; `x` itself for None."""
    return x if function is None else function.over(x, axis)
