"""Pooling to a given size: AdaptiveMaxPooling and AdaptiveAveragePooling, 1D to 3D.

Window i of `count` along an axis of `size` elements is from ⌊i · size / count⌋ to before ⌈(i + 1) · size / count⌉.
Where the count divides the size that is a pooling like any other. Else maxima are taken of the windows laid side by
side, all made equally long; means are products with a matrix that holds 1 / length in each window.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Literal

from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Take
from netspec.graph.ops.source import constant
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.pooling import AveragePool, MaxPool
from netspec.layers.sizes import Pair, Single, Triple, need_spatial
from netspec.layers.window import Window
from netspec.schema.kinds import LAYERS


def _spans(size: int, count: int) -> list[range]:
    return [range(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _side_by_side(sizes: Sequence[int]) -> Window:
    """The window that goes over the input without overlap."""
    rank = len(sizes)
    return Window(tuple(sizes), tuple(sizes), ((0, 0),) * rank, (1,) * rank)


class AdaptivePooling(LayerSpec):
    """Base of layers that give data with `rank` spatial axes a fixed size."""

    rank: ClassVar[int]
    alike: ClassVar[tuple[str, ...]]

    output_size: tuple[int, ...]


class AdaptiveMaxPooling(AdaptivePooling):
    """Base of AdaptiveMaxPooling1D to 3D."""

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, *output_size)."""
        need_spatial(x, self.rank)
        y, sizes = net.floating(x), []
        for axis, count in enumerate(self.output_size, 2):
            spans = _spans(x.shape[axis], count)
            longest = max(map(len, spans))
            sizes.append(longest)
            if longest * count != x.shape[axis]:  # the last element of a short window comes again: a maximum stays
                y = Take(axis, tuple(span[min(k, len(span) - 1)] for span in spans for k in range(longest)))(y)
        return MaxPool(_side_by_side(sizes)).many(y)[0]


