"""Transposed convolution: Conv1DTranspose, Conv2DTranspose, Conv3DTranspose.

A transposed convolution is the gradient of a convolution with respect to its input: each element of the input is spread
over a window of the output. Dumoulin and Visin 2016, arXiv:1603.07285.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from netspec.graph.ops.convolution import Conv, ConvTranspose
from netspec.graph.ops.window import Window
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import require
from netspec.layers.convolution.conv import GroupedConvolution, Kernel1D, Kernel2D, Kernel3D
from netspec.layers.initializers.base import Initializer
from netspec.layers.initializers.variance_scaling import GlorotUniform
from netspec.layers.spatial import (
    Offset1D,
    Offset2D,
    Offset3D,
    Padding,
    Padding1D,
    Padding3D,
    Size1D,
    Size2D,
    Size3D,
)
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import problem


class TransposedConvolution(GroupedConvolution):
    """Base of Conv1DTranspose, Conv2DTranspose and Conv3DTranspose."""

    output_padding: tuple[int, ...] | None = None
    kernel_initializer: Initializer = GlorotUniform()
    """First values of `kernel` (channels, filters / groups, sizes of the kernel)."""

    def resolved_fields(self, *inputs: Value) -> dict[str, Any]:
        """Return no padding, because `padding` also determines the output size, which explicit padding would change."""
        return {}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        more = self.output_padding or ()
        if any(extra >= stride for extra, stride in zip(more, self.strides, strict=False)):
            raise problem(
                "`output_padding` must be smaller than `strides`", field="output_padding",
                expected=f"less than {list(self.strides)}", got=str(list(more)),
            )  # fmt: skip
        return self

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, filters, …)."""
        x = self.spatial_input(builder, x)
        channels, spatial = x.shape[1], x.shape[2:]
        axes = [self.axis_of(axis, size) for axis, size in enumerate(spatial)]
        require(
            all(size > 0 for _, size in axes), "the padding removes the whole output",
            expected="less padding, or a larger input", got=x.type,
        )  # fmt: skip
        window = Window(self.kernel_size, self.strides, tuple(sides for sides, _ in axes), self.dilation_rate)
        result_type = x.type.with_shape(x.shape[0], self.filters, *(size for _, size in axes))
        shape = (channels, self.filters // self.groups, *self.kernel_size)
        kernel = builder.parameter_of(self, "kernel", shape)
        return self.add_bias_and_activate(builder, ConvTranspose(Conv(window, self.groups), result_type)(x, kernel))

    def axis_of(self, axis: int, size: int) -> tuple[tuple[int, int], int]:
        """((before, after), size): elements cut off the full result at both ends of an axis, and the remaining size."""
        stride, extra = self.strides[axis], None if self.output_padding is None else self.output_padding[axis]
        reach = (self.kernel_size[axis] - 1) * self.dilation_rate[axis] + 1
        full = (size - 1) * stride + reach
        if self.padding == "valid":
            return (0, 0), full + (max(0, stride - reach) if extra is None else extra)
        if self.padding == "same":
            margin = stride + reach - 2 if extra is None else reach + reach % 2 - 2 + extra
            before = min(margin - margin // 2, reach - 1)
            after = margin - before
            return (reach - 1 - before, max(0, reach - 1 - after)), full - 2 * (reach - 1) + margin
        assert not isinstance(self.padding, str)
        before, after = self.padding[axis]
        return (before, after), full - before - after + (extra or 0)


@LAYERS.register
class Conv1DTranspose(Kernel1D, TransposedConvolution):
    """Spread each element of a sequence over a window by learned kernels: the gradient of a convolution.

    Input (N, C, L), output (N, filters, OL): with `valid` padding OL = (L - 1) · stride + max(reach, stride) where
    reach = (kernel - 1) · dilation + 1, with `same` OL = L · stride. With `output_padding` p it is (L - 1) · stride +
    reach + p, and (L - 1) · stride + (1 if reach is odd else 0) + p.
    """

    type: Literal["Conv1DTranspose"] = "Conv1DTranspose"
    strides: Size1D = (1,)
    """Step of the window in the output."""
    padding: Padding1D = "valid"
    """`valid`: none; `same`: length · stride outputs; or how much is cut off, e.g. 1 or [1, 0]."""
    output_padding: Offset1D | None = None
    """Elements added at the end, fewer than `strides`; default: as many as the length given above needs (0 if `padding`
    is explicit)."""

    samples: ClassVar = (
        Sample.of((2, 3, 4), filters=2, kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 2, 4), filters=3, kernel_size=2, strides=3, activation="tanh"),
        Sample.of((1, 2, 5), filters=2, kernel_size=3, dilation_rate=2, padding=[1, 2], use_bias=False),
        Sample.of((2, 2, 3), filters=2, kernel_size=3, strides=2, padding="same", output_padding=1),
    )


@LAYERS.register
class Conv2DTranspose(Kernel2D, TransposedConvolution):
    """Spread each element of an image over a window by learned kernels: the gradient of a convolution.

    Input (N, C, H, W), output (N, filters, OH, OW): with `valid` padding OH = (H - 1) · stride + max(reach, stride)
    where reach = (kernel - 1) · dilation + 1, with `same` OH = H · stride. With `output_padding` p it is (H - 1) ·
    stride + reach + p, and (H - 1) · stride + (1 if reach is odd else 0) + p.
    """

    type: Literal["Conv2DTranspose"] = "Conv2DTranspose"
    strides: Size2D = (1, 1)
    """Step of the window along height and width of the output."""
    padding: Padding = "valid"
    """`valid`: none; `same`: size · stride outputs; or how much is cut off, e.g. 1 or [[1, 1], [0, 2]]."""
    output_padding: Offset2D | None = None
    """Rows and columns added at the end, fewer than `strides`; default: as many as the size given above needs (0 if
    `padding` is explicit)."""

    samples: ClassVar = (
        Sample.of((2, 3, 4, 3), filters=2, kernel_size=3, strides=2, padding="same"),
        Sample.of((2, 2, 3, 4), filters=3, kernel_size=(2, 3), strides=(3, 2), output_padding=1, activation="tanh"),
        Sample.of((1, 2, 3, 4), filters=2, kernel_size=4, strides=2, padding="same", output_padding=(1, 0)),
        Sample.of((1, 4, 4, 3), filters=2, kernel_size=2, dilation_rate=2, padding=1, groups=2, use_bias=False),
    )


@LAYERS.register
class Conv3DTranspose(Kernel3D, TransposedConvolution):
    """Spread each element of a volume over a window by learned kernels: the gradient of a convolution.

    Input (N, C, D, H, W), output (N, filters, OD, OH, OW) with sizes as for Conv2DTranspose.
    """

    type: Literal["Conv3DTranspose"] = "Conv3DTranspose"
    strides: Size3D = (1, 1, 1)
    """Step of the window along depth, height and width of the output."""
    padding: Padding3D = "valid"
    """`valid`: none; `same`: size · stride outputs; or how much is cut off, e.g. 1 or [[1, 1], [0, 2], [0, 0]]."""
    output_padding: Offset3D | None = None
    """Elements added at the end of each axis, fewer than `strides`; default: as many as the size given above needs (0
    if `padding` is explicit)."""

    samples: ClassVar = (
        Sample.of((1, 2, 2, 3, 2), filters=2, kernel_size=2, strides=(1, 2, 2), padding="same"),
        Sample.of((1, 2, 2, 2, 3), filters=2, kernel_size=(1, 2, 2), strides=2, use_bias=False, activation="tanh"),
        Sample.of((1, 1, 2, 1, 2), filters=1, kernel_size=2, strides=2, output_padding=1),
    )
