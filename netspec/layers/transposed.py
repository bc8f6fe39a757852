"""Transposed convolution: the op ConvTranspose, and the layers Conv1DTranspose, Conv2DTranspose, Conv3DTranspose.

A transposed convolution is the gradient of a convolution by its input: each number of the input is spread over a
window of the output. Dumoulin and Visin 2016, arXiv:1603.07285.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from netspec.graph.onnx_map import OnnxMap, integer, ints, pads
from netspec.graph.op import Traits
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import PositiveInt, need
from netspec.layers.constraints import Constraint
from netspec.layers.convolution import Conv, ConvInputGrad, Convolving, Filtered
from netspec.layers.initializers import GlorotUniform, Initializer
from netspec.layers.regularizers import Regularizer
from netspec.layers.sizes import Pair, PairFrom0, Single, SingleFrom0, Triple, TripleFrom0
from netspec.layers.window import Padding, Padding1D, Padding3D, Window
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import problem


class ConvTranspose(ConvInputGrad):
    """The transposed convolution, of type `x`: what `conv` gives of `x` has the shape of the operand."""

    traits = Traits(anchor=True)
    onnx = OnnxMap(
        "ConvTranspose",
        kernel_shape=ints("conv.window.size"),
        strides=ints("conv.window.strides"),
        pads=pads("conv.window.pads"),
        dilations=ints("conv.window.dilation"),
        output_padding=ints("rest"),
        group=integer("conv.groups"),
    )

    @property
    def rest(self) -> tuple[int, ...]:
        """Elements at the end of each axis of the result that no step of the window reaches: fewer than a stride."""
        window = self.conv.window
        return tuple(
            (size + sum(pads) - (length - 1) * dilation - 1) % stride
            for size, pads, length, dilation, stride in zip(
                self.x.shape[2:], window.pads, window.size, window.dilation, window.strides, strict=True
            )
        )

    def infer(self, z: TensorType, w: TensorType) -> TensorType:
        """z: (N, C, …), w: (C, filters/groups, k…) → (N, filters, out…)."""
        made = self.conv.infer(self.x.with_dtype(z.dtype), w)
        self.check(made == z, "the operand is not what the convolution would give", expected=str(made), got=z)
        return self.x.with_dtype(z.dtype)


class TransposedConvolution(Convolving, Filtered):
    """Base of Conv1DTranspose, Conv2DTranspose and Conv3DTranspose."""

    output_padding: tuple[int, ...] | None = None
    groups: PositiveInt = 1
    """the channels are split into so many groups, each convolved on its own"""
    kernel_initializer: Initializer = GlorotUniform()
    """first values of `kernel` (channels, filters / groups, sizes of the kernel)"""
    kernel_regularizer: Regularizer | None = None
    """penalty on `kernel`, added to the loss"""
    kernel_constraint: Constraint | None = None
    """what `kernel` is projected on after each step"""

    def settled(self, *inputs: Value) -> dict[str, Any]:
        """Nothing: of this padding the size of the result depends too."""
        return {}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.filters % self.groups:
            raise problem(
                f"{self.filters} filters cannot be split into {self.groups} groups", field="groups",
                expected=f"a divisor of {self.filters}", got=str(self.groups),
            )  # fmt: skip
        more = self.output_padding or ()
        if any(extra >= stride for extra, stride in zip(more, self.strides, strict=False)):
            raise problem(
                "the output padding is not smaller than the stride", field="output_padding",
                expected=f"less than {list(self.strides)}", got=str(list(more)),
            )  # fmt: skip
        return self

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, filters, …)."""
        x = self.data(net, x)
        channels, places = x.shape[1], x.shape[2:]
        need(
            channels % self.groups == 0, f"{channels} input channels cannot be split into {self.groups} groups",
            expected=f"a multiple of {self.groups} channels", got=x.type,
        )  # fmt: skip
        axes = [self.axis_of(axis, size) for axis, size in enumerate(places)]
        need(
            all(size > 0 for _, size in axes), "the padding takes away all of the output",
            expected="less padding, or a larger input", got=x.type,
        )  # fmt: skip
        window = Window(self.kernel_size, self.strides, tuple(sides for sides, _ in axes), self.dilation_rate)
        made = x.type.with_shape(x.shape[0], self.filters, *(size for _, size in axes))
        shape = (channels, self.filters // self.groups, *self.kernel_size)
        kernel = net.parameter(
            "kernel", shape, self.kernel_initializer, self.kernel_regularizer, self.kernel_constraint
        )
        return self.finished(net, ConvTranspose(Conv(window, self.groups), made)(x, kernel))

    def axis_of(self, axis: int, size: int) -> tuple[tuple[int, int], int]:
        """How much of the full result is cut off before and after along an axis, and what remains of it."""
        stride, extra = self.strides[axis], None if self.output_padding is None else self.output_padding[axis]
        reach = (self.kernel_size[axis] - 1) * self.dilation_rate[axis] + 1
        full = (size - 1) * stride + reach
        if self.padding == "valid":
            return (0, 0), full + (max(0, stride - reach) if extra is None else extra)
        if self.padding == "same":
            kept = stride + reach - 2 if extra is None else reach + reach % 2 - 2 + extra
            before = min(kept - kept // 2, reach - 1)
            after = kept - before
            return (reach - 1 - before, max(0, reach - 1 - after)), full - 2 * (reach - 1) + kept
        assert not isinstance(self.padding, str)
        before, after = self.padding[axis]
        return (before, after), full - before - after + (extra or 0)


@LAYERS.register
class Conv1DTranspose(TransposedConvolution):
    """Spread each number of a sequence over a window, by learned kernels: a convolution backwards.

    Input (N, C, L), output (N, filters, OL): with `valid` padding OL = (L - 1) · stride + max(reach, stride) where
    reach = (kernel - 1) · dilation + 1, with `same` OL = L · stride. With `output_padding` p it is
    (L - 1) · stride + reach + p, and (L - 1) · stride + (1 if reach is odd else 0) + p.
    """

    rank: ClassVar[int] = 1

    type: Literal["Conv1DTranspose"] = "Conv1DTranspose"
    kernel_size: Single
    """length of the kernels"""
    strides: Single = (1,)
    """step of the window in the output"""
    padding: Padding1D = "valid"
    """`valid`: none; `same`: length · stride outputs; or how much is cut off, e.g. 1 or [1, 0]"""
    output_padding: SingleFrom0 | None = None
    """elements added at the end, fewer than `strides`; default: as many as make the length told above (0 where
    `padding` is explicit)"""
    dilation_rate: Single = (1,)
    """distance between the elements of the kernel"""

    samples: ClassVar = (
        Sample.of((2, 3, 4), filters=2, kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 2, 4), filters=3, kernel_size=2, strides=3, activation="tanh"),
        Sample.of((1, 2, 5), filters=2, kernel_size=3, dilation_rate=2, padding=[1, 2], use_bias=False),
        Sample.of((2, 2, 3), filters=2, kernel_size=3, strides=2, padding="same", output_padding=1),
    )


@LAYERS.register
class Conv2DTranspose(TransposedConvolution):
    """Spread each number of an image over a window, by learned kernels: a convolution backwards.

    Input (N, C, H, W), output (N, filters, OH, OW): with `valid` padding OH = (H - 1) · stride + max(reach, stride)
    where reach = (kernel - 1) · dilation + 1, with `same` OH = H · stride. With `output_padding` p it is
    (H - 1) · stride + reach + p, and (H - 1) · stride + (1 if reach is odd else 0) + p.
    """

    rank: ClassVar[int] = 2

    type: Literal["Conv2DTranspose"] = "Conv2DTranspose"
    kernel_size: Pair
    """height and width of the kernels; one number for both"""
    strides: Pair = (1, 1)
    """step of the window along height and width of the output"""
    padding: Padding = "valid"
    """`valid`: none; `same`: size · stride outputs; or how much is cut off, e.g. 1 or [[1, 1], [0, 2]]"""
    output_padding: PairFrom0 | None = None
    """rows and columns added at the end, fewer than `strides`; default: as many as make the size told above (0 where
    `padding` is explicit)"""
    dilation_rate: Pair = (1, 1)
    """distance between the elements of the kernel"""

    samples: ClassVar = (
        Sample.of((2, 3, 4, 3), filters=2, kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 2, 3, 4), filters=3, kernel_size=(2, 3), strides=(3, 2), output_padding=1, activation="tanh"),
        Sample.of((1, 2, 3, 4), filters=2, kernel_size=4, strides=2, padding="same", output_padding=(1, 0)),
        Sample.of((1, 4, 4, 3), filters=2, kernel_size=2, dilation_rate=2, padding=1, groups=2, use_bias=False),
    )