class AdaptiveAveragePooling(AdaptivePooling):
    """Base of AdaptiveAveragePooling1D to 3D."""

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, *output_size)."""
        need_spatial(x, self.rank)
        y, sizes = net.floating(x), []
        for axis, count in enumerate(self.output_size, 2):
            even = x.shape[axis] % count == 0
            sizes.append(x.shape[axis] // count if even else 1)
            if not even:
                y = _means(y, axis, count)
        return y if set(sizes) == {1} else AveragePool(_side_by_side(sizes))(y)


def _means(x: Value, axis: int, count: int) -> Value:
    """The means of `count` windows along an axis."""
    import numpy as np

    size = x.shape[axis]
    weights = np.zeros((count, size), str(x.dtype))
    for row, span in zip(weights, _spans(size, count), strict=True):
        row[span.start : span.stop] = 1 / len(span)
    before, after = prod(x.shape[1:axis]), x.shape[axis + 1 :]
    if after:
        y = MatMul()(constant(weights), reshape_to(x, (x.shape[0], before, size, prod(after))))
    else:
        y = MatMul(transpose_b=True)(x, constant(weights))
    return reshape_to(y, (*x.shape[:axis], count, *after))


class ToLength(AdaptivePooling):
    """Field of pooling to a length."""

    rank: ClassVar[int] = 1

    output_size: Single
    """length of the output"""

    samples: ClassVar = (
        Sample.of((2, 3, 6), output_size=3),
        Sample.of((2, 2, 5), output_size=3, one_way=True),
        Sample.of((1, 2, 3), output_size=4, one_way=True),
    )


class ToImage(AdaptivePooling):
    """Field of pooling to a height and width."""

    rank: ClassVar[int] = 2

    output_size: Pair
    """height and width of the output; one number for both"""

    samples: ClassVar = (
        Sample.of((2, 3, 4, 6), output_size=2),
        Sample.of((2, 2, 5, 4), output_size=[3, 2], one_way=True),
        Sample.of((1, 2, 4, 7), output_size=3, one_way=True),
    )


class ToVolume(AdaptivePooling):
    """Field of pooling to a depth, height and width."""

    rank: ClassVar[int] = 3

    output_size: Triple
    """depth, height and width of the output; one number for all"""

    samples: ClassVar = (
        Sample.of((1, 2, 2, 4, 2), output_size=[1, 2, 2]),
        Sample.of((1, 2, 3, 4, 5), output_size=2, one_way=True),
    )


@LAYERS.register
class AdaptiveMaxPooling1D(ToLength, AdaptiveMaxPooling):
    """The greatest number of each of so many windows that share a sequence out among them, in each channel.

    Input (N, C, L), output (N, C, output_size). Window i is from ⌊i · L / output_size⌋ to before ⌈(i + 1) · L /
    output_size⌉; neighbours overlap where L is no multiple.
    """

    alike: ClassVar[tuple[str, ...]] = ("MaxPooling1D",)

    type: Literal["AdaptiveMaxPooling1D"] = "AdaptiveMaxPooling1D"


@LAYERS.register
class AdaptiveMaxPooling2D(ToImage, AdaptiveMaxPooling):
    """The greatest number of each of so many windows that share an image out among them, in each channel.

    Input (N, C, H, W), output (N, C, *output_size). Along each axis window i is from ⌊i · size / count⌋ to before
    ⌈(i + 1) · size / count⌉; neighbours overlap where the size is no multiple of the count.
    """

    alike: ClassVar[tuple[str, ...]] = ("MaxPooling2D",)

    type: Literal["AdaptiveMaxPooling2D"] = "AdaptiveMaxPooling2D"


@LAYERS.register
class AdaptiveMaxPooling3D(ToVolume, AdaptiveMaxPooling):
    """The greatest number of each of so many windows that share a volume out among them, in each channel.

    Input (N, C, D, H, W), output (N, C, *output_size). Along each axis window i is from ⌊i · size / count⌋ to before
    ⌈(i + 1) · size / count⌉; neighbours overlap where the size is no multiple of the count.
    """

    alike: ClassVar[tuple[str, ...]] = ("MaxPooling3D",)

    type: Literal["AdaptiveMaxPooling3D"] = "AdaptiveMaxPooling3D"


@LAYERS.register
class AdaptiveAveragePooling1D(ToLength, AdaptiveAveragePooling):
    """The mean of each of so many windows that share a sequence out among them, in each channel.

    Input (N, C, L), output (N, C, output_size). Window i is from ⌊i · L / output_size⌋ to before ⌈(i + 1) · L /
    output_size⌉; neighbours overlap where L is no multiple.
    """

    alike: ClassVar[tuple[str, ...]] = ("AveragePooling1D",)

    type: Literal["AdaptiveAveragePooling1D"] = "AdaptiveAveragePooling1D"


@LAYERS.register
class AdaptiveAveragePooling2D(ToImage, AdaptiveAveragePooling):
    """The mean of each of so many windows that share an image out among them, in each channel.

    Input (N, C, H, W), output (N, C, *output_size). Along each axis window i is from ⌊i · size / count⌋ to before
    ⌈(i + 1) · size / count⌉; neighbours overlap where the size is no multiple of the count.
    """

    alike: ClassVar[tuple[str, ...]] = ("AveragePooling2D",)

    type: Literal["AdaptiveAveragePooling2D"] = "AdaptiveAveragePooling2D"


@LAYERS.register
class AdaptiveAveragePooling3D(ToVolume, AdaptiveAveragePooling):
    """The mean of each of so many windows that share a volume out among them, in each channel.

    Input (N, C, D, H, W), output (N, C, *output_size). Along each axis window i is from ⌊i · size / count⌋ to before
    ⌈(i + 1) · size / count⌉; neighbours overlap where the size is no multiple of the count.
    """

    alike: ClassVar[tuple[str, ...]] = ("AveragePooling3D",)

    type: Literal["AdaptiveAveragePooling3D"] = "AdaptiveAveragePooling3D"
