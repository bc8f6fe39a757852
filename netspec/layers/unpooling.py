"""MaxUnpool, and the places that it takes numbers back to: ArgMaxPooling, 1D to 3D."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

from netspec.graph.onnx_map import Emitter, OnnxExpansion
from netspec.graph.op import Array, NoGradient, Xp
from netspec.graph.ops.elementwise import cast, elementwise
from netspec.graph.ops.indexing import ScatterElements
from netspec.graph.ops.reduce import BroadcastLike, reshape_to
from netspec.graph.ops.shape import PadAxis
from netspec.graph.ops.source import constant
from netspec.graph.ops.whole import Mod
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import need
from netspec.layers.col2im import Several, Sides
from netspec.layers.pooling import AlongSequences, MaxPool, OverImages, Pooling, ThroughVolumes
from netspec.layers.window import Window
from netspec.schema.kinds import LAYERS


def _places_to_onnx(g: Emitter, y: Value, x: str) -> str:
    op = y.op
    assert isinstance(op, MaxPoolPlaces)
    one = op.window
    pads = [side[k] for k in (0, 1) for side in one.pads]
    size, strides, gaps = list(one.size), list(one.strides), list(one.dilation)
    made = g.node("MaxPool", x, outputs=2, kernel_shape=size, strides=strides, pads=pads, dilations=gaps)
    # ONNX counts in the whole tensor: channels and samples before are whole planes.
    return g.node("Mod", f"{made}:1", g.constant(prod(y.inputs[0].shape[2:]), "int64"))


@dataclass(frozen=True)
class MaxPoolPlaces(NoGradient):
    """Where in its channel each maximum of `MaxPool` is, counted in reading order as int64; of equal ones the first."""

    window: Window
    onnx = OnnxExpansion(_places_to_onnx)

    def infer(self, x: TensorType) -> TensorType:
        """x: (N, C, …) → (N, C, out…)."""
        return MaxPool(self.window).infer(x)[1].with_dtype(DType.INT64)

    def forward(self, xp: Xp, x: Array) -> Array:
        place = MaxPool(self.window).forward(xp, x)[1].astype("int64")
        number = xp.zeros_like(place)
        count, one = 1, self.window
        for axis in reversed(range(len(one.size))):
            within = place % one.size[axis]
            place = place // one.size[axis]
            shape = [1] * x.ndim
            shape[2 + axis] = -1
            start = xp.arange(number.shape[2 + axis]).reshape(shape) * one.strides[axis] - one.pads[axis][0]
            number += (start + within * one.dilation[axis]) * count
            count *= x.shape[2 + axis]
        return number

    def flops(self, x: TensorType) -> int:
        return MaxPool(self.window).flops(x)


class ArgMaxPooling(Pooling):
    """Base of ArgMaxPooling1D to 3D."""

    one_way: ClassVar = "it is the second result of an operator that is read as two layers"

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …) int64."""
        return MaxPoolPlaces(self.window(x))(net.floating(x))


@LAYERS.register
class ArgMaxPooling1D(AlongSequences, ArgMaxPooling):
    """Where in its channel the greatest number under a window is; of equal ones the first.

    Input (N, C, L), output (N, C, OL) whole numbers (int64), for MaxUnpool; the numbers are those of MaxPooling1D.
    """

    type: Literal["ArgMaxPooling1D"] = "ArgMaxPooling1D"


@LAYERS.register
class ArgMaxPooling2D(OverImages, ArgMaxPooling):
    """Where in its channel the greatest number under a sliding window is, in reading order; of equal ones the first.

    Input (N, C, H, W), output (N, C, OH, OW) whole numbers (int64) y · W + x, for MaxUnpool; the numbers are those of
    MaxPooling2D.
    """

    type: Literal["ArgMaxPooling2D"] = "ArgMaxPooling2D"


