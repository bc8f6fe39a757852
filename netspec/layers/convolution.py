"""Convolution: the ops for any number of spatial axes, and the layers Conv1D, Conv2D, Conv3D."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from netspec.graph.onnx_map import GRADIENT, OnnxForm, OnnxMap, integer, ints, pads
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.ops.reduce import along, reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.layers.activations import Activation, activate
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need
from netspec.layers.constraints import Constraint
from netspec.layers.initializers import GlorotUniform, Initializer, Zeros
from netspec.layers.regularizers import Regularizer
from netspec.layers.sizes import Pair, Single, Triple, need_spatial
from netspec.layers.window import CausalPadding, Explicit, Padding, Padding3D, Window
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import problem


def _columns(xp: Xp, window: Window, groups: int, x: Array, out: tuple[int, ...]) -> Array:
    """im2col: (N, C, …) → (N, groups, C/groups · window, places of the output)."""
    views = window.views(xp, window.padded(xp, x), out)
    return views.reshape(x.shape[0], groups, x.shape[1] // groups * prod(window.size), prod(out))


@dataclass(frozen=True)
class Conv(Op):
    """y[n, m, i…] = Σ_{c, k…} x[n, c, i·stride + k·dilation - pad, …] · w[m, c, k…], within each group of channels."""

    window: Window
    groups: int = 1
    traits = Traits(anchor=True, contracts=True)
    onnx = OnnxMap(
        "Conv",
        kernel_shape=ints("window.size"),
        strides=ints("window.strides"),
        pads=pads("window.pads"),
        dilations=ints("window.dilation"),
        group=integer("groups"),
    )

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        """x: (N, C, …), w: (M, C/groups, k…) → (N, M, out…)."""
        rank = len(self.window.size) + 2
        self.check(x.rank == rank, f"the input must have {rank} axes", expected="(batch, channels, sizes…)", got=x)
        channels, filters = x.shape[1], w.shape[0]
        for what, number in (("input channels", channels), ("filters", filters)):
            self.check(
                number % self.groups == 0, f"{number} {what} cannot be split into {self.groups} groups",
                expected=f"a multiple of {self.groups}", got=number,
            )  # fmt: skip
        fits = w.shape[1] * self.groups == channels
        self.check(
            fits,
            "the kernel is for another number of channels",
            expected=f"{w.shape[1] * self.groups} input channels",
            got=x,
        )
        return x.with_shape(x.shape[0], filters, *self.window.out(x.shape[2:]))

    def forward(self, xp: Xp, x: Array, w: Array) -> Array:
        out = self.window.out(x.shape[2:])
        columns = _columns(xp, self.window, self.groups, x, out)
        y = xp.matmul(w.reshape(self.groups, w.shape[0] // self.groups, -1), columns)
        return y.reshape(x.shape[0], w.shape[0], *out)

    def vjp(self, y: Value, dy: Value) -> Grads:
        x, w = y.inputs
        return ConvInputGrad(self, x.type)(dy, w), ConvWeightGrad(self, w.type)(dy, x)

    def scaled(self, factor: Value, x: Value, w: Value) -> Sequence[Value] | None:
        filters = along(factor, len(x.shape), 1, 0, len(w.shape))
        return None if filters is None else (x, w * filters)

    def flops(self, x: TensorType, w: TensorType) -> int:
        return 2 * self.infer(x, w).size * prod(w.shape[1:])


@dataclass(frozen=True)
class ConvInputGrad(Op):
    """Gradient of a convolution by its input, of type `x`."""

    conv: Conv
    x: TensorType
    traits = Traits(contracts=True)
    onnx: ClassVar[OnnxForm | None] = GRADIENT

    def infer(self, dy: TensorType, w: TensorType) -> TensorType:
        return self.x.with_dtype(dy.dtype)

    def forward(self, xp: Xp, dy: Array, w: Array) -> Array:
        window, groups, out = self.conv.window, self.conv.groups, dy.shape[2:]
        kernel = w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)
        columns = xp.matmul(kernel, dy.reshape(dy.shape[0], groups, w.shape[0] // groups, -1))
        columns = columns.reshape(*self.x.shape[:2], *window.size, *out)
        dx = xp.zeros(window.padded_shape(self.x.shape), dy.dtype)
        for place, visited in window.offsets(out):
            dx[visited] += columns[(slice(None), slice(None), *place)]
        return window.unpadded(dx)

    def vjp(self, y: Value, dy: Value) -> Grads:
        dz, w = y.inputs
        return self.conv(dy, w), ConvWeightGrad(self.conv, w.type)(dz, dy)

    def flops(self, dy: TensorType, w: TensorType) -> int:
        return 2 * dy.size * prod(w.shape[1:])


@dataclass(frozen=True)
class ConvWeightGrad(Op):
    """Gradient of a convolution by its kernel, of type `w`."""

    conv: Conv
    w: TensorType
    traits = Traits(contracts=True)
    onnx = GRADIENT

    def infer(self, dy: TensorType, x: TensorType) -> TensorType:
        return self.w.with_dtype(dy.dtype)

    def forward(self, xp: Xp, dy: Array, x: Array) -> Array:
        groups = self.conv.groups
        columns = _columns(xp, self.conv.window, groups, x, dy.shape[2:])
        by_group = dy.reshape(dy.shape[0], groups, dy.shape[1] // groups, -1)
        return xp.matmul(by_group, columns.swapaxes(2, 3)).sum(axis=0).reshape(self.w.shape)

    def vjp(self, y: Value, dy: Value) -> Grads:
        dz, x = y.inputs
        return self.conv(x, dy), ConvInputGrad(self.conv, x.type)(dz, dy)

    def flops(self, dy: TensorType, x: TensorType) -> int:
        return 2 * dy.size * prod(self.w.shape[1:])


class Filtered(LayerSpec):
    """The field of layers that are told how many channels to make; the last base of such, so that it comes first."""

    filters: PositiveInt
    """number of output channels"""


class Convolving(LayerSpec):
    """Base of layers that slide kernels over data of `rank` spatial axes, then add a bias and apply a function."""

    rank: ClassVar[int]

    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str | Explicit = "valid"
    dilation_rate: tuple[int, ...]
    activation: Activation | None = None
    """function applied to the result"""
    use_bias: bool = True
    """add a learned number to each channel"""
    bias_initializer: Initializer = Zeros()
    """first values of `bias` (channels of the result)"""
    bias_regularizer: Regularizer | None = None
    """penalty on `bias`, added to the loss"""
    bias_constraint: Constraint | None = None
    """what `bias` is projected on after each step"""

    def data(self, net: Builder, x: Value) -> Value:
        """The input as floats: (N, C, …) with `rank` spatial axes."""
        need_spatial(x, self.rank)
        return net.floating(x)

    def window(self, x: Value) -> Window:
        """The window over the input `x`, which must be large enough for it."""
        window = Window.of(x.shape[2:], self.kernel_size, self.strides, self.padding, self.dilation_rate)
        window.out(x.shape[2:])
        return window

    def settled(self, *inputs: Value) -> dict[str, Any]:
        """The padding."""
        return {"padding": self.window(inputs[0]).pads}

    def kernel_matrix(self, kernel: Value) -> Value:
        """kernel: (channels, …) → (…, channels): Keras's last axis is the first here."""
        first, *rest = kernel.shape
        return Transpose((1, 0))(reshape_to(kernel, (first, prod(rest))))

    def finished(self, net: Builder, y: Value) -> Value:
        """`y` (N, channels, …) with its bias, and through the activation function."""
        if self.use_bias:
            channels = y.shape[1]
            bias = net.parameter(
                "bias", (channels,), self.bias_initializer, self.bias_regularizer, self.bias_constraint
            )
            y = y + reshape_to(bias, (channels, *(1 for _ in y.shape[2:])))
        return activate(self.activation, y, axis=1)


