"""Base classes of activation functions, and `activate`, which other layers call.

An activation is made of graph values, which decide its gradient, its fusion and its ONNX form. In a spec it is
written by its name, `relu`, or with fields, `{type: leaky_relu, negative_slope: 0.1}`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from netspec.graph.value import Value
from netspec.layers.checks import sample_axis
from netspec.schema.specs.kinds import ACTIVATIONS
from netspec.schema.specs.spec import Member, Spec


class ActivationSpec(Spec):
    """Base of activation functions. `apply` works element by element unless the class is an `OverAxis`."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    onnx_roundtrip: ClassVar[Literal["always", "plain", "never"]] = "plain"
    """Whether an ONNX round trip restores it: with any fields, with its defaults only, or never."""

    def apply(self, x: Value) -> Value:
        """Apply the function to `x`."""
        raise NotImplementedError  # subclasses implement it

    def apply_over(self, x: Value, axis: int) -> Value:
        """Apply the function to `x`, whose features are along `axis`."""
        return self.apply(x)


class OverAxis(ActivationSpec):
    """Base of functions of all elements along an axis."""

    verb: ClassVar[str] = "to normalize over"
    """Verb for the effect of the function along its axis, used in messages."""

    axis: int | None = None
    """The axis; default: the axis of the features, which is 1 for the output of a convolution and the last
    otherwise."""

    def apply(self, x: Value) -> Value:
        """Apply the function along the last axis."""
        return self.apply_over(x, -1)

    def apply_over(self, x: Value, axis: int) -> Value:
        """Apply the function along the field `axis`, or along `axis` if the field is not set."""
        return self.apply_along(x, sample_axis(x, axis if self.axis is None else self.axis, self.verb))

    def apply_along(self, x: Value, axis: int) -> Value:
        """Apply the function along an axis counted from the front."""
        raise NotImplementedError  # subclasses implement it


Activation = Annotated[ActivationSpec, Member(ACTIVATIONS)]


def activate(function: ActivationSpec | None, x: Value, axis: int = -1) -> Value:
    """Apply `function` to `x`, whose features are along `axis`; None is the identity."""
    return x if function is None else function.apply_over(x, axis)