@LAYERS.register
class ArgMaxPooling3D(ThroughVolumes, ArgMaxPooling):
    """Where in its channel the greatest number under a window is, in reading order; of equal ones the first.

    Input (N, C, D, H, W), output (N, C, OD, OH, OW) whole numbers (int64), for MaxUnpool; the numbers are those of
    MaxPooling3D.
    """

    type: Literal["ArgMaxPooling3D"] = "ArgMaxPooling3D"


@LAYERS.register
class MaxUnpool(LayerSpec):
    """Put numbers back to the places where a max pooling found them, with zeros around.

    Inputs (N, C, h, w) and the places (N, C, h, w) in each channel, of ArgMaxPooling2D, output (N, C, H, W) with H =
    (h - 1) · stride + pool - padding; of as many axes as `pool_size` has. Of several at one place it is not said which
    stays. https://onnx.ai/onnx/operators/onnx__MaxUnpool.html
    """

    one_way: ClassVar = "it is written as what is put into zeros"

    type: Literal["MaxUnpool"] = "MaxUnpool"
    pool_size: Several
    """the window of the pooling, a size for each axis"""
    strides: Several | None = None
    """steps of the pooling, for each axis; default: `pool_size`"""
    padding: Sides = (0,)
    """what the pooling had around: one number for all sides, or one before each axis and then after each"""
    output_size: Several | None = None
    """sizes of the result, where they are larger: zeros come after the end of each axis"""

    samples: ClassVar = (
        Sample.of((2, 2, 1, 1), (2, 2, 1, 1), dtypes=("float32", "int64"), pool_size=[2, 2]),
        Sample.of((2, 3, 1), (2, 3, 1), dtypes=("float32", "int32"), pool_size=4, strides=2, padding=1, output_size=5),
    )

    def build(self, net: Builder, x: Value, places: Value) -> Value:
        """x and places: (N, …, h, w) → (N, …, H, W)."""
        rank = len(self.pool_size)
        strides, sides = self.strides or self.pool_size, self.padding * (2 * rank // len(self.padding))
        need(
            len(strides) == rank and len(sides) == 2 * rank and len(self.output_size or strides) == rank,
            "`strides`, `padding` or `output_size` does not fit to `pool_size`",
            expected=f"{rank} numbers, or {2 * rank} of `padding`",
            got=f"{len(strides)}, {len(self.padding)} and {len(self.output_size or strides)}",
        )
        lead = len(x.shape) - rank
        need(lead >= 1, f"the input has not {rank} axes behind the batch", expected="(batch, …)", got=x.type)
        need(
            not places.dtype.is_float and places.dtype != DType.BOOL and places.shape == x.shape,
            "the second input does not say where each number was",
            expected=f"whole numbers {list(x.shape)}",
            got=places.type,
        )
        sizes = tuple(
            (have - 1) * stride + size - before - after
            for have, stride, size, before, after in zip(
                x.shape[lead:], strides, self.pool_size, sides[:rank], sides[rank:], strict=True
            )
        )
        wanted, count = self.output_size or sizes, prod(x.shape[lead:])
        need(
            min(sizes) > 0 and all(size <= want for size, want in zip(sizes, wanted, strict=True)),
            "the result is smaller than what was pooled",
            expected=f"{list(sizes)} or more",
            got=list(wanted),
        )
        need(count <= prod(sizes), "there are more numbers than places", expected=f"{prod(sizes)}", got=count)
        x = net.floating(x)
        rows = reshape_to(x, (*x.shape[:lead], count))
        zero = reshape_to(constant(_zeros(str(x.dtype))), (1,) * (lead + 1))
        zeros = PadAxis(lead, 0, prod(sizes) - count)(BroadcastLike()(zero, rows))
        index = elementwise(Mod(), cast(reshape_to(places, rows.shape), DType.INT64), prod(sizes))
        made = reshape_to(ScatterElements(lead)(zeros, index, rows), (*x.shape[:lead], *sizes))
        for axis, (size, want) in enumerate(zip(sizes, wanted, strict=True), lead):
            made = made if size == want else PadAxis(axis, 0, want - size)(made)
        return made


def _zeros(dtype: str) -> Array:
    import numpy as np

    return np.zeros(1, dtype)