@LAYERS.register
class Conv3DTranspose(TransposedConvolution):
    """Spread each number of a volume over a window, by learned kernels: a convolution backwards.

    Input (N, C, D, H, W), output (N, filters, OD, OH, OW) with sizes as for Conv2DTranspose.
    """

    rank: ClassVar[int] = 3

    type: Literal["Conv3DTranspose"] = "Conv3DTranspose"
    kernel_size: Triple
    """depth, height and width of the kernels; one number for all"""
    strides: Triple = (1, 1, 1)
    """step of the window along depth, height and width of the output"""
    padding: Padding3D = "valid"
    """`valid`: none; `same`: size · stride outputs; or how much is cut off, e.g. 1 or [[1, 1], [0, 2], [0, 0]]"""
    output_padding: TripleFrom0 | None = None
    """elements added at the end of each axis, fewer than `strides`; default: as many as make the size told above (0
    where `padding` is explicit)"""
    dilation_rate: Triple = (1, 1, 1)
    """distance between the elements of the kernel"""

    samples: ClassVar = (
        Sample.of((1, 2, 2, 3, 2), filters=2, kernel_size=2, strides=(1, 2, 2), padding="same"),
        Sample.of((1, 2, 2, 2, 3), filters=2, kernel_size=(1, 2, 2), strides=2, use_bias=False, activation="tanh"),
        Sample.of((1, 1, 2, 1, 2), filters=1, kernel_size=2, strides=2, output_padding=1),
    )
