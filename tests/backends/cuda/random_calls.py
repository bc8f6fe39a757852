"""Calls of ops with random small sizes, which select different code in many kernels; reproducible by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

import numpy as np

from netspec.backends.op_call import OpCall, call
from netspec.graph.op import Op
from netspec.graph.ops import elementwise, linear, reduce, shape, softmax
from netspec.graph.ops.batch_normalization import BatchNormalization, BatchNormalizationGrad, BatchNormalizationTraining
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.graph.ops.cross_entropy import SoftmaxCrossEntropyLoss
from netspec.graph.ops.ctc import CTCLoss, CTCLossGrad
from netspec.graph.ops.cumsum import CumSum
from netspec.graph.ops.gradient_compression import OneBitQuantize
from netspec.graph.ops.group_normalization import GroupNormalization, GroupNormalizationGrad
from netspec.graph.ops.indexing import GatherElements, ScatterElements, ScatterND
from netspec.graph.ops.layer_normalization import (
    LayerNormalization,
    LayerNormalizationGrad,
    RMSNormalization,
    RMSNormalizationGrad,
)
from netspec.graph.ops.linalg import Det, Inverse
from netspec.graph.ops.lrn import LRN, LRNGrad
from netspec.graph.ops.pooling import AveragePool, AveragePoolGrad, MaxPool, MaxPoolGather, MaxPoolGrad, MaxPoolIndices
from netspec.graph.ops.random import RandomUniform
from netspec.graph.ops.topk import TopK
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType

T = TypeVar("T")
Made: TypeAlias = Iterator[tuple[Any, ...]]
"""An op and its operands."""


class Draw:
    """Random sizes and arrays."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one_of(self, *values: T) -> T:
        return values[self.between(0, len(values) - 1)]

    def between(self, low: int, high: int) -> int:
        """A random integer from `low` to `high`, inclusive."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def sizes(self, rank: int, most: int) -> tuple[int, ...]:
        """Random sizes of axes; small ones are more frequent."""
        return tuple(int(np.exp(logarithm)) for logarithm in self.rng.uniform(0, np.log(most + 0.99), rank))

    def floats(self, *sizes: int) -> np.ndarray:
        return self.rng.standard_normal(sizes).astype(np.float32)

    def positive(self, *sizes: int) -> np.ndarray:
        return self.rng.random(sizes).astype(np.float32) + np.float32(0.5)

    def integers(self, low: int, high: int, *sizes: int, dtype: str = "int64") -> np.ndarray:
        """Random integers from `low` to `high` - 1."""
        return self.rng.integers(low, high, sizes).astype(dtype)

    def array(self, *sizes: int) -> np.ndarray:
        """Floats, or integers of a random type."""
        dtype = self.one_of("float32", "float32", "int32", "int64", "uint8", "bool")
        return self.floats(*sizes) if dtype == "float32" else self.integers(0, 9, *sizes, dtype=dtype)

    def window(self, rank: int) -> tuple[Window, tuple[int, ...]]:
        """A window, and sizes of an image that it fits into."""
        size, strides, dilation = (tuple(self.between(1, most) for _ in range(rank)) for most in (3, 3, 2))
        pads = tuple((self.between(0, length - 1), self.between(0, length - 1)) for length in size)
        image = tuple(
            (length - 1) * spacing + self.between(1, 7) for length, spacing in zip(size, dilation, strict=True)
        )
        return Window(size, strides, pads, dilation), image


def of_elements(draw: Draw) -> Made:
    sizes = draw.sizes(draw.between(1, 5), 9)
    repeated = tuple(1 if draw.chance(0.3) else size for size in sizes)[draw.between(0, len(sizes) - 1) :]
    yield elementwise.Add(), draw.floats(*sizes), draw.floats(*repeated)
    yield elementwise.Mul(), draw.floats(*repeated), draw.floats(*(1 if draw.chance(0.2) else size for size in sizes))
    integers = draw.integers(-50, 50, *sizes, dtype=draw.one_of("int32", "int64"))
    yield elementwise.Sub(), integers, integers[::-1].copy()
    yield elementwise.Neg(), draw.floats(draw.one_of(1, 2, 3, 4, 5, 1023, 1024, 1025, 2050))


def reductions(draw: Draw) -> Made:
    any_type = reduce.ReduceSum, reduce.ReduceMax, reduce.ReduceMin
    for most in (5, 12, 40):
        sizes = draw.sizes(draw.between(1, 4), most)
        axes = tuple(int(axis) for axis in np.flatnonzero(draw.rng.random(len(sizes)) < 0.5)) or (0,)
        yield draw.one_of(*any_type, reduce.ReduceMean)(axes, draw.chance()), draw.floats(*sizes)
        integers = draw.integers(-9, 9, *sizes, dtype=draw.one_of("int32", "int64"))
        yield draw.one_of(*any_type)(axes, draw.chance()), integers
    sizes = draw.one_of((3, 33001), (9001, 3), (2, 6500, 3), (1, 20000), (129, 130, 5), (257, 60), (5, 513, 66))
    yield reduce.ReduceMean((draw.between(0, len(sizes) - 1),)), draw.floats(*sizes)
    yield reduce.ReduceSum(), draw.floats(*sizes)


def along_an_axis(draw: Draw) -> Made:
    length, rank = draw.one_of(1, 2, 3, 31, 32, 33, 64, 100, 255, 256, 257, 300), draw.between(1, 4)
    axis, others = draw.between(0, rank - 1), draw.sizes(rank, 4)
    outer, inner = others[:axis], others[axis + 1 :]
    sizes = *outer, length, *inner
    x = draw.floats(*sizes)
    x = np.round(x) if draw.chance() else x
    yield softmax.Softmax(axis), x
    yield softmax.LogSoftmax(axis), 30 * x
    yield softmax.SoftmaxGrad(axis), softmax.Softmax(axis).forward(np, x), draw.floats(*sizes)
    yield reduce.ArgMax(axis), x
    yield TopK(draw.between(1, length), axis, largest=draw.chance()), x
    yield CumSum(axis, exclusive=draw.chance(), reverse=draw.chance()), x
    labels = draw.integers(-2, length + 2, *outer, *inner)
    yield shape.OneHot(length, DType.FLOAT32, axis), labels
    if rank > 1:
        yield SoftmaxCrossEntropyLoss(axis), x, labels.astype("int32")


def products(draw: Draw) -> Made:
    leading: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((), ()), ((2,), ()), ((2,), (2,)), ((2, 1), (3,)), ((), (2,)), ((1,), (3,)), ((2, 3), (2, 3)),
    )  # fmt: skip
    for _ in range(2):
        m, k, n = (draw.one_of(1, 2, 7, 15, 16, 17, 63, 64, 65, 130) for _ in range(3))
        left, right = draw.one_of(*leading)
        turned, other = draw.chance(), draw.chance()
        a, b = (k, m) if turned else (m, k), (n, k) if other else (k, n)
        yield linear.MatMul(turned, other), draw.floats(*left, *a), draw.floats(*right, *b)
    yield linear.MatMul(), draw.floats(draw.one_of(3, 64), 530), draw.floats(530, draw.one_of(1, 5, 70))


def convolutions(draw: Draw) -> Made:
    window, image = draw.window(draw.between(1, 3))
    groups = draw.one_of(1, 1, 2, 3)
    channels, filters = groups * draw.between(1, 4), groups * draw.one_of(1, 3, 17, 66)
    op, x = Conv(window, groups), draw.floats(2, channels, *image)
    weights = draw.floats(filters, channels // groups, *window.size)
    result = op.forward(np, x, weights).shape
    yield op, x, weights
    yield ConvInputGrad(op, TensorType(x.shape, DType.FLOAT32)), draw.floats(*result), weights
    yield ConvWeightGrad(op, TensorType(weights.shape, DType.FLOAT32)), draw.floats(*result), x


def poolings(draw: Draw) -> Made:
    window, image = draw.window(draw.between(1, 3))
    x = draw.floats(2, draw.between(1, 40), *image)
    x = np.round(x) if draw.chance() else x
    greatest, index = MaxPool(window).forward(np, x)
    yield MaxPool(window), x
    yield MaxPoolGrad(window, x.shape), draw.floats(*greatest.shape), index
    yield MaxPoolGather(window), x, index
    if not any(map(any, window.pads)):
        yield MaxPoolIndices(window), x
    counted = () if draw.chance() else window.pads
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = AveragePool(window, counted).forward(np, x)
    if np.isfinite(mean).all():  # no window is completely in the padding
        yield AveragePool(window, counted), x
        yield AveragePoolGrad(window, x.shape, counted), draw.floats(*mean.shape)


def batch_normalizations(draw: Draw) -> Made:
    channels = draw.one_of(1, 3, 31, 32, 33, 70)
    sizes = draw.one_of(1, 2, 5, 40), channels, *draw.sizes(draw.between(0, 3), 6)
    x, scale, shift = draw.floats(*sizes) + 3, draw.positive(channels), draw.floats(channels)
    yield BatchNormalizationTraining(1, 1e-3), x, scale, shift
    yield BatchNormalizationGrad(1, 1.0), x, scale, shift, draw.positive(channels), draw.floats(*sizes)
    yield BatchNormalization(1, 1e-3, 0.99), x, scale, shift, draw.floats(channels), draw.positive(channels)


def row_normalizations(draw: Draw) -> Made:
    length, rows = draw.one_of(1, 3, 31, 32, 33, 100, 1023, 1024, 1025), (draw.one_of(1, 2, 7), draw.one_of(1, 5, 33))
    x, dy, scale, shift = (
        draw.floats(*rows, length),
        draw.floats(*rows, length),
        draw.floats(length),
        draw.floats(length),
    )
    mean, deviation = draw.floats(*rows, 1), draw.positive(*rows, 1)
    yield LayerNormalization(2, 1e-3), x, scale, shift
    yield RMSNormalization(2, 1e-3), x, scale
    yield LayerNormalizationGrad(2, 1.0), x, scale, mean, deviation, dy
    yield RMSNormalizationGrad(2, 1.0), x, scale, deviation, dy
    groups, width = draw.between(1, 3), draw.one_of(1, 2, 5)
    sizes = draw.one_of(1, 3, 20), groups * width, *draw.sizes(draw.between(1, 3), 8)
    x, scale, shift = draw.floats(*sizes), draw.floats(groups * width), draw.floats(groups * width)
    mean, deviation = draw.floats(sizes[0], groups), draw.positive(sizes[0], groups)
    yield GroupNormalization(groups, 1e-3), x, scale, shift
    yield GroupNormalizationGrad(groups, 1.0), x, scale, mean, deviation, draw.floats(*sizes)


def moves(draw: Draw) -> Made:
    sizes = draw.sizes(draw.between(1, 4), draw.one_of(9, 9, 40))
    x, axis = draw.array(*sizes), draw.between(0, len(sizes) - 1)
    length = sizes[axis]
    yield shape.Transpose(tuple(int(axis) for axis in draw.rng.permutation(len(sizes)))), x
    start = draw.between(0, length - 1)
    yield shape.Slice(axis, start, draw.between(start + 1, length)), x
    yield shape.Flip(axis), x
    yield shape.Concat(axis), x, np.concatenate([x, x], axis)
    index = tuple(draw.between(0, length - 1) for _ in range(draw.one_of(1, 3, 20)))
    yield shape.Take(axis, index), x
    gradient = draw.floats(*sizes[:axis], len(index), *sizes[axis + 1 :])
    yield shape.TakeGrad(axis, index, length), gradient
    yield shape.PadAxis(axis, draw.between(0, 3), draw.between(0, 3), 1.5), draw.floats(*sizes)
    if length > 1:
        cut = draw.between(1, length - 1)
        yield shape.Split(axis, (cut, length - cut)), x


def indexed(draw: Draw) -> Made:
    rows, width, count = draw.one_of(1, 3, 40, 300), draw.one_of(1, 2, 5, 64), draw.one_of(1, 7, 250, 1100)
    index = draw.integers(-rows, rows, count)
    yield linear.Gather(), draw.floats(rows, width), index
    yield linear.ScatterRows(rows), draw.floats(count, width), index
    sizes = 2, draw.one_of(1, 4, 50), draw.one_of(1, 3, 17)
    index = draw.integers(-sizes[1], sizes[1], *sizes)
    yield GatherElements(1), draw.floats(*sizes), index
    for reduction in ("none", "add", "mul", "max", "min"):
        yield ScatterElements(1, reduction), draw.floats(*sizes), index, draw.floats(*sizes)
    count = draw.one_of(1, 9, 100)
    index = draw.integers(-sizes[1], sizes[1], 2, count, 1)
    yield ScatterND("add"), draw.floats(*sizes), index, draw.floats(2, count, sizes[2])


def others(draw: Draw) -> Made:
    side = draw.one_of(1, 2, 5, 33, 40)
    yield Det(), draw.floats(2, side, side) / np.float32(np.sqrt(side))
    yield Inverse(), draw.floats(2, side, side) + 3 * np.eye(side, dtype=np.float32) * np.float32(np.sqrt(side))
    sizes, window = (2, draw.one_of(1, 4, 31, 33, 256, 300), 3, 2), draw.one_of(1, 3, 5)
    yield LRN(window, 0.1), draw.floats(*sizes)
    yield LRNGrad(window, 0.1), draw.floats(*sizes), draw.floats(*sizes)
    kind = TensorType((draw.one_of(1, 3, 7), draw.one_of(1, 5, 129)), DType.FLOAT32)
    yield RandomUniform(kind, draw.between(0, 2**31 - 1)), draw.integers(0, 99, 3)
    yield OneBitQuantize(), draw.floats(draw.one_of(1, 7, 300), draw.one_of(1, 5, 40))
    samples, steps, symbols, longest = (
        draw.one_of(1, 3),
        draw.one_of(1, 5, 30),
        draw.one_of(2, 5, 20),
        draw.one_of(1, 3, 70),
    )
    scores = softmax.LogSoftmax(2).forward(np, draw.floats(samples, steps, symbols))
    labels = draw.integers(1, symbols, samples, longest, dtype="int32")
    lengths = draw.integers(1, steps + 1, samples), draw.integers(0, longest + 1, samples)
    yield CTCLoss(0), scores, labels, *lengths
    yield CTCLossGrad(0), scores, labels, *lengths, draw.floats(samples)


Family: TypeAlias = Callable[[Draw], Made]
FAMILIES: tuple[Family, ...] = (
    of_elements, reductions, along_an_axis, products, convolutions, poolings, batch_normalizations, row_normalizations,
    moves, indexed, others,
)  # fmt: skip


def random_calls(seed: int, families: Iterable[Family] = FAMILIES) -> Iterator[OpCall]:
    """Calls of families of ops."""
    for family in families:
        for op, *arrays in family(Draw(seed, FAMILIES.index(family))):
            assert isinstance(op, Op)
            yield call(op, *arrays)