class Convolution(Convolving, Filtered):
    """Base of Conv1D, Conv2D and Conv3D."""

    groups: PositiveInt = 1
    """the channels are split into so many groups, each convolved on its own"""
    kernel_initializer: Initializer = GlorotUniform()
    """first values of `kernel` (filters, channels / groups, sizes of the kernel)"""
    kernel_regularizer: Regularizer | None = None
    """penalty on `kernel`, added to the loss"""
    kernel_constraint: Constraint | None = None
    """what `kernel` is projected on after each step"""

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.filters % self.groups:
            raise problem(
                f"{self.filters} filters cannot be split into {self.groups} groups", field="groups",
                expected=f"a divisor of {self.filters}", got=str(self.groups),
            )  # fmt: skip
        return self

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, filters, …)."""
        x = self.data(net, x)
        channels = x.shape[1]
        need(
            channels % self.groups == 0, f"{channels} input channels cannot be split into {self.groups} groups",
            expected=f"a multiple of {self.groups} channels", got=x.type,
        )  # fmt: skip
        window = self.window(x)
        shape = (self.filters, channels // self.groups, *self.kernel_size)
        kernel = net.parameter(
            "kernel", shape, self.kernel_initializer, self.kernel_regularizer, self.kernel_constraint
        )
        return self.finished(net, Conv(window, self.groups)(x, kernel))


@LAYERS.register
class Conv1D(Convolution):
    """Slide `filters` learned kernels along a sequence.

    Input (N, C, L), output (N, filters, OL) with OL = ⌊(L + padding - reach) / stride⌋ + 1, where
    reach = (kernel - 1) · dilation + 1. Keras's Conv1D; data is channels-first: of a sequence (N, T, features) make
    (N, features, T) with Permute.
    """

    rank: ClassVar[int] = 1

    type: Literal["Conv1D"] = "Conv1D"
    kernel_size: Single
    """length of the kernels"""
    strides: Single = (1,)
    """step of the kernel"""
    padding: CausalPadding = "valid"
    """`valid`: none; `same`: ⌈length / stride⌉ outputs; `causal`: zeros before the sequence, so that an output sees
    nothing that comes after it; or explicit zeros, e.g. 2 or [2, 0]"""
    dilation_rate: Single = (1,)
    """distance between the elements of the kernel"""

    samples: ClassVar = (
        Sample.of((2, 3, 8), filters=4, kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 4, 7), filters=2, kernel_size=2, padding="causal", dilation_rate=2, groups=2, use_bias=False),
        Sample.of((2, 2, 6), filters=3, kernel_size=3, padding=[2, 0], activation="tanh"),
    )


@LAYERS.register
class Conv2D(Convolution):
    """Slide `filters` learned kernels over an image.

    Input (N, C, H, W), output (N, filters, OH, OW) with OH = ⌊(H + padding - reach) / stride⌋ + 1, where
    reach = (kernel - 1) · dilation + 1. Keras's Conv2D; data is channels-first.
    """

    rank: ClassVar[int] = 2

    type: Literal["Conv2D"] = "Conv2D"
    kernel_size: Pair
    """height and width of the kernels; one number for both"""
    strides: Pair = (1, 1)
    """step of the kernel along height and width"""
    padding: Padding = "valid"
    """`valid`: none; `same`: ⌈size / stride⌉ outputs; or explicit zeros, e.g. 2 or [[1, 1], [0, 2]]"""
    dilation_rate: Pair = (1, 1)
    """distance between the elements of the kernel"""

    samples: ClassVar = (
        Sample.of((2, 3, 7, 6), filters=4, kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 4, 8, 9), filters=4, kernel_size=(3, 2), groups=2, use_bias=False, activation="tanh"),
        Sample.of((1, 2, 9, 8), filters=3, kernel_size=3, dilation_rate=2, padding=[[1, 0], [2, 1]]),
    )


@LAYERS.register
class Conv3D(Convolution):
    """Slide `filters` learned kernels through a volume, or over the frames of a film.

    Input (N, C, D, H, W), output (N, filters, OD, OH, OW) with OD = ⌊(D + padding - reach) / stride⌋ + 1, where
    reach = (kernel - 1) · dilation + 1. Keras's Conv3D; data is channels-first.
    """

    rank: ClassVar[int] = 3

    type: Literal["Conv3D"] = "Conv3D"
    kernel_size: Triple
    """depth, height and width of the kernels; one number for all"""
    strides: Triple = (1, 1, 1)
    """step of the kernel along depth, height and width"""
    padding: Padding3D = "valid"
    """`valid`: none; `same`: ⌈size / stride⌉ outputs; or explicit zeros, e.g. 1 or [[1, 1], [0, 2], [0, 0]]"""
    dilation_rate: Triple = (1, 1, 1)
    """distance between the elements of the kernel"""

    samples: ClassVar = (
        Sample.of((2, 2, 4, 5, 3), filters=3, kernel_size=2, strides=(1, 2, 1), padding="same"),
        Sample.of((1, 4, 4, 4, 5), filters=2, kernel_size=(2, 1, 2), groups=2, dilation_rate=2, use_bias=False),
        Sample.of((1, 1, 3, 3, 4), filters=2, kernel_size=3, padding=[[1, 0], [0, 0], [1, 1]], activation="tanh"),
    )
