"""Conv1D, Conv2D and Conv3D, and the base classes of all convolution layers."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from netspec.graph.ops.convolution import Conv
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.window import Window
from netspec.graph.value import Value
from netspec.layers.activation.base import Activation, activate
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require
from netspec.layers.constraints import Constraint
from netspec.layers.initializers.base import Initializer, Zeros
from netspec.layers.initializers.variance_scaling import GlorotUniform
from netspec.layers.regularizers import Regularizer
from netspec.layers.spatial import (
    CausalPadding,
    ExplicitPadding,
    Padding,
    Padding3D,
    Size1D,
    Size2D,
    Size3D,
    require_spatial,
)
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import problem


class HasFilters(LayerSpec):
    """The field `filters`. This must be the last base class, so that the field comes first."""

    filters: PositiveInt
    """Number of output channels."""


class ConvBase(LayerSpec):
    """Base of layers that slide kernels over data of `rank` spatial axes, then add a bias and apply a function."""

    rank: ClassVar[int]

    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str | ExplicitPadding = "valid"
    dilation_rate: tuple[int, ...]
    activation: Activation | None = None
    """Function applied to the result."""
    use_bias: bool = True
    """Add a learned offset to each channel."""
    bias_initializer: Initializer = Zeros()
    """First values of `bias` (channels of the result)."""
    bias_regularizer: Regularizer | None = None
    """Penalty on `bias`, added to the loss."""
    bias_constraint: Constraint | None = None
    """Constraint on `bias`, applied after each step."""

    def spatial_input(self, builder: Builder, x: Value) -> Value:
        """The input as floats: (N, C, …) with `rank` spatial axes."""
        require_spatial(x, self.rank)
        return builder.floating(x)

    def window(self, x: Value) -> Window:
        """The window over the input `x`, which must be large enough for it."""
        window = Window.of(x.shape[2:], self.kernel_size, self.strides, self.padding, self.dilation_rate)
        window.out(x.shape[2:])
        return window

    def resolved_fields(self, *inputs: Value) -> dict[str, Any]:
        """The padding in elements."""
        return {"padding": self.window(inputs[0]).pads}

    def kernel_matrix(self, kernel: Value) -> Value:
        """kernel: (channels, …) → (…, channels): the last axis in Keras is the first here."""
        first, *rest = kernel.shape
        return Transpose((1, 0))(reshape_to(kernel, (first, prod(rest))))

    def add_bias_and_activate(self, builder: Builder, y: Value) -> Value:
        """`y` (N, channels, …) with its bias, and through the activation function."""
        if self.use_bias:
            channels = y.shape[1]
            bias = builder.parameter_of(self, "bias", (channels,))
            y = y + reshape_to(bias, (channels, *(1 for _ in y.shape[2:])))
        return activate(self.activation, y, axis=1)


class Kernel1D(ConvBase):
    """Fields of kernels with one spatial axis."""

    rank: ClassVar[int] = 1

    kernel_size: Size1D
    """Length of the kernels."""
    strides: Size1D = (1,)
    """Step of the kernel."""
    padding: CausalPadding = "valid"
    """`valid`: none; `same`: ⌈length / stride⌉ outputs; `causal`: zeros before the sequence, so that an output depends
    on no later element; or explicit zeros, e.g. 2 or [2, 0]."""
    dilation_rate: Size1D = (1,)
    """Distance between the elements of the kernel."""


class Kernel2D(ConvBase):
    """Fields of kernels with two spatial axes."""

    rank: ClassVar[int] = 2

    kernel_size: Size2D
    """Height and width of the kernels; a single number sets both."""
    strides: Size2D = (1, 1)
    """Step of the kernel along height and width."""
    padding: Padding = "valid"
    """`valid`: none; `same`: ⌈size / stride⌉ outputs; or explicit zeros, e.g. 2 or [[1, 1], [0, 2]]."""
    dilation_rate: Size2D = (1, 1)
    """Distance between the elements of the kernel."""


class Kernel3D(ConvBase):
    """Fields of kernels with three spatial axes."""

    rank: ClassVar[int] = 3

    kernel_size: Size3D
    """Depth, height and width of the kernels; a single number sets all."""
    strides: Size3D = (1, 1, 1)
    """Step of the kernel along depth, height and width."""
    padding: Padding3D = "valid"
    """`valid`: none; `same`: ⌈size / stride⌉ outputs; or explicit zeros, e.g. 1 or [[1, 1], [0, 2], [0, 0]]."""
    dilation_rate: Size3D = (1, 1, 1)
    """Distance between the elements of the kernel."""


class GroupedConvolution(ConvBase, HasFilters):
    """Base of convolutions with learned kernels over groups of channels."""

    groups: PositiveInt = 1
    """Number of groups that the channels are split into, each convolved separately."""
    kernel_initializer: Initializer = GlorotUniform()
    """First values of `kernel` (filters, channels / groups, sizes of the kernel)."""
    kernel_regularizer: Regularizer | None = None
    """Penalty on `kernel`, added to the loss."""
    kernel_constraint: Constraint | None = None
    """Constraint on `kernel`, applied after each step."""

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.filters % self.groups:
            raise problem(
                f"{self.filters} filters cannot be split into {self.groups} groups", field="groups",
                expected=f"a divisor of {self.filters}", got=str(self.groups),
            )  # fmt: skip
        return self

    def spatial_input(self, builder: Builder, x: Value) -> Value:
        """The input as floats: (N, C, …) with `rank` spatial axes, and channels that can be split into the groups."""
        x, channels = super().spatial_input(builder, x), x.shape[1]
        require(
            channels % self.groups == 0, f"{channels} input channels cannot be split into {self.groups} groups",
            expected=f"a multiple of {self.groups} channels", got=x.type,
        )  # fmt: skip
        return x


class ConvLayer(GroupedConvolution):
    """Base of Conv1D, Conv2D and Conv3D."""

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, filters, …)."""
        x = self.spatial_input(builder, x)
        window = self.window(x)
        shape = (self.filters, x.shape[1] // self.groups, *self.kernel_size)
        kernel = builder.parameter_of(self, "kernel", shape)
        return self.add_bias_and_activate(builder, Conv(window, self.groups)(x, kernel))


@LAYERS.register
class Conv1D(Kernel1D, ConvLayer):
    """Slide `filters` learned kernels along a sequence.

    Input (N, C, L), output (N, filters, OL) with OL = ⌊(L + padding - reach) / stride⌋ + 1 and reach = (kernel - 1) ·
    dilation + 1. As Keras's Conv1D, but channels-first: turn a sequence (N, T, features) into (N, features, T) with
    Permute.
    """

    type: Literal["Conv1D"] = "Conv1D"

    samples: ClassVar = (
        Sample.of((2, 3, 8), filters=4, kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 4, 7), filters=2, kernel_size=2, padding="causal", dilation_rate=2, groups=2, use_bias=False),
        Sample.of((2, 2, 6), filters=3, kernel_size=3, padding=[2, 0], activation="tanh"),
    )


