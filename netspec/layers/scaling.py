"""A factor or a number added for each channel, learned or computed: Scale and Bias, as Caffe has them."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.reduce import reshape_to
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need, sample_axis
from netspec.layers.constraints import Constraint
from netspec.layers.initializers import Initializer, Ones, Zeros
from netspec.layers.regularizers import Regularizer
from netspec.schema.kinds import LAYERS


class AlongAxes(LayerSpec):
    """Base of layers that join the input with a smaller array, which lies along some of its axes."""

    passes_mask: ClassVar = True
    foreign_fields: ClassVar[dict[str, str]] = {"filler": "`filler` is Caffe's name: it is an initializer here"}

    axis: int = 1
    """the first axis of the input that the other array lies along"""
    num_axes: PositiveInt = 1
    """how many axes of the input the learned array lies along; a second input has as many as it has"""

    def shape_of(self, x: Value) -> tuple[int, ...]:
        """Shape of the learned array for the input `x`."""
        axis = sample_axis(x, self.axis, "to lie along")
        fits = axis + self.num_axes <= len(x.shape)
        need(
            fits,
            f"there are no {self.num_axes} axes from axis {axis} on",
            expected=f"`num_axes` of at most {len(x.shape) - axis}",
            got=x.type,
        )
        return x.shape[axis : axis + self.num_axes]

    def along(self, x: Value, other: Value) -> Value:
        """A second input (N, sizes of some axes) in a shape that broadcasts with `x`."""
        axis = sample_axis(x, self.axis, "to lie along")
        inner = other.shape[1:]
        need(
            x.shape[axis : axis + len(inner)] == inner,
            f"the second input does not lie along the first's axes from axis {axis} on",
            expected=f"the batch axis, then {list(x.shape[axis : axis + max(1, len(inner))])}",
            got=other.type,
        )
        lead, rest = (1,) * (axis - 1), (1,) * (len(x.shape) - axis - len(inner))
        return reshape_to(other, (other.shape[0], *lead, *inner, *rest))


def spread(array: Value, x: Value, axis: int) -> Value:
    """A learned array that lies along the axes of `x` from `axis` on, in a shape that broadcasts with `x`."""
    rest = len(x.shape) - axis % len(x.shape) - len(array.shape)
    return reshape_to(array, (*array.shape, *(1,) * rest))


@LAYERS.register
class Scale(AlongAxes):
    """Multiply by a learned factor for each channel, or by a second input that has one for each.

    Input (N, C, …), output the same: scale · x, plus a learned bias with `use_bias`. A second input (N, C) takes the
    place of the learned factors: so a gate weighs channels.
    """

    alike: ClassVar[tuple[str, ...]] = ("Multiply",)

    type: Literal["Scale"] = "Scale"
    use_bias: bool = False
    """add a learned number for each channel too"""
    scale_initializer: Initializer = Ones()
    """first values of `scale`"""
    bias_initializer: Initializer = Zeros()
    """first values of `bias`"""
    scale_regularizer: Regularizer | None = None
    """penalty on `scale`, added to the loss"""
    bias_regularizer: Regularizer | None = None
    """penalty on `bias`, added to the loss"""
    scale_constraint: Constraint | None = None
    """what `scale` is projected on after each step"""
    bias_constraint: Constraint | None = None
    """what `bias` is projected on after each step"""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 3, 2, 2), use_bias=True, axis=2, num_axes=2),
        Sample.of((3, 4), use_bias=True, scale_regularizer={"type": "L2", "l2": 0.1}),
        Sample.of((2, 3, 4), (2, 3)),
        Sample.of((2, 3, 4), (2, 4), axis=-1, use_bias=True, one_way=True),
    )

    def build(self, net: Builder, x: Value, factors: Value | None = None) -> Value:
        """x: (N, …), factors: (N, sizes from `axis` on) → (N, …)."""
        x = net.floating(x)
        shape = self.shape_of(x)
        if factors is None:
            learned = net.parameter(
                "scale", shape, self.scale_initializer, self.scale_regularizer, self.scale_constraint
            )
            y = x * spread(learned, x, self.axis)
        else:
            y = x * self.along(x, net.floating(factors))
        if not self.use_bias:
            return y
        bias = net.parameter("bias", shape, self.bias_initializer, self.bias_regularizer, self.bias_constraint)
        return y + spread(bias, x, self.axis)


@LAYERS.register
class Bias(AlongAxes):
    """Add a learned number for each channel, or a second input that has one for each.

    Input (N, C, …), output the same. A second input (N, C) takes the place of the learned numbers.
    """

    alike: ClassVar[tuple[str, ...]] = ("Add",)

    type: Literal["Bias"] = "Bias"
    bias_initializer: Initializer = Zeros()
    """first values of `bias`"""
    bias_regularizer: Regularizer | None = None
    """penalty on `bias`, added to the loss"""
    bias_constraint: Constraint | None = None
    """what `bias` is projected on after each step"""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 3, 2), axis=-1, bias_regularizer={"type": "L2", "l2": 0.1}),
        Sample.of((2, 3, 4), (2, 3)),
    )

    def build(self, net: Builder, x: Value, added: Value | None = None) -> Value:
        """x: (N, …), added: (N, sizes from `axis` on) → (N, …)."""
        x = net.floating(x)
        if added is not None:
            return x + self.along(x, net.floating(added))
        shape = self.shape_of(x)
        learned = net.parameter("bias", shape, self.bias_initializer, self.bias_regularizer, self.bias_constraint)
        return x + spread(learned, x, self.axis)
