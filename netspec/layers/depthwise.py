"""Depthwise and separable convolution: each channel by kernels of its own; then all channels mixed at each place."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Literal

from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import PositiveInt
from netspec.layers.constraints import Constraint
from netspec.layers.convolution import Conv, Convolving, Filtered
from netspec.layers.initializers import GlorotUniform, Initializer
from netspec.layers.regularizers import Regularizer
from netspec.layers.sizes import Pair, Single
from netspec.layers.window import CausalPadding, Padding, Padding1D, Window
from netspec.schema.kinds import LAYERS


class Depthwise(Convolving):
    """Base of layers that convolve each channel on its own."""

    depth_multiplier: PositiveInt = 1
    """how many kernels each channel has"""
    depthwise_initializer: Initializer = GlorotUniform()
    """first values of the depthwise kernel (channels · depth_multiplier, 1, sizes of the kernel)"""
    depthwise_regularizer: Regularizer | None = None
    """penalty on the depthwise kernel, added to the loss"""
    depthwise_constraint: Constraint | None = None
    """what the depthwise kernel is projected on after each step"""

    def apart(self, net: Builder, x: Value, name: str) -> Value:
        """Each channel of `x` convolved with its kernels, of the parameter called `name`."""
        channels, window = x.shape[1], self.window(x)
        shape = (channels * self.depth_multiplier, 1, *self.kernel_size)
        kernel = net.parameter(
            name, shape, self.depthwise_initializer, self.depthwise_regularizer, self.depthwise_constraint
        )
        return Conv(window, channels)(x, kernel)


class DepthwiseConvolution(Depthwise):
    """Base of DepthwiseConv1D and DepthwiseConv2D."""

    def kernel_matrix(self, kernel: Value) -> Value:
        """kernel: (C · depth_multiplier, 1, …) → (C · …, depth_multiplier)."""
        each, window = self.depth_multiplier, prod(kernel.shape[2:])
        channels = kernel.shape[0] // each
        apart = Transpose((0, 2, 1))(reshape_to(kernel, (channels, each, window)))
        return reshape_to(apart, (channels * window, each))

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C · depth_multiplier, …)."""
        return self.finished(net, self.apart(net, self.data(net, x), "kernel"))