@LAYERS.register
class Conv2D(Kernel2D, ConvLayer):
    """Slide `filters` learned kernels over an image.

    Input (N, C, H, W), output (N, filters, OH, OW) with OH = ⌊(H + padding - reach) / stride⌋ + 1 and reach = (kernel -
    1) · dilation + 1. As Keras's Conv2D, but channels-first.
    """

    type: Literal["Conv2D"] = "Conv2D"

    samples: ClassVar = (
        Sample.of((2, 3, 7, 6), filters=4, kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 4, 8, 9), filters=4, kernel_size=(3, 2), groups=2, use_bias=False, activation="tanh"),
        Sample.of((1, 2, 9, 8), filters=3, kernel_size=3, dilation_rate=2, padding=[[1, 0], [2, 1]]),
    )


@LAYERS.register
class Conv3D(Kernel3D, ConvLayer):
    """Slide `filters` learned kernels through a volume, or over the frames of a video.

    Input (N, C, D, H, W), output (N, filters, OD, OH, OW) with OD = ⌊(D + padding - reach) / stride⌋ + 1 and reach =
    (kernel - 1) · dilation + 1. As Keras's Conv3D, but channels-first.
    """

    type: Literal["Conv3D"] = "Conv3D"

    samples: ClassVar = (
        Sample.of((2, 2, 4, 5, 3), filters=3, kernel_size=2, strides=(1, 2, 1), padding="same"),
        Sample.of((1, 4, 4, 4, 5), filters=2, kernel_size=(2, 1, 2), groups=2, dilation_rate=2, use_bias=False),
        Sample.of((1, 1, 3, 3, 4), filters=2, kernel_size=3, padding=[[1, 0], [0, 0], [1, 1]], activation="tanh"),
    )
