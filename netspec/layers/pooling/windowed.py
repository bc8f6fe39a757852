"""Pooling under a sliding window: MaxPooling, AveragePooling and StochasticPooling."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from netspec.graph.ops.elementwise import Maximum, call_elementwise
from netspec.graph.ops.pooling import AveragePool, MaxPool, MaxPoolGather
from netspec.graph.ops.unary import Log
from netspec.graph.ops.window import Window
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require
from netspec.layers.spatial import (
    ExplicitPadding,
    Padding,
    Padding1D,
    Padding3D,
    Size1D,
    Size2D,
    Size3D,
    require_spatial,
)
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import problem


class Pooling(LayerSpec):
    """Base of layers that slide a window over each channel of data with `rank` spatial axes."""

    rank: ClassVar[int]
    foreign_fields: ClassVar[dict[str, str]] = {
        "round_mode": "`round_mode: CEIL` is Caffe's name: use `ceil_mode: true`",
        "divisor_override": "not available: put the layer Power with `scale` after it",
    }

    pool_size: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    padding: str | ExplicitPadding = "valid"
    dilation_rate: tuple[int, ...]
    ceil_mode: bool = False
    """`true`: if remaining elements do not fill a window, a last window extends beyond the end; it must begin
    inside the input, or inside
    the padding before it. (PyTorch's name; Caffe always does so.)"""

    @model_validator(mode="after")
    def _rounded_once(self) -> Self:
        if self.ceil_mode and self.padding == "same":
            raise problem(
                "`ceil_mode` has no effect if `padding` is `same`", field="ceil_mode",
                expected="`ceil_mode: false`, or explicit `padding`", got="true",
                hint="`same` always rounds the size up, and pads as much as the last window needs",
            )  # fmt: skip
        return self

    def window(self, x: Value) -> Window:
        """The window for the input `x`, (N, C, …) with `rank` spatial axes."""
        require_spatial(x, self.rank)
        strides = self.strides or self.pool_size
        window = Window.of(x.shape[2:], self.pool_size, strides, self.padding, self.dilation_rate)
        if self.ceil_mode:
            window = window.ceil_mode(x.shape[2:])
        sizes = zip(window.pads, window.size, window.dilation, strict=True)
        fits = all(max(pads) <= (size - 1) * dilation for pads, size, dilation in sizes)
        require(
            fits,
            "some windows would contain only padding",
            expected=f"a padding smaller than the window, {list(window.size)}",
            got=f"padding {[list(pads) for pads in window.pads]}",
        )
        window.out(x.shape[2:])
        return window

    def resolved_fields(self, *inputs: Value) -> dict[str, Any]:
        """The padding, and the strides."""
        strides = self.strides or self.pool_size
        pads = Window.of(inputs[0].shape[2:], self.pool_size, strides, self.padding, self.dilation_rate).pads
        return {"padding": pads, "strides": strides}


class Pooling1D(Pooling):
    """Fields of pooling with one spatial axis."""

    rank: ClassVar[int] = 1

    pool_size: Size1D = (2,)
    """Length of the window."""
    strides: Size1D | None = None
    """Step of the window; default: `pool_size`, so that windows do not overlap."""
    padding: Padding1D = "valid"
    """`valid`: none, and remaining elements that do not fill a window are left out; `same`: ⌈length /
    stride⌉ outputs; or explicit, e.g.
    1 or [0, 1]. Padding does not affect the result."""
    dilation_rate: Size1D = (1,)
    """Distance between the elements of the window. (PyTorch's `dilation`; Keras has none.)"""

    samples: ClassVar[tuple[Sample, ...]] = (
        Sample.of((2, 3, 6)),
        Sample.of((2, 2, 7), pool_size=3, strides=2, padding="same"),
        Sample.of((1, 2, 6), pool_size=3, strides=1, padding=[0, 1]),
        Sample.of((2, 2, 6), pool_size=3, strides=2, padding=[1, 0], ceil_mode=True),
        Sample.of((2, 2, 7), pool_size=3, strides=1, padding=1, dilation_rate=2),
    )


class Pooling2D(Pooling):
    """Fields of pooling with two spatial axes."""

    rank: ClassVar[int] = 2

    pool_size: Size2D = (2, 2)
    """Height and width of the window; a single number sets both."""
    strides: Size2D | None = None
    """Step of the window along height and width; default: `pool_size`, so that windows do not overlap."""
    padding: Padding = "valid"
    """`valid`: none, and remaining elements that do not fill a window are left out; `same`: ⌈size / stride⌉
    outputs; or explicit, e.g. 1
    or [[0, 1], [0, 1]]. Padding does not affect the result."""
    dilation_rate: Size2D = (1, 1)
    """Distance between the elements of the window. (PyTorch's `dilation`; Keras has none.)"""

    samples: ClassVar[tuple[Sample, ...]] = (
        Sample.of((2, 3, 6, 5)),
        Sample.of((2, 2, 7, 6), pool_size=3, strides=2, padding="same"),
        Sample.of((1, 2, 6, 7), pool_size=(2, 3), strides=(2, 1), padding=[[0, 1], [1, 1]]),
        Sample.of((1, 2, 6, 7), pool_size=3, strides=2, ceil_mode=True),
        Sample.of((1, 2, 6, 7), strides=(2, 1), dilation_rate=(2, 3)),
    )


class Pooling3D(Pooling):
    """Fields of pooling with three spatial axes."""

    rank: ClassVar[int] = 3

    pool_size: Size3D = (2, 2, 2)
    """Depth, height and width of the window; a single number sets all."""
    strides: Size3D | None = None
    """Step of the window along depth, height and width; default: `pool_size`, so that windows do not overlap."""
    padding: Padding3D = "valid"
    """`valid`: none, and remaining elements that do not fill a window are left out; `same`: ⌈size / stride⌉
    outputs; or explicit, e.g. 1
    or [[0, 0], [0, 1], [0, 1]]. Padding does not affect the result."""
    dilation_rate: Size3D = (1, 1, 1)
    """Distance between the elements of the window. (PyTorch's `dilation`; Keras has none.)"""

    samples: ClassVar[tuple[Sample, ...]] = (
        Sample.of((2, 2, 4, 5, 4)),
        Sample.of((1, 2, 3, 5, 4), pool_size=3, strides=2, padding="same"),
        Sample.of((1, 2, 3, 4, 5), pool_size=(1, 2, 3), strides=(1, 2, 1), padding=[[0, 0], [0, 1], [1, 1]]),
        Sample.of((1, 1, 3, 4, 5), pool_size=2, ceil_mode=True),
    )


class MaxPooling(Pooling):
    """Base of MaxPooling1D to 3D."""

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        return MaxPool(self.window(x)).call_multi(builder.floating(x))[0]


@LAYERS.register
class MaxPooling1D(Pooling1D, MaxPooling):
    """Maximum under a window that slides along a sequence, in each channel.

    Input (N, C, L), output (N, C, OL) with OL = ⌊(L + padding - pool) / stride⌋ + 1. Of equal maxima the first gets the
    gradient.
    """

    type: Literal["MaxPooling1D"] = "MaxPooling1D"


@LAYERS.register
class MaxPooling2D(Pooling2D, MaxPooling):
    """Maximum under a sliding window, in each channel.

    Input (N, C, H, W), output (N, C, OH, OW) with OH = ⌊(H + padding - pool) / stride⌋ + 1. Of equal maxima the first
    in row-major order gets the gradient.
    """

    type: Literal["MaxPooling2D"] = "MaxPooling2D"


@LAYERS.register
class MaxPooling3D(Pooling3D, MaxPooling):
    """Maximum under a window that slides through a volume, in each channel.

    Input (N, C, D, H, W), output (N, C, OD, OH, OW) with OD = ⌊(D + padding - pool) / stride⌋ + 1. Of equal maxima the
    first in row-major order gets the gradient.
    """

    type: Literal["MaxPooling3D"] = "MaxPooling3D"


class AveragePooling(Pooling):
    """Base of AveragePooling1D to 3D."""

    count_include_pad: bool = False
    """`true`: padding counts as zeros, except where `ceil_mode` extends a window beyond it, as in PyTorch and Caffe;
    false: the mean is over the input alone."""

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        window = self.window(x)
        counted: ExplicitPadding = ()
        if self.count_include_pad:
            counted = Window.of(x.shape[2:], window.size, window.strides, self.padding, window.dilation).pads
        return AveragePool(window, counted if any(map(any, counted)) else ())(builder.floating(x))


@LAYERS.register
class AveragePooling1D(Pooling1D, AveragePooling):
    """Mean under a window that slides along a sequence, in each channel; padding is not counted.

    Input (N, C, L), output (N, C, OL) with OL = ⌊(L + padding - pool) / stride⌋ + 1.
    """

    type: Literal["AveragePooling1D"] = "AveragePooling1D"

    samples: ClassVar = (
        *Pooling1D.samples,
        Sample.of((2, 2, 6), pool_size=3, strides=2, padding=1, ceil_mode=True, count_include_pad=True),
    )


@LAYERS.register
class AveragePooling2D(Pooling2D, AveragePooling):
    """Mean under a sliding window, in each channel; padding is not counted.

    Input (N, C, H, W), output (N, C, OH, OW) with OH = ⌊(H + padding - pool) / stride⌋ + 1.
    """

    type: Literal["AveragePooling2D"] = "AveragePooling2D"

    samples: ClassVar = (
        *Pooling2D.samples,
        Sample.of((2, 2, 5, 4), pool_size=3, strides=1, padding=[[1, 1], [1, 0]], count_include_pad=True),
    )


@LAYERS.register
class AveragePooling3D(Pooling3D, AveragePooling):
    """Mean under a window that slides through a volume, in each channel; padding is not counted.

    Input (N, C, D, H, W), output (N, C, OD, OH, OW) with OD = ⌊(D + padding - pool) / stride⌋ + 1.
    """

    type: Literal["AveragePooling3D"] = "AveragePooling3D"

    samples: ClassVar = (
        *Pooling3D.samples,
        Sample.of((1, 1, 3, 4, 4), padding=[1, 0, 1], ceil_mode=True, count_include_pad=True),
    )


LEAST_UNIFORM = 2.0**-32
"""Replaces a random number of 0, which has no logarithm."""
LEAST_SUM = 1.1754943508222875e-38
"""The smallest normal float32, added to the divisor: if all elements are 0, so is the result."""


@LAYERS.register
class StochasticPooling2D(Pooling2D):
    """Draws one element per window in training, with probability proportional to its value; else a weighted mean.

    Input (N, C, H, W) of elements that are not negative, as after ReLU; output (N, C, OH, OW). In inference each
    element is weighted by itself: Σx² / Σx. The drawn element gets the gradient.
    """

    onnx_roundtrip_blocker: ClassVar[str | None] = "ONNX has no such operator: it is written as a quotient of averages"

    type: Literal["StochasticPooling2D"] = "StochasticPooling2D"

    samples: ClassVar = (
        Sample.of((2, 3, 4, 5), ranges=((0.1, 2.0),)),
        Sample.of((1, 2, 5, 6), pool_size=3, strides=2, padding="same", ranges=((0.1, 2.0),)),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, H, W) → (N, C, OH, OW)."""
        window, x = self.window(x), builder.floating(x)
        if not builder.training:
            return AveragePool(window)(x * x) / (AveragePool(window)(x) + LEAST_SUM)
        # Divided by exponential random numbers, each element is the largest with a probability proportional to it.
        exponential = -Log()(call_elementwise(Maximum(), builder.uniform(x.shape), LEAST_UNIFORM))
        _, index = MaxPool(window).call_multi(x / exponential)
        return MaxPoolGather(window)(x, index)