class SeparableConvolution(Depthwise, Filtered):
    """Base of SeparableConv1D and SeparableConv2D."""

    pointwise_initializer: Initializer = GlorotUniform()
    """first values of `pointwise_kernel` (filters, channels · depth_multiplier, 1…)"""
    pointwise_regularizer: Regularizer | None = None
    """penalty on `pointwise_kernel`, added to the loss"""
    pointwise_constraint: Constraint | None = None
    """what `pointwise_kernel` is projected on after each step"""

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, filters, …)."""
        y = self.apart(net, self.data(net, x), "depthwise_kernel")
        ones = (1,) * self.rank
        shape = (self.filters, y.shape[1], *ones)
        kernel = net.parameter(
            "pointwise_kernel", shape, self.pointwise_initializer, self.pointwise_regularizer, self.pointwise_constraint
        )
        return self.finished(net, Conv(Window.of(y.shape[2:], ones, ones, "valid"))(y, kernel))


@LAYERS.register
class DepthwiseConv1D(DepthwiseConvolution):
    """Slide `depth_multiplier` learned kernels along each channel of a sequence, on its own.

    Input (N, C, L), output (N, C · depth_multiplier, OL) with OL as for Conv1D; the results of a channel lie together.
    """

    rank: ClassVar[int] = 1

    type: Literal["DepthwiseConv1D"] = "DepthwiseConv1D"
    kernel_size: Single
    """length of the kernels"""
    strides: Single = (1,)
    """step of the kernel"""
    padding: CausalPadding = "valid"
    """`valid`: none; `same`: ⌈length / stride⌉ outputs; `causal`: zeros before the sequence; or explicit zeros, e.g. 2
    or [2, 0]"""
    dilation_rate: Single = (1,)
    """distance between the elements of the kernel"""

    samples: ClassVar = (
        Sample.of((2, 3, 8), kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 2, 7), kernel_size=2, depth_multiplier=2, dilation_rate=2, use_bias=False, activation="tanh"),
        Sample.of((2, 2, 5), kernel_size=3, padding="causal"),
    )


@LAYERS.register
class DepthwiseConv2D(DepthwiseConvolution):
    """Slide `depth_multiplier` learned kernels over each channel of an image, on its own.

    Input (N, C, H, W), output (N, C · depth_multiplier, OH, OW) with OH as for Conv2D; the results of a channel lie
    together.
    """

    rank: ClassVar[int] = 2

    type: Literal["DepthwiseConv2D"] = "DepthwiseConv2D"
    kernel_size: Pair
    """height and width of the kernels; one number for both"""
    strides: Pair = (1, 1)
    """step of the kernel along height and width"""
    padding: Padding = "valid"
    """`valid`: none; `same`: ⌈size / stride⌉ outputs; or explicit zeros, e.g. 2 or [[1, 1], [0, 2]]"""
    dilation_rate: Pair = (1, 1)
    """distance between the elements of the kernel"""

    samples: ClassVar = (
        Sample.of((2, 3, 7, 6), kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 2, 6, 7), kernel_size=(2, 3), depth_multiplier=2, dilation_rate=2, use_bias=False),
        Sample.of((1, 2, 4, 4), kernel_size=3, padding=[[1, 0], [2, 1]], activation="tanh"),
    )


@LAYERS.register
class SeparableConv1D(SeparableConvolution):
    """Slide kernels along each channel of a sequence on its own, then mix the channels at each place.

    Input (N, C, L), output (N, filters, OL) with OL as for Conv1D: DepthwiseConv1D without a bias, then Conv1D with
    kernels of length 1.
    """

    rank: ClassVar[int] = 1

    type: Literal["SeparableConv1D"] = "SeparableConv1D"
    kernel_size: Single
    """length of the kernels of the first step"""
    strides: Single = (1,)
    """step of the kernel"""
    padding: Padding1D = "valid"
    """`valid`: none; `same`: ⌈length / stride⌉ outputs; or explicit zeros, e.g. 2 or [2, 0]"""
    dilation_rate: Single = (1,)
    """distance between the elements of the kernel"""

    samples: ClassVar = (
        Sample.of((2, 3, 8), filters=2, kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 2, 7), filters=3, kernel_size=2, depth_multiplier=2, use_bias=False, activation="tanh"),
        Sample.of((2, 2, 5), filters=2, kernel_size=3, padding=[2, 0]),
    )


@LAYERS.register
class SeparableConv2D(SeparableConvolution):
    """Slide kernels over each channel of an image on its own, then mix the channels at each place.

    Input (N, C, H, W), output (N, filters, OH, OW) with OH as for Conv2D: DepthwiseConv2D without a bias, then Conv2D
    with kernels of size 1. Chollet 2017, arXiv:1610.02357.
    """

    rank: ClassVar[int] = 2

    type: Literal["SeparableConv2D"] = "SeparableConv2D"
    kernel_size: Pair
    """height and width of the kernels of the first step; one number for both"""
    strides: Pair = (1, 1)
    """step of the kernel along height and width"""
    padding: Padding = "valid"
    """`valid`: none; `same`: ⌈size / stride⌉ outputs; or explicit zeros, e.g. 2 or [[1, 1], [0, 2]]"""
    dilation_rate: Pair = (1, 1)
    """distance between the elements of the kernel"""

    samples: ClassVar = (
        Sample.of((2, 3, 7, 6), filters=2, kernel_size=3, strides=2, padding="same"),
        Sample.of((1, 2, 6, 5), filters=3, kernel_size=2, depth_multiplier=2, dilation_rate=2, use_bias=False),
    )
