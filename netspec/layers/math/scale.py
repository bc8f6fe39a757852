"""A learned or computed factor, or offset, for each channel: Caffe's Scale and Bias."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.reduce import reshape_to
from netspec.graph.types import batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require, sample_axis
from netspec.layers.constraints import Constraint
from netspec.layers.initializers.base import Initializer, Ones, Zeros
from netspec.layers.regularizers import Regularizer
from netspec.schema.specs.kinds import LAYERS


class ChannelwiseLayer(LayerSpec):
    """Base of layers that combine the input with a smaller array along some of its axes."""

    passes_mask: ClassVar = True
    foreign_fields: ClassVar[dict[str, str]] = {"filler": "`filler` is Caffe's name: use an initializer"}

    axis: int = 1
    """First axis of the input that the other array corresponds to."""
    num_axes: PositiveInt = 1
    """Number of axes of the learned array; a second input has its own number of axes."""

    def shape_of(self, x: Value) -> tuple[int, ...]:
        """Shape of the learned array for the input `x`."""
        axis = sample_axis(x, self.axis, "to apply values along")
        fits = axis + self.num_axes <= len(x.shape)
        require(
            fits,
            f"the input has fewer than {self.num_axes} axes from axis {axis} on",
            expected=f"`num_axes` of at most {len(x.shape) - axis}",
            got=x.type,
        )
        return x.shape[axis : axis + self.num_axes]

    def align(self, x: Value, second: Value) -> Value:
        """Reshape a second input (N, sizes of some axes) to broadcast with `x`."""
        axis = sample_axis(x, self.axis, "to apply values along")
        inner = second.shape[1:]
        require(
            x.shape[axis : axis + len(inner)] == inner,
            f"the second input does not match the first input's axes from axis {axis} on",
            expected=batch_shape((0, *x.shape[axis : axis + max(1, len(inner))])),
            got=second.type,
        )
        lead, trailing = (1,) * (axis - 1), (1,) * (len(x.shape) - axis - len(inner))
        return reshape_to(second, (second.shape[0], *lead, *inner, *trailing))


def broadcast_along(array: Value, x: Value, axis: int) -> Value:
    """Reshape an array, whose axes are those of `x` from `axis` on, to broadcast with `x`."""
    trailing = len(x.shape) - axis % len(x.shape) - len(array.shape)
    return reshape_to(array, (*array.shape, *(1,) * trailing))


@LAYERS.register
class Scale(ChannelwiseLayer):
    """Multiply by a learned factor for each channel, or by a second input with one factor per channel.

    Input (N, C, …), output the same: scale · x, plus a learned bias with `use_bias`. A second input (N, C) replaces the
    learned factors, for example as a gate on channels.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Multiply",)

    type: Literal["Scale"] = "Scale"
    use_bias: bool = False
    """Also add a learned offset to each channel."""
    scale_initializer: Initializer = Ones()
    """First values of `scale`."""
    bias_initializer: Initializer = Zeros()
    """First values of `bias`."""
    scale_regularizer: Regularizer | None = None
    """Penalty on `scale`, added to the loss."""
    bias_regularizer: Regularizer | None = None
    """Penalty on `bias`, added to the loss."""
    scale_constraint: Constraint | None = None
    """Constraint on `scale`, applied after each step."""
    bias_constraint: Constraint | None = None
    """Constraint on `bias`, applied after each step."""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 3, 2, 2), use_bias=True, axis=2, num_axes=2),
        Sample.of((3, 4), use_bias=True, scale_regularizer={"type": "L2", "l2": 0.1}),
        Sample.of((2, 3, 4), (2, 3)),
        Sample.of((2, 3, 4), (2, 4), axis=-1, use_bias=True, no_onnx_roundtrip=True),
    )

    def build(self, builder: Builder, x: Value, factors: Value | None = None) -> Value:
        """x: (N, …), factors: (N, sizes from `axis` on) → (N, …)."""
        x = builder.floating(x)
        shape = self.shape_of(x)
        if factors is None:
            learned = builder.parameter_of(self, "scale", shape)
            y = x * broadcast_along(learned, x, self.axis)
        else:
            y = x * self.align(x, builder.floating(factors))
        if not self.use_bias:
            return y
        bias = builder.parameter_of(self, "bias", shape)
        return y + broadcast_along(bias, x, self.axis)


@LAYERS.register
class Bias(ChannelwiseLayer):
    """Add a learned offset to each channel, or a second input with one offset per channel.

    Input (N, C, …), output the same. A second input (N, C) replaces the learned offsets.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Add",)

    type: Literal["Bias"] = "Bias"
    bias_initializer: Initializer = Zeros()
    """First values of `bias`."""
    bias_regularizer: Regularizer | None = None
    """Penalty on `bias`, added to the loss."""
    bias_constraint: Constraint | None = None
    """Constraint on `bias`, applied after each step."""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 3, 2), axis=-1, bias_regularizer={"type": "L2", "l2": 0.1}),
        Sample.of((2, 3, 4), (2, 3)),
    )

    def build(self, builder: Builder, x: Value, added: Value | None = None) -> Value:
        """x: (N, …), added: (N, sizes from `axis` on) → (N, …)."""
        x = builder.floating(x)
        if added is not None:
            return x + self.align(x, builder.floating(added))
        shape = self.shape_of(x)
        learned = builder.parameter_of(self, "bias", shape)
        return x + broadcast_along(learned, x, self.axis)
