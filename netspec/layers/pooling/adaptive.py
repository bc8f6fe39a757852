"""Pooling to a given output size: AdaptiveMaxPooling, AdaptiveAveragePooling and SpatialPyramidPooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.pooling import AveragePool, MaxPool
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Concat, Take
from netspec.graph.ops.source import constant
from netspec.graph.ops.window import Window
from netspec.graph.value import Value, require_listable, require_precomputable
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import as_items, is_integer, require
from netspec.layers.spatial import Size1D, Size2D, Size3D, require_image, require_spatial
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import describe, problem


def _spans(size: int, count: int) -> list[range]:
    """The `count` windows along an axis of `size` elements."""
    require_listable(count, "windows")
    return [range(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _tiling_window(sizes: Sequence[int]) -> Window:
    """A window of these sizes that tiles the input without overlap."""
    rank = len(sizes)
    return Window(tuple(sizes), tuple(sizes), ((0, 0),) * rank, (1,) * rank)


class AdaptivePooling(LayerSpec):
    """Base of layers that give data with `rank` spatial axes a fixed size."""

    rank: ClassVar[int]
    onnx_equivalents: ClassVar[tuple[str, ...]]

    output_size: tuple[int, ...]


class AdaptiveMaxPooling(AdaptivePooling):
    """Base of AdaptiveMaxPooling1D to 3D."""

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, *output_size)."""
        require_spatial(x, self.rank)
        y, sizes = builder.floating(x), []
        for axis, count in enumerate(self.output_size, 2):
            spans = _spans(x.shape[axis], count)
            longest = max(map(len, spans))
            require_listable(longest * count, "elements in all windows")
            sizes.append(longest)
            if longest * count != x.shape[axis]:  # short windows repeat their last element: the maximum stays
                y = Take(axis, tuple(span[min(k, len(span) - 1)] for span in spans for k in range(longest)))(y)
        return MaxPool(_tiling_window(sizes)).call_multi(y)[0]


class AdaptiveAveragePooling(AdaptivePooling):
    """Base of AdaptiveAveragePooling1D to 3D."""

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, *output_size)."""
        require_spatial(x, self.rank)
        y, sizes = builder.floating(x), []
        for axis, count in enumerate(self.output_size, 2):
            even = x.shape[axis] % count == 0
            sizes.append(x.shape[axis] // count if even else 1)
            if not even:
                y = _means(y, axis, count)
        return y if set(sizes) == {1} else AveragePool(_tiling_window(sizes))(y)


def _means(x: Value, axis: int, count: int) -> Value:
    """The means of `count` windows along an axis."""
    import numpy as np

    size = x.shape[axis]
    require_precomputable(count * size, "weights for the windows' means")
    weights = np.zeros((count, size), str(x.dtype))
    for row, span in zip(weights, _spans(size, count), strict=True):
        row[span.start : span.stop] = 1 / len(span)
    before, after = prod(x.shape[1:axis]), x.shape[axis + 1 :]
    if after:
        y = MatMul()(constant(weights), reshape_to(x, (x.shape[0], before, size, prod(after))))
    else:
        y = MatMul(transpose_b=True)(x, constant(weights))
    return reshape_to(y, (*x.shape[:axis], count, *after))


class AdaptivePooling1D(AdaptivePooling):
    """Field of pooling to a length."""

    rank: ClassVar[int] = 1

    output_size: Size1D
    """Length of the output."""

    samples: ClassVar = (
        Sample.of((2, 3, 6), output_size=3),
        Sample.of((2, 2, 5), output_size=3, no_onnx_roundtrip=True),
        Sample.of((1, 2, 3), output_size=4, no_onnx_roundtrip=True),
    )


class AdaptivePooling2D(AdaptivePooling):
    """Field of pooling to a height and width."""

    rank: ClassVar[int] = 2

    output_size: Size2D
    """Height and width of the output; a single number sets both."""

    samples: ClassVar = (
        Sample.of((2, 3, 4, 6), output_size=2),
        Sample.of((2, 2, 5, 4), output_size=[3, 2], no_onnx_roundtrip=True),
        Sample.of((1, 2, 4, 7), output_size=3, no_onnx_roundtrip=True),
    )


class AdaptivePooling3D(AdaptivePooling):
    """Field of pooling to a depth, height and width."""

    rank: ClassVar[int] = 3

    output_size: Size3D
    """Depth, height and width of the output; a single number sets all."""

    samples: ClassVar = (
        Sample.of((1, 2, 2, 4, 2), output_size=[1, 2, 2]),
        Sample.of((1, 2, 3, 4, 5), output_size=2, no_onnx_roundtrip=True),
    )


@LAYERS.register
class AdaptiveMaxPooling1D(AdaptivePooling1D, AdaptiveMaxPooling):
    """Maximum over each of `output_size` windows that cover a sequence, in each channel.

    Input (N, C, L), output (N, C, output_size). Window i spans ⌊i · L / output_size⌋ (included) to ⌈(i + 1) · L /
    output_size⌉ (excluded); adjacent windows overlap if L is not a multiple.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("MaxPooling1D",)

    type: Literal["AdaptiveMaxPooling1D"] = "AdaptiveMaxPooling1D"


