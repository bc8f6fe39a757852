"""Eltwise, binary, sum, reduction, concatenation, reorder and resampling against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from math import erf

import numpy as np
import pytest

from netspec.backends.onednn import primitive_descs
from netspec.backends.onednn.constants import AlgKind, Arg, DataType, Tag, multiple_src
from netspec.backends.onednn.memory import Memory, MemoryDesc
from netspec.graph.op import Array
from tests.backends.onednn.harness import LAYOUTS, Run, assert_close, buffer, copy, describe, stored, to_plain, uniform
from tests.backends.onednn.naive import numerical_gradient


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


ELTWISE: dict[AlgKind, tuple[Callable[[Array], Array], AlgKind | None, float, float]] = {
    # algorithm: (function, its one that computes the gradient from the result, α, β)
    AlgKind.ELTWISE_RELU: (lambda x: np.where(x > 0, x, 0.1 * x), AlgKind.ELTWISE_RELU_USE_DST, 0.1, 0),
    AlgKind.ELTWISE_TANH: (np.tanh, AlgKind.ELTWISE_TANH_USE_DST, 0, 0),
    AlgKind.ELTWISE_ELU: (lambda x: np.where(x > 0, x, 0.7 * np.expm1(x)), AlgKind.ELTWISE_ELU_USE_DST, 0.7, 0),
    AlgKind.ELTWISE_SQUARE: (np.square, None, 0, 0),
    AlgKind.ELTWISE_ABS: (np.abs, None, 0, 0),
    AlgKind.ELTWISE_LINEAR: (lambda x: 2 * x + 0.5, None, 2, 0.5),
    AlgKind.ELTWISE_SOFT_RELU: (lambda x: np.log1p(np.exp(2 * x)) / 2, None, 2, 0),
    AlgKind.ELTWISE_HARDSIGMOID: (lambda x: np.clip(0.2 * x + 0.5, 0, 1), None, 0.2, 0.5),
    AlgKind.ELTWISE_LOGISTIC: (sigmoid, AlgKind.ELTWISE_LOGISTIC_USE_DST, 0, 0),
    AlgKind.ELTWISE_EXP: (np.exp, AlgKind.ELTWISE_EXP_USE_DST, 0, 0),
    AlgKind.ELTWISE_GELU_TANH: (
        lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), None, 0, 0,
    ),
    AlgKind.ELTWISE_GELU_ERF: (lambda x: x / 2 * (1 + np.vectorize(erf)(x / 2**0.5)), None, 0, 0),
    AlgKind.ELTWISE_SWISH: (lambda x: x * sigmoid(1.5 * x), None, 1.5, 0),
    AlgKind.ELTWISE_CLIP_V2: (lambda x: np.clip(x, -0.5, 0.75), AlgKind.ELTWISE_CLIP_V2_USE_DST, -0.5, 0.75),
    AlgKind.ELTWISE_MISH: (lambda x: x * np.tanh(np.log1p(np.exp(x))), None, 0, 0),
    AlgKind.ELTWISE_HARDSWISH: (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), None, 1 / 6, 0.5),
}  # fmt: skip
# The library approximates exp, log, tanh and erf by polynomials, to some units in the last place of 1.
APPROXIMATE = 64


@pytest.mark.parametrize("algorithm", ELTWISE, ids=lambda case: case.name)
@pytest.mark.parametrize("layout", ["plain", "channels_last"])
def test_eltwise(engine, algorithm, layout):
    function, by_result, alpha, beta = ELTWISE[algorithm]
    shape = (2, 5, 3, 7)
    x, dy = 2 * uniform(*shape), uniform(*shape, seed=1)
    desc = describe(engine, shape, layout)
    forward = primitive_descs.eltwise_forward(desc, desc, algorithm, alpha, beta)
    y = Run(forward, {Arg.SRC: x})[Arg.DST]
    assert_close(y, function(x.astype(np.float64)), APPROXIMATE)

    slope = numerical_gradient(function, x, dy)
    backward = primitive_descs.eltwise_backward(desc, desc, desc, algorithm, forward, alpha, beta)
    assert_close(Run(backward, {Arg.SRC: x, Arg.DIFF_DST: dy})[Arg.DIFF_SRC], slope, APPROXIMATE)
    if by_result is not None:
        forward = primitive_descs.eltwise_forward(desc, desc, by_result, alpha, beta)
        backward = primitive_descs.eltwise_backward(desc, desc, desc, by_result, forward, alpha, beta)
        assert_close(Run(backward, {Arg.DST: y, Arg.DIFF_DST: dy})[Arg.DIFF_SRC], slope, APPROXIMATE)


@pytest.mark.parametrize(
    ("algorithm", "function"),
    [
        (AlgKind.ELTWISE_LOG, np.log),
        (AlgKind.ELTWISE_SQRT, np.sqrt),
        (AlgKind.ELTWISE_ROUND, np.rint),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_eltwise_of_positive_numbers(engine, algorithm, function):
    x = 2 + uniform(3, 5)
    desc = describe(engine, x.shape)
    forward = primitive_descs.eltwise_forward(desc, desc, algorithm, training=False)
    assert_close(Run(forward, {Arg.SRC: x})[Arg.DST], function(x.astype(np.float64)), APPROXIMATE)


def test_eltwise_in_place(engine):
    x = uniform(17)
    expected = np.maximum(x, 0)
    memory = Memory.of(engine, x)
    desc = primitive_descs.eltwise_forward(memory.desc, memory.desc, AlgKind.ELTWISE_RELU)
    desc.primitive().bind({Arg.SRC: memory, Arg.DST: memory})()
    np.testing.assert_array_equal(x, expected)


BINARY: dict[AlgKind, Callable[..., Array]] = {
    AlgKind.BINARY_ADD: np.add, AlgKind.BINARY_MUL: np.multiply, AlgKind.BINARY_MAX: np.maximum,
    AlgKind.BINARY_MIN: np.minimum, AlgKind.BINARY_DIV: np.divide, AlgKind.BINARY_SUB: np.subtract,
    AlgKind.BINARY_GE: np.greater_equal, AlgKind.BINARY_GT: np.greater, AlgKind.BINARY_LE: np.less_equal,
    AlgKind.BINARY_LT: np.less, AlgKind.BINARY_EQ: np.equal, AlgKind.BINARY_NE: np.not_equal,
}  # fmt: skip


@pytest.mark.parametrize("algorithm", BINARY, ids=lambda case: case.name)
@pytest.mark.parametrize("other", [(2, 5, 3, 7), (1, 5, 1, 1), (1, 1, 1, 1), (1, 1, 3, 7)], ids=str)
def test_binary(engine, algorithm, other):
    a, b = uniform(2, 5, 3, 7), uniform(*other, seed=1)
    a[0, 0] = b[0, 0, 0, 0]  # some are equal
    desc = describe(engine, a.shape)
    run = Run(primitive_descs.binary(desc, describe(engine, other), desc, algorithm), {Arg.SRC: a, Arg.SRC_1: b})
    # Each is a single operation of IEEE 754, correctly rounded; only a quotient may be one unit off.
    np.testing.assert_allclose(run[Arg.DST], BINARY[algorithm](a, b).astype(np.float32), rtol=2.0**-22)


REDUCTIONS: dict[AlgKind, Callable[..., Array]] = {
    AlgKind.REDUCTION_MAX: np.max, AlgKind.REDUCTION_MIN: np.min, AlgKind.REDUCTION_SUM: np.sum,
    AlgKind.REDUCTION_MUL: np.prod, AlgKind.REDUCTION_MEAN: np.mean,
    AlgKind.REDUCTION_NORM_LP_SUM: lambda x, axes, keepdims: np.sqrt((x**2).sum(axes, keepdims=keepdims) + 0.25),
}  # fmt: skip


@pytest.mark.parametrize("algorithm", REDUCTIONS, ids=lambda case: case.name)
@pytest.mark.parametrize("axes", [(1,), (0, 2, 3), (3,), (0, 1, 2, 3)], ids=str)
def test_reduction(engine, algorithm, axes):
    x = uniform(3, 5, 4, 7)
    expected = REDUCTIONS[algorithm](x.astype(np.float64), axes, keepdims=True)
    desc = primitive_descs.reduction(describe(engine, x.shape), describe(engine, expected.shape), algorithm, 2.0, 0.25)
    assert_close(Run(desc, {Arg.SRC: x})[Arg.DST], expected, 32)


@pytest.mark.parametrize("axis", [0, 1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_concat(engine, axis, layout):
    shapes = [tuple(3 + i if a == axis else size for a, size in enumerate((2, 5, 3, 4))) for i in range(3)]
    parts = [uniform(*shape, seed=i) for i, shape in enumerate(shapes)]
    expected = np.concatenate(parts, axis)
    sources = [describe(engine, shape, "plain" if layout == "any" else layout) for shape in shapes]
    dst = None if layout == "any" else describe(engine, expected.shape, layout)
    desc = primitive_descs.concat(sources, dst, axis)
    run = Run(desc, {multiple_src(i): part for i, part in enumerate(parts)})
    np.testing.assert_array_equal(run[Arg.DST], expected)


def test_a_concatenation_into_parts_of_its_result(engine):
    """Each source may be written into its place by whoever computes it: no concatenation is left to do."""
    parts = [uniform(2, channels, 4, seed=channels) for channels in (3, 5)]
    full = np.zeros((2, 8, 4), np.float32)
    desc = MemoryDesc.of(engine, full)
    for part, start in zip(parts, (0, 3), strict=True):
        copy(Memory.of(engine, part), Memory(desc.part(part.shape, (0, start, 0)), full))
    np.testing.assert_array_equal(full, np.concatenate(parts, 1))


@pytest.mark.parametrize("tag", [Tag.ABCD_B8, Tag.ABCD_B16])
def test_reorder_between_layouts_and_types(engine, tag):
    x = uniform(2, 19, 3, 5)
    blocked = buffer(MemoryDesc.tagged(engine, x.shape, tag))
    copy(Memory.of(engine, x), blocked)
    size = {Tag.ABCD_B8: 8, Tag.ABCD_B16: 16}[tag]
    assert blocked.desc.blocks == ((1, size),)
    padded = np.pad(x, [(0, 0), (0, -19 % size), (0, 0), (0, 0)])
    tiles = padded.reshape(2, -1, size, 3, 5).transpose(0, 1, 3, 4, 2)
    np.testing.assert_array_equal(stored(blocked, np.float32), tiles.reshape(-1))
    np.testing.assert_array_equal(to_plain(blocked), x)

    half = buffer(MemoryDesc.strided(engine, x.shape, dtype=DataType.BF16))
    copy(Memory.of(engine, x), half)
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # to the nearest, ties to even
    np.testing.assert_array_equal(stored(half, np.uint16), rounded.astype(np.uint16).reshape(-1))


@pytest.mark.parametrize(("shape", "sizes"), [((2, 3, 5), (9,)), ((2, 3, 4, 5), (7, 10)), ((1, 2, 3, 2, 4), (3, 5, 2))])
@pytest.mark.parametrize("layout", ["plain", "channels_last"])
@pytest.mark.parametrize("algorithm", [AlgKind.RESAMPLING_NEAREST, AlgKind.RESAMPLING_LINEAR])
def test_resampling(engine, shape, sizes, layout, algorithm):
    def resample(x: Array) -> Array:
        for axis, size in enumerate(sizes, start=2):
            x = np.moveaxis(np.tensordot(weights(x.shape[axis], size), x, axes=(1, axis)), 0, axis)
        return x

    def weights(old: int, new: int) -> Array:
        """Row i: what each old element gives to the new element i, whose center is at (i + ½) · old/new − ½.

        Of two elements equally near, the latter is taken.
        """
        matrix = np.zeros((new, old))
        for i in range(new):
            center = (i + 0.5) * old / new - 0.5
            if algorithm is AlgKind.RESAMPLING_NEAREST:
                matrix[i, min(max(int(np.floor(center + 0.5)), 0), old - 1)] = 1
                continue
            low = int(np.floor(center))
            matrix[i, max(low, 0)] += 1 - (center - low)
            matrix[i, min(low + 1, old - 1)] += center - low
        return matrix

    x = uniform(*shape)
    y = resample(x.astype(np.float64))
    src, dst = describe(engine, shape, layout), describe(engine, y.shape, layout)
    forward = primitive_descs.resampling_forward(src, dst, algorithm)
    assert_close(Run(forward, {Arg.SRC: x})[Arg.DST], y, 8)

    dy = uniform(*y.shape, seed=1)
    backward = primitive_descs.resampling_backward(src, dst, algorithm, forward)
    gradient = numerical_gradient(resample, x, dy)  # linear: right to float64's rounding over the step, 1e-10
    assert_close(Run(backward, {Arg.DIFF_DST: dy})[Arg.DIFF_SRC], gradient, 16)
