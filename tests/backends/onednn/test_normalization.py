"""Batch, layer and local response normalization and softmax, against formulas and their numerical gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.backends.onednn import primitive_descs
from netspec.backends.onednn.constants import AlgKind, Arg, NormalizationFlags
from netspec.graph.op import Array
from tests.backends.onednn.harness import LAYOUTS, Run, assert_close, describe, uniform
from tests.backends.onednn.naive import numerical_gradient

EPSILON = 1e-3
SCALE_SHIFT = NormalizationFlags.USE_SCALE | NormalizationFlags.USE_SHIFT
# A gradient divides by the deviation of a few numbers: some tens of roundings of size 1 (the numerical one: 1e-9).
GRADIENT_TERMS = 64


def normalize(
    x: Array, scale: Array, shift: Array, axes: Any, mean: Array | None = None, variance: Array | None = None
) -> Array:
    x = x.astype(np.float64)
    mean = x.mean(axes, keepdims=True) if mean is None else mean
    variance = x.var(axes, keepdims=True) if variance is None else variance
    return (x - mean) / np.sqrt(variance + EPSILON) * scale + shift


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (3, 5, 4, 3), (2, 16, 3, 3), (2, 3, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("layout", ["plain", "channels_last"])
def test_batch_normalization(engine, shape, layout):
    x, dy = uniform(*shape), uniform(*shape, seed=1)
    scale, shift = uniform(shape[1], seed=2) + 2, uniform(shape[1], seed=3)
    axes, channel = (0, *range(2, len(shape))), (1, -1, *[1] * (len(shape) - 2))
    desc = describe(engine, shape, layout)

    forward = primitive_descs.batch_normalization_forward(desc, desc, EPSILON, SCALE_SHIFT)
    run = Run(forward, {Arg.SRC: x, Arg.SCALE: scale, Arg.SHIFT: shift})
    wide = x.astype(np.float64)

    def expected(values: Array) -> Array:
        return normalize(values, scale.reshape(channel), shift.reshape(channel), axes)

    assert_close(run[Arg.DST], expected(x), 32)
    assert_close(run[Arg.MEAN], wide.mean(axes), 32)
    assert_close(run[Arg.VARIANCE], wide.var(axes), 32)

    backward = primitive_descs.batch_normalization_backward(desc, desc, desc, EPSILON, SCALE_SHIFT, forward)
    statistics = {Arg.MEAN: run[Arg.MEAN], Arg.VARIANCE: run[Arg.VARIANCE]}
    run = Run(backward, {Arg.SRC: x, Arg.DIFF_DST: dy, Arg.SCALE: scale, **statistics})
    assert_close(run[Arg.DIFF_SRC], numerical_gradient(expected, x, dy), GRADIENT_TERMS)
    assert_close(run[Arg.DIFF_SCALE], (normalize(x, 1, 0, axes) * dy).sum(axes), GRADIENT_TERMS)
    assert_close(run[Arg.DIFF_SHIFT], dy.astype(np.float64).sum(axes), GRADIENT_TERMS)


def test_batch_normalization_by_given_statistics(engine):
    x, mean, variance = uniform(2, 3, 4, 4), uniform(3, seed=1), uniform(3, seed=2) ** 2
    scale, shift = uniform(3, seed=3), uniform(3, seed=4)
    desc = describe(engine, x.shape)
    flags = SCALE_SHIFT | NormalizationFlags.USE_GLOBAL_STATS
    forward = primitive_descs.batch_normalization_forward(desc, desc, EPSILON, flags, training=False)
    arguments = {Arg.MEAN: mean, Arg.VARIANCE: variance, Arg.SCALE: scale, Arg.SHIFT: shift}
    run = Run(forward, {Arg.SRC: x, **arguments})
    mean, variance, scale, shift = (array.astype(np.float64).reshape(1, 3, 1, 1) for array in arguments.values())
    # Some 1/√(variance + ε) are near 20.
    assert_close(run[Arg.DST], normalize(x, scale, shift, None, mean, variance), 64)


@pytest.mark.parametrize("layout", ["plain", "channels_last"])
def test_batch_normalization_with_fused_relu(engine, layout):
    shape = (2, 16, 5, 4)
    x, dy = uniform(*shape), uniform(*shape, seed=1)
    scale, shift = uniform(16, seed=2) + 2, uniform(16, seed=3)
    desc, axes, channel = describe(engine, shape, layout), (0, 2, 3), (1, 16, 1, 1)
    flags = SCALE_SHIFT | NormalizationFlags.FUSE_RELU
    forward = primitive_descs.batch_normalization_forward(desc, desc, EPSILON, flags)
    run = Run(forward, {Arg.SRC: x, Arg.SCALE: scale, Arg.SHIFT: shift})
    y = normalize(x, scale.reshape(channel), shift.reshape(channel), axes)
    assert_close(run[Arg.DST], np.maximum(y, 0), 32)

    backward = primitive_descs.batch_normalization_backward(desc, desc, desc, EPSILON, flags, forward)
    arguments = {Arg.MEAN: run[Arg.MEAN], Arg.VARIANCE: run[Arg.VARIANCE], Arg.SCALE: scale}
    workspace = {Arg.WORKSPACE: run.memories[Arg.WORKSPACE]}
    run = Run(backward, {Arg.SRC: x, Arg.DIFF_DST: dy, **arguments, **workspace})
    passed = np.where(y > 0, dy, 0).astype(np.float64)
    normalized = normalize(x, 1, 0, axes)
    assert_close(run[Arg.DIFF_SHIFT], passed.sum(axes), GRADIENT_TERMS)
    assert_close(run[Arg.DIFF_SCALE], (passed * normalized).sum(axes), GRADIENT_TERMS)
    centered = passed - passed.mean(axes, keepdims=True) - normalized * (passed * normalized).mean(axes, keepdims=True)
    deviation = np.sqrt(x.astype(np.float64).var(axes, keepdims=True) + EPSILON)
    assert_close(run[Arg.DIFF_SRC], centered * scale.reshape(channel) / deviation, GRADIENT_TERMS)


@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 16), (2, 3, 2, 9)], ids=str)
def test_layer_normalization(engine, shape):
    x, dy = uniform(*shape), uniform(*shape, seed=1)
    scale, shift = uniform(shape[-1], seed=2), uniform(shape[-1], seed=3)
    desc, statistics = describe(engine, shape), describe(engine, shape[:-1])
    forward = primitive_descs.layer_normalization_forward(desc, desc, statistics, EPSILON, SCALE_SHIFT)
    run = Run(forward, {Arg.SRC: x, Arg.SCALE: scale, Arg.SHIFT: shift})
    assert_close(run[Arg.DST], normalize(x, scale, shift, -1), 32)

    arguments = (desc, desc, desc, statistics, EPSILON, SCALE_SHIFT, forward)
    backward = primitive_descs.layer_normalization_backward(*arguments)
    known_arrays = {Arg.MEAN: run[Arg.MEAN], Arg.VARIANCE: run[Arg.VARIANCE], Arg.SCALE: scale, Arg.SHIFT: shift}
    known_arrays = {argument: array for argument, array in known_arrays.items() if argument in backward.arguments}
    run = Run(backward, {Arg.SRC: x, Arg.DIFF_DST: dy, **known_arrays})
    gradient = numerical_gradient(lambda values: normalize(values, scale, shift, -1), x, dy)
    assert_close(run[Arg.DIFF_SRC], gradient, GRADIENT_TERMS)
    others = tuple(range(len(shape) - 1))
    assert_close(run[Arg.DIFF_SCALE], (normalize(x, 1, 0, -1) * dy).sum(others), GRADIENT_TERMS)
    assert_close(run[Arg.DIFF_SHIFT], dy.astype(np.float64).sum(others), GRADIENT_TERMS)


FLAGS = [NormalizationFlags.NONE, NormalizationFlags.USE_SCALE, NormalizationFlags.USE_SHIFT, SCALE_SHIFT]


@pytest.mark.parametrize("flags", FLAGS)
def test_scale_and_shift_are_taken_separately(engine, flags):
    """The library describes both where it takes one, and refuses to run with what it does not take."""
    x, dy, scale, shift = uniform(4, 3, 5), uniform(4, 3, 5, seed=1), uniform(3, seed=2), uniform(3, seed=3)
    desc = describe(engine, x.shape)
    forward = primitive_descs.batch_normalization_forward(desc, desc, EPSILON, flags)
    arguments = {}
    if flags & NormalizationFlags.USE_SCALE:
        arguments[Arg.SCALE] = scale
    run = Run(forward, arguments | {Arg.SRC: x} | ({Arg.SHIFT: shift} if flags & NormalizationFlags.USE_SHIFT else {}))
    scaled = scale.reshape(1, 3, 1) if Arg.SCALE in arguments else 1
    shifted = shift.reshape(1, 3, 1) if flags & NormalizationFlags.USE_SHIFT else 0
    assert_close(run[Arg.DST], normalize(x, scaled, shifted, (0, 2)), 32)

    backward = primitive_descs.batch_normalization_backward(desc, desc, desc, EPSILON, flags, forward)
    statistics = {Arg.MEAN: run[Arg.MEAN], Arg.VARIANCE: run[Arg.VARIANCE]}
    gradients = Run(backward, {Arg.SRC: x, Arg.DIFF_DST: dy, **arguments, **statistics})
    gradient = numerical_gradient(lambda values: normalize(values, scaled, shifted, (0, 2)), x, dy)
    assert_close(gradients[Arg.DIFF_SRC], gradient, GRADIENT_TERMS)
    assert (Arg.DIFF_SCALE in backward.arguments) == bool(flags & NormalizationFlags.USE_SCALE)
    assert (Arg.DIFF_SHIFT in backward.arguments) == bool(flags & NormalizationFlags.USE_SHIFT)


def test_layer_normalization_takes_scale_and_shift_separately(engine):
    x = uniform(4, 7)
    desc, statistics = describe(engine, x.shape), describe(engine, (4,))
    for flags in FLAGS:
        forward = primitive_descs.layer_normalization_forward(desc, desc, statistics, EPSILON, flags)
        takes = {Arg.SCALE: NormalizationFlags.USE_SCALE, Arg.SHIFT: NormalizationFlags.USE_SHIFT}
        unit_arrays = {arg: np.ones(7, np.float32) for arg, flag in takes.items() if flags & flag}
        run = Run(forward, {Arg.SRC: x, **unit_arrays})
        assert_close(run[Arg.DST], normalize(x, 1, 1 if Arg.SHIFT in unit_arrays else 0, -1), 32)


def response(x: Array, algorithm: AlgKind, size: int) -> Array:
    """Across channels: Σ over `size` channels; within: over size × size pixels."""
    half = size // 2
    wide = x.astype(np.float64)
    axes: tuple[int, ...] = (1,) if algorithm is AlgKind.LRN_ACROSS_CHANNELS else (2, 3)
    padded = np.pad(wide**2, [(half, half) if axis in axes else (0, 0) for axis in range(4)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, [size] * len(axes), axis=axes)
    total = windows.sum(tuple(range(4, windows.ndim)))
    return wide * (1.5 + 0.7 / size ** len(axes) * total) ** -0.75


@pytest.mark.parametrize("layout", ["plain", "channels_last"])
@pytest.mark.parametrize("channels", [6, 16])
@pytest.mark.parametrize("algorithm", [AlgKind.LRN_ACROSS_CHANNELS, AlgKind.LRN_WITHIN_CHANNEL])
def test_local_response_normalization(engine, algorithm, channels, layout):
    shape = (2, channels, 4, 5)
    x = uniform(*shape)
    desc, numbers = describe(engine, shape, layout), (algorithm, 3, 0.7, 0.75, 1.5)
    forward = primitive_descs.lrn_forward(desc, desc, *numbers)
    run = Run(forward, {Arg.SRC: x})
    assert_close(run[Arg.DST], response(x, algorithm, 3), 16)


@pytest.mark.parametrize(("shape", "axis"), [((3, 10), 1), ((2, 5, 3), 1), ((2, 3, 4, 17), 3), ((4, 1), 1)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("logarithm", [False, True])
def test_softmax(engine, shape, axis, layout, logarithm):
    x, dy = 8 * uniform(*shape), uniform(*shape, seed=1)
    src, dst = describe(engine, shape, "plain" if layout == "any" else layout), describe(engine, shape, layout)
    forward = primitive_descs.softmax_forward(src, dst, axis, logarithm=logarithm)
    y = Run(forward, {Arg.SRC: x})[Arg.DST]
    wide = x.astype(np.float64)
    shifted = wide - wide.max(axis, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    # A logarithm is as large as 16 and rounded there.
    assert_close(y, log if logarithm else np.exp(log), 32)

    src, dst = forward[Arg.SRC], forward[Arg.DST]
    backward = primitive_descs.softmax_backward(src, dst, dst, axis, forward, logarithm=logarithm)
    probability = np.exp(log)
    dy = dy.astype(np.float64)
    if logarithm:
        expected = dy - probability * dy.sum(axis, keepdims=True)
    else:
        expected = probability * (dy - (dy * probability).sum(axis, keepdims=True))
    run = Run(backward, {Arg.DST: y, Arg.DIFF_DST: dy.astype(np.float32)})
    assert_close(run[Arg.DIFF_SRC], expected, 64)


def test_fused_relu_turns_nan_into_zero(engine):
    """Why a ReLU behind a normalization is not left to the library: the guard would not see NaN."""
    x = uniform(2, 16, 5, 4)
    x[0, 3] = np.nan
    desc = describe(engine, x.shape, "channels_last")
    flags = SCALE_SHIFT | NormalizationFlags.FUSE_RELU
    forward = primitive_descs.batch_normalization_forward(desc, desc, EPSILON, flags)
    run = Run(forward, {Arg.SRC: x, Arg.SCALE: uniform(16), Arg.SHIFT: uniform(16, seed=1)})
    assert not np.isnan(run[Arg.DST]).any()