@LAYERS.register
class AdaptiveMaxPooling2D(AdaptivePooling2D, AdaptiveMaxPooling):
    """Maximum over each of `output_size` windows that cover an image, in each channel.

    Input (N, C, H, W), output (N, C, *output_size). Along each axis window i spans ⌊i · size / count⌋ (included) to ⌈(i
    + 1) · size / count⌉ (excluded); adjacent windows overlap if the size is not a multiple of the count.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("MaxPooling2D",)

    type: Literal["AdaptiveMaxPooling2D"] = "AdaptiveMaxPooling2D"


@LAYERS.register
class AdaptiveMaxPooling3D(AdaptivePooling3D, AdaptiveMaxPooling):
    """Maximum over each of `output_size` windows that cover a volume, in each channel.

    Input (N, C, D, H, W), output (N, C, *output_size). Along each axis window i spans ⌊i · size / count⌋ (included) to
    ⌈(i + 1) · size / count⌉ (excluded); adjacent windows overlap if the size is not a multiple of the count.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("MaxPooling3D",)

    type: Literal["AdaptiveMaxPooling3D"] = "AdaptiveMaxPooling3D"


@LAYERS.register
class AdaptiveAveragePooling1D(AdaptivePooling1D, AdaptiveAveragePooling):
    """Mean over each of `output_size` windows that cover a sequence, in each channel.

    Input (N, C, L), output (N, C, output_size). Window i spans ⌊i · L / output_size⌋ (included) to ⌈(i + 1) · L /
    output_size⌉ (excluded); adjacent windows overlap if L is not a multiple.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("AveragePooling1D",)

    type: Literal["AdaptiveAveragePooling1D"] = "AdaptiveAveragePooling1D"


@LAYERS.register
class AdaptiveAveragePooling2D(AdaptivePooling2D, AdaptiveAveragePooling):
    """Mean over each of `output_size` windows that cover an image, in each channel.

    Input (N, C, H, W), output (N, C, *output_size). Along each axis window i spans ⌊i · size / count⌋ (included) to ⌈(i
    + 1) · size / count⌉ (excluded); adjacent windows overlap if the size is not a multiple of the count.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("AveragePooling2D",)

    type: Literal["AdaptiveAveragePooling2D"] = "AdaptiveAveragePooling2D"


@LAYERS.register
class AdaptiveAveragePooling3D(AdaptivePooling3D, AdaptiveAveragePooling):
    """Mean over each of `output_size` windows that cover a volume, in each channel.

    Input (N, C, D, H, W), output (N, C, *output_size). Along each axis window i spans ⌊i · size / count⌋ (included) to
    ⌈(i + 1) · size / count⌉ (excluded); adjacent windows overlap if the size is not a multiple of the count.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("AveragePooling3D",)

    type: Literal["AdaptiveAveragePooling3D"] = "AdaptiveAveragePooling3D"


MAX_LEVELS = 31
"""Largest number of levels; the last one has 2³⁰ bins along an axis, more than any image has pixels."""


def _levels(value: Any) -> Any:
    others = "a list with the number of bins along an axis in each level, such as [1, 2, 4]"
    levels = as_items(value, lambda item: is_integer(item) and item >= 1, "an integer of 1 or more", others)
    if isinstance(value, int) and value > MAX_LEVELS:
        raise problem("`levels` is too large", expected=f"up to {MAX_LEVELS}", got=describe(value))
    return value if isinstance(value, int) else levels


Levels = Annotated[int | tuple[int, ...], BeforeValidator(_levels, json_schema_input_type=int | list[int])]
"""Number of levels, of 1, 2, 4, 8 … bins along each axis; or the bins of each level."""


@LAYERS.register
class SpatialPyramidPooling(LayerSpec):
    """Pool an image over grids of 1, 2 by 2, 4 by 4 … bins, and concatenate the results.

    Input (N, C, H, W), output (N, C · Σ bins²), for any size of the image. A bin is ⌈H / bins⌉ high; missing rows and
    columns are padded, as in Caffe's SPP, and count as zeros in an average. He et al. 2014, arXiv:1406.4729.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "pyramid_height": "`pyramid_height` is Caffe's name: use `levels`",
        "spp_param": "not needed: Caffe's fields inside it are fields of the layer here",
    }
    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Concatenate", "Flatten")

    type: Literal["SpatialPyramidPooling"] = "SpatialPyramidPooling"
    levels: Levels
    """Number of levels, of 1, 2, 4 … bins along each axis; or a list with the bins of each level."""
    pool: Literal["max", "average"] = "max"
    """Reduction of the elements in a bin."""

    samples: ClassVar = (
        Sample.of((2, 2, 4, 5), levels=2),
        Sample.of((1, 2, 5, 4), levels=[3, 1], pool="average"),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, H, W) → (N, C · Σ bins²)."""
        require_image(x)
        image = builder.floating(x)
        bins = [2**level for level in range(self.levels)] if isinstance(self.levels, int) else self.levels
        parts = [self._level(image, count) for count in bins]
        return parts[0] if len(parts) == 1 else Concat(1)(*parts)

    def _level(self, x: Value, bins: int) -> Value:
        size = tuple(-(-length // bins) for length in x.shape[2:])
        missing = [bin_size * bins - length for bin_size, length in zip(size, x.shape[2:], strict=True)]
        pads = tuple(((count + 1) // 2, count // 2) for count in missing)
        require(
            all(begin < bin_size for (begin, _), bin_size in zip(pads, size, strict=True)),
            f"the image is too small for {bins} bins along each axis: some would contain only padding",
            expected="fewer bins, or a larger image",
            got=x.type,
        )
        window = Window(size, size, pads, (1, 1))
        if self.pool == "max":
            y = MaxPool(window).call_multi(x)[0]
        else:
            y = AveragePool(window, pads if any(map(any, pads)) else ())(x)
        return reshape_to(y, (x.shape[0], prod(y.shape[1:])))
