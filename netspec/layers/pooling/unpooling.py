"""MaxUnpool, and ArgMaxPooling1D to 3D, whose outputs are the indices that MaxUnpool needs."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Literal

from netspec.graph.op import Array
from netspec.graph.ops.elementwise import call_elementwise, cast
from netspec.graph.ops.indexing import ScatterElements
from netspec.graph.ops.integer import Mod
from netspec.graph.ops.pooling import MaxPoolIndices
from netspec.graph.ops.reduce import BroadcastLike, reshape_to
from netspec.graph.ops.shape import PadAxis
from netspec.graph.ops.source import constant
from netspec.graph.types import DType, batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require
from netspec.layers.convolution.col2im import PadPerAxis, SizePerAxis
from netspec.layers.pooling.windowed import Pooling, Pooling1D, Pooling2D, Pooling3D
from netspec.schema.specs.kinds import LAYERS


class ArgMaxPooling(Pooling):
    """Base of ArgMaxPooling1D to 3D."""

    onnx_roundtrip_blocker: ClassVar = "it is the second result of an operator that is read as two layers"

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …) int64."""
        return MaxPoolIndices(self.window(x))(builder.floating(x))


@LAYERS.register
class ArgMaxPooling1D(Pooling1D, ArgMaxPooling):
    """Index of the maximum under a sliding window, counted within the channel; of equal maxima the first.

    Input (N, C, L), output (N, C, OL) integers (int64), for MaxUnpool; the maxima are those of MaxPooling1D.
    """

    type: Literal["ArgMaxPooling1D"] = "ArgMaxPooling1D"


@LAYERS.register
class ArgMaxPooling2D(Pooling2D, ArgMaxPooling):
    """Row-major index of the maximum under a sliding window, counted within the channel; of equal maxima the first.

    Input (N, C, H, W), output (N, C, OH, OW) integers (int64) y · W + x, for MaxUnpool; the maxima are those of
    MaxPooling2D.
    """

    type: Literal["ArgMaxPooling2D"] = "ArgMaxPooling2D"


@LAYERS.register
class ArgMaxPooling3D(Pooling3D, ArgMaxPooling):
    """Row-major index of the maximum under a sliding window, counted within the channel; of equal maxima the first.

    Input (N, C, D, H, W), output (N, C, OD, OH, OW) integers (int64), for MaxUnpool; the maxima are those of
    MaxPooling3D.
    """

    type: Literal["ArgMaxPooling3D"] = "ArgMaxPooling3D"


@LAYERS.register
class MaxUnpool(LayerSpec):
    """Write elements to the indices from which a max pooling took them, with zeros elsewhere.

    Inputs (N, C, h, w) and indices (N, C, h, w) within each channel, from ArgMaxPooling2D; output (N, C, H, W) with H =
    (h - 1) · stride + pool - padding. The number of spatial axes is that of `pool_size`. If an index occurs several
    times, any one of the elements is kept. https://onnx.ai/onnx/operators/onnx__MaxUnpool.html
    """

    onnx_roundtrip_blocker: ClassVar = "it is written as a scatter into zeros"

    type: Literal["MaxUnpool"] = "MaxUnpool"
    pool_size: SizePerAxis
    """The window of the pooling, a size for each axis."""
    strides: SizePerAxis | None = None
    """Strides of the pooling, one for each axis; default: `pool_size`."""
    padding: PadPerAxis = (0,)
    """Padding of the pooling: one number for all sides, or all before and then all after the axes."""
    output_size: SizePerAxis | None = None
    """Sizes of the result, if they are larger: zeros are added at the end of each axis."""

    samples: ClassVar = (
        Sample.of((2, 2, 1, 1), (2, 2, 1, 1), dtypes=("float32", "int64"), pool_size=[2, 2]),
        Sample.of((2, 3, 1), (2, 3, 1), dtypes=("float32", "int32"), pool_size=4, strides=2, padding=1, output_size=5),
    )

    def build(self, builder: Builder, x: Value, indices: Value) -> Value:
        """x and indices: (N, …, h, w) → (N, …, H, W)."""
        rank = len(self.pool_size)
        strides, sides = self.strides or self.pool_size, self.padding * (2 * rank // len(self.padding))
        for field, numbers, count in (("strides", strides, rank), ("padding", sides, 2 * rank),
                                      ("output_size", self.output_size or strides, rank)):  # fmt: skip
            require(
                len(numbers) == count,
                f"`{field}` does not match `pool_size`, which has {rank} ax{'is' if rank == 1 else 'es'}",
                expected="1 number" if count == 1 else f"1 number, or {count}",
                got=list(getattr(self, field) or ()),
            )
        lead = len(x.shape) - rank
        require(lead >= 1, f"the input must have at least {rank + 1} axes",
            expected=f"the batch axis, and {rank} axes for `pool_size`", got=x.type)  # fmt: skip
        require(
            not indices.dtype.is_float and indices.dtype != DType.BOOL and indices.shape == x.shape,
            "the second input must hold one index per element",
            expected=f"integers {batch_shape(x.shape)}",
            got=indices.type,
        )
        sizes = tuple(
            (length - 1) * stride + size - before - after
            for length, stride, size, before, after in zip(
                x.shape[lead:], strides, self.pool_size, sides[:rank], sides[rank:], strict=True
            )
        )
        output_size, count = self.output_size or sizes, prod(x.shape[lead:])
        require(
            min(sizes) > 0 and all(size <= out for size, out in zip(sizes, output_size, strict=True)),
            "the result is smaller than the input of the pooling",
            expected=f"{list(sizes)} or more",
            got=list(output_size),
        )
        require(
            count <= prod(sizes), "the input has more elements than the output",
            expected=f"at most {prod(sizes)}", got=count,
        )  # fmt: skip
        x = builder.floating(x)
        rows = reshape_to(x, (*x.shape[:lead], count))
        zero = reshape_to(constant(_zeros(str(x.dtype))), (1,) * (lead + 1))
        zeros = PadAxis(lead, 0, prod(sizes) - count)(BroadcastLike()(zero, rows))
        index = call_elementwise(Mod(), cast(reshape_to(indices, rows.shape), DType.INT64), prod(sizes))
        y = reshape_to(ScatterElements(lead)(zeros, index, rows), (*x.shape[:lead], *sizes))
        for axis, (size, out) in enumerate(zip(sizes, output_size, strict=True), lead):
            y = y if size == out else PadAxis(axis, 0, out - size)(y)
        return y


def _zeros(dtype: str) -> Array:
    import numpy as np

    return np.zeros(1, dtype)
