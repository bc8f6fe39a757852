"""Depthwise and separable convolution: each channel has separate kernels; a 1 x 1 convolution then mixes channels."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Literal

from netspec.graph.ops.convolution import Conv
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.window import Window
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import PositiveInt
from netspec.layers.constraints import Constraint
from netspec.layers.convolution.conv import ConvBase, HasFilters, Kernel1D, Kernel2D
from netspec.layers.initializers.base import Initializer
from netspec.layers.initializers.variance_scaling import GlorotUniform
from netspec.layers.regularizers import Regularizer
from netspec.layers.spatial import Padding1D
from netspec.schema.specs.kinds import LAYERS


class Depthwise(ConvBase):
    """Base of layers that convolve each channel separately."""

    depth_multiplier: PositiveInt = 1
    """Number of kernels of each channel."""
    depthwise_initializer: Initializer = GlorotUniform()
    """First values of the depthwise kernel (channels · depth_multiplier, 1, sizes of the kernel)."""
    depthwise_regularizer: Regularizer | None = None
    """Penalty on the depthwise kernel, added to the loss."""
    depthwise_constraint: Constraint | None = None
    """Constraint on the depthwise kernel, applied after each step."""

    def convolve_channels(self, builder: Builder, x: Value, name: str) -> Value:
        """Convolve each channel of `x` with its kernels, which are in the parameter `name`."""
        channels, window = x.shape[1], self.window(x)
        shape = (channels * self.depth_multiplier, 1, *self.kernel_size)
        kernel = builder.parameter_of(self, name, shape, "depthwise")
        return Conv(window, channels)(x, kernel)


class DepthwiseConvolution(Depthwise):
    """Base of DepthwiseConv1D and DepthwiseConv2D."""

    def kernel_matrix(self, kernel: Value) -> Value:
        """kernel: (C · depth_multiplier, 1, …) → (C · …, depth_multiplier)."""
        multiplier, window = self.depth_multiplier, prod(kernel.shape[2:])
        channels = kernel.shape[0] // multiplier
        per_channel = Transpose((0, 2, 1))(reshape_to(kernel, (channels, multiplier, window)))
        return reshape_to(per_channel, (channels * window, multiplier))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C · depth_multiplier, …)."""
        return self.add_bias_and_activate(
            builder, self.convolve_channels(builder, self.spatial_input(builder, x), "kernel")
        )


class SeparableConvolution(Depthwise, HasFilters):
    """Base of SeparableConv1D and SeparableConv2D."""

    pointwise_initializer: Initializer = GlorotUniform()
    """First values of `pointwise_kernel` (filters, channels · depth_multiplier, 1…)."""
    pointwise_regularizer: Regularizer | None = None
    """Penalty on `pointwise_kernel`, added to the loss."""
    pointwise_constraint: Constraint | None = None
    """Constraint on `pointwise_kernel`, applied after each step."""

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, filters, …)."""
        y = self.convolve_channels(builder, self.spatial_input(builder, x), "depthwise_kernel")
        ones = (1,) * self.rank
        shape = (self.filters, y.shape[1], *ones)
        kernel = builder.parameter_of(self, "pointwise_kernel", shape, "pointwise")
        return self.add_bias_and_activate(builder, Conv(Window.of(y.shape[2:], ones, ones, "valid"))(y, kernel))


@LAYERS.register
class DepthwiseConv1D(Kernel1D, DepthwiseConvolution):
    """Slide `depth_multiplier` learned kernels along each channel of a sequence separately.

    Input (N, C, L), output (N, C · depth_multiplier, OL) with OL as for Conv1D; the outputs of a channel are adjacent.
    """

    type: Literal["DepthwiseConv1D"] = "DepthwiseConv1D"

    samples: ClassVar = (
        Sample.of((2, 3, 8), kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 2, 7), kernel_size=2, depth_multiplier=2, dilation_rate=2, use_bias=False, activation="tanh"),
        Sample.of((2, 2, 5), kernel_size=3, padding="causal"),
    )


@LAYERS.register
class DepthwiseConv2D(Kernel2D, DepthwiseConvolution):
    """Slide `depth_multiplier` learned kernels over each channel of an image separately.

    Input (N, C, H, W), output (N, C · depth_multiplier, OH, OW) with OH as for Conv2D; the outputs of a channel are
    adjacent.
    """

    type: Literal["DepthwiseConv2D"] = "DepthwiseConv2D"

    samples: ClassVar = (
        Sample.of((2, 3, 7, 6), kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 2, 6, 7), kernel_size=(2, 3), depth_multiplier=2, dilation_rate=2, use_bias=False),
        Sample.of((1, 2, 4, 4), kernel_size=3, padding=[[1, 0], [2, 1]], activation="tanh"),
    )


@LAYERS.register
class SeparableConv1D(Kernel1D, SeparableConvolution):
    """Convolve each channel of a sequence separately, then mix the channels at each position.

    Input (N, C, L), output (N, filters, OL) with OL as for Conv1D: DepthwiseConv1D without a bias, then Conv1D with
    kernels of length 1.
    """

    type: Literal["SeparableConv1D"] = "SeparableConv1D"
    padding: Padding1D = "valid"
    """`valid`: none; `same`: ⌈length / stride⌉ outputs; or explicit zeros, e.g. 2 or [2, 0]."""

    samples: ClassVar = (
        Sample.of((2, 3, 8), filters=2, kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 2, 7), filters=3, kernel_size=2, depth_multiplier=2, use_bias=False, activation="tanh"),
        Sample.of((2, 2, 5), filters=2, kernel_size=3, padding=[2, 0]),
    )


@LAYERS.register
class SeparableConv2D(Kernel2D, SeparableConvolution):
    """Convolve each channel of an image separately, then mix the channels at each position.

    Input (N, C, H, W), output (N, filters, OH, OW) with OH as for Conv2D: DepthwiseConv2D without a bias, then Conv2D
    with kernels of size 1. Chollet 2017, arXiv:1610.02357.
    """

    type: Literal["SeparableConv2D"] = "SeparableConv2D"

    samples: ClassVar = (
        Sample.of((2, 3, 7, 6), filters=2, kernel_size=3, strides=2, padding="same"),
        Sample.of((1, 2, 6, 5), filters=3, kernel_size=2, depth_multiplier=2, dilation_rate=2, use_bias=False),
    )
