"""Convolutions, transposed convolutions and poolings against NumPy, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.backends.onednn import primitive_descs
from netspec.backends.onednn.attributes import Attributes, EltwisePostOp, SumPostOp
from netspec.backends.onednn.constants import AlgKind, Arg, DataType, FormatKind, Status
from netspec.backends.onednn.memory import Memory
from netspec.backends.onednn.native import OneDnnError
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.openmp import using_threads
from netspec.graph.op import Array
from netspec.graph.ops.window import Window
from tests.backends.onednn import naive
from tests.backends.onednn.harness import LAYOUTS, Run, assert_close, buffer, copy, describe, to_plain, uniform

CASES = {
    # input, output channels, groups, window
    "1d": ((2, 3, 11), 5, 1, Window((3,), (2,), ((1, 0),), (1,))),
    "2d": ((2, 3, 7, 6), 4, 1, Window((3, 2), (1, 1), ((0, 0), (0, 0)), (1, 1))),
    "2d-uneven": ((2, 5, 9, 8), 7, 1, Window((3, 3), (2, 1), ((0, 1), (2, 1)), (1, 1))),
    "2d-blocked": ((2, 16, 6, 6), 32, 1, Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))),
    "2d-pointwise": ((1, 6, 5, 4), 8, 1, Window((1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1))),
    "2d-dilated": ((2, 4, 9, 9), 3, 1, Window((3, 3), (1, 2), ((2, 1), (0, 0)), (2, 3))),
    "2d-grouped": ((2, 6, 7, 7), 4, 2, Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))),
    "2d-depthwise": ((2, 5, 7, 6), 5, 5, Window((3, 3), (2, 1), ((1, 1), (1, 1)), (1, 1))),
    "3d": ((2, 2, 5, 4, 6), 3, 1, Window((2, 3, 2), (1, 1, 2), ((0, 1), (1, 1), (0, 0)), (1, 1, 1))),
}
case = pytest.mark.parametrize(("shape", "filters", "groups", "window"), CASES.values(), ids=CASES)
in_each_layout = pytest.mark.parametrize("layout", LAYOUTS)


def split_groups(w: Array, groups: int) -> Array:
    """(M, C/groups, kernel…) → (groups, M/groups, C/groups, kernel…): a view of the same memory."""
    return w if groups == 1 else w.reshape(groups, len(w) // groups, *w.shape[1:])


class Convolution:
    """A convolution with its operands and descriptors."""

    def __init__(self, engine, shape, filters, groups, window, layout="any", dtype=DataType.F32) -> None:
        self.shape, self.groups, self.window = shape, groups, window
        self.x, self.b = uniform(*shape), uniform(filters, seed=1)
        self.w = uniform(filters, shape[1] // groups, *window.size, seed=2)
        self.y = naive.convolution(self.x, self.w, window, groups)
        self.dy = uniform(*self.y.shape, seed=3)
        self.terms = self.w[0].size
        self.src, self.dst = describe(engine, shape, layout, dtype), describe(engine, self.y.shape, layout, dtype)
        kernel = split_groups(self.w, groups).shape
        self.weights = describe(engine, kernel, "plain" if layout == "plain" else "any", dtype)
        self.bias = describe(engine, (filters,))

    def forward(self, **options: Any) -> PrimitiveDesc:
        return primitive_descs.convolution_forward(self.src, self.weights, self.bias, self.dst, self.window, **options)

    @property
    def operands(self) -> dict[int, Array]:
        return {Arg.SRC: self.x, Arg.WEIGHTS: split_groups(self.w, self.groups), Arg.BIAS: self.b}

    @property
    def biased(self) -> Array:
        return self.y + self.b.reshape(-1, *[1] * len(self.window.size))


@case
@in_each_layout
def test_convolution_forward(engine, shape, filters, groups, window, layout):
    conv = Convolution(engine, shape, filters, groups, window, layout)
    run = Run(conv.forward(), conv.operands)
    assert_close(run[Arg.DST], conv.biased, conv.terms + 1)


@case
@in_each_layout
def test_convolution_backward_data(engine, shape, filters, groups, window, layout):
    conv = Convolution(engine, shape, filters, groups, window, layout)
    desc = primitive_descs.convolution_backward_data(conv.src, conv.weights, conv.dst, window, conv.forward())
    run = Run(desc, {Arg.DIFF_DST: conv.dy, Arg.WEIGHTS: split_groups(conv.w, groups)})
    expected = naive.convolution_input_gradient(conv.dy, conv.w, shape, window, groups)
    assert_close(run[Arg.DIFF_SRC], expected, conv.terms * filters)


@case
@in_each_layout
def test_convolution_backward_weights(engine, shape, filters, groups, window, layout):
    conv = Convolution(engine, shape, filters, groups, window, layout)
    arguments = (conv.src, conv.weights, conv.bias, conv.dst, window, conv.forward())
    run = Run(primitive_descs.convolution_backward_weights(*arguments), {Arg.SRC: conv.x, Arg.DIFF_DST: conv.dy})
    expected = naive.convolution_weight_gradient(conv.x, conv.dy, conv.w.shape, window, groups)
    terms = conv.dy[:, 0].size
    assert_close(run[Arg.DIFF_WEIGHTS].reshape(conv.w.shape), expected, terms)
    spatial = (0, *range(2, conv.dy.ndim))
    assert_close(run[Arg.DIFF_BIAS], conv.dy.astype(np.float64).sum(spatial), terms)


@in_each_layout
def test_post_ops_run_in_order_behind_the_bias(engine, layout):
    conv = Convolution(engine, *CASES["2d-uneven"], layout)
    attributes = Attributes(engine, [SumPostOp(0.5), EltwisePostOp(AlgKind.ELTWISE_RELU)])
    previous = uniform(*conv.y.shape, seed=4)
    run = Run(conv.forward(attributes=attributes), {**conv.operands, Arg.DST: previous})
    assert_close(run[Arg.DST], np.maximum(conv.biased + 0.5 * previous, 0), conv.terms + 2)


def test_the_library_chooses_a_blocked_layout_and_pads_it(engine):
    conv = Convolution(engine, (2, 20, 6, 6), 50, 1, Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)))
    desc = conv.forward()
    weights = desc[Arg.WEIGHTS]
    assert weights.format_kind is FormatKind.BLOCKED
    assert weights.shape == (50, 20, 3, 3)
    for axis, size in weights.blocks:
        assert weights.padded_shape[axis] % size == 0
    assert weights.nbytes >= 4 * conv.w.size
    assert_close(Run(desc, conv.operands)[Arg.DST], conv.biased, conv.terms + 1)


def test_every_implementation_computes_the_same(engine):
    conv = Convolution(engine, *CASES["2d-grouped"], "channels_last")
    desc = conv.forward()
    others = list(desc.alternatives())
    assert others
    assert len({desc.implementation, *(other.implementation for other in others)}) > 1
    for other in others:
        assert_close(Run(other, conv.operands)[Arg.DST], conv.biased, conv.terms + 1)


def test_two_threads_agree_with_the_formula_and_with_themselves(engine):
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    conv = Convolution(engine, (4, 16, 5, 5), 8, 1, window)
    with using_threads(2):
        forward = conv.forward()
        update = primitive_descs.convolution_backward_weights(
            conv.src, conv.weights, conv.bias, conv.dst, window, forward
        )
        assert_close(Run(forward, conv.operands)[Arg.DST], conv.biased, conv.terms + 1)
        runs = [Run(update, {Arg.SRC: conv.x, Arg.DIFF_DST: conv.dy})[Arg.DIFF_WEIGHTS] for _ in range(3)]
    assert_close(runs[0], naive.convolution_weight_gradient(conv.x, conv.dy, conv.w.shape, window), conv.dy[:, 0].size)
    assert all(np.array_equal(runs[0], run) for run in runs)


def test_bfloat16_rounds_operands_and_sums_in_float32(engine):
    conv = Convolution(engine, *CASES["2d-blocked"], "any", DataType.BF16)
    try:
        desc = conv.forward()
    except OneDnnError as error:
        if error.code != Status.UNIMPLEMENTED:
            raise
        pytest.skip(f"no bfloat16 convolution on {engine.library.instruction_set}")
    # Two operands rounded to 8 bits, the result too: a relative error of 2⁻⁹ each, random over the terms of a sum.
    expected = conv.biased
    np.testing.assert_allclose(Run(desc, conv.operands)[Arg.DST], expected, rtol=2**-8, atol=conv.terms**0.5 * 2**-8)


DECONVOLUTIONS = {
    # output of the transposed convolution, its input channels, groups, window
    "1d": ((2, 3, 10), 4, 1, Window((3,), (2,), ((1, 0),), (1,))),
    "2d": ((2, 3, 9, 8), 5, 1, Window((3, 2), (2, 2), ((1, 1), (0, 0)), (1, 1))),
    "2d-grouped": ((2, 6, 7, 7), 4, 2, Window((3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1))),
    "2d-dilated": ((1, 4, 9, 9), 3, 1, Window((3, 3), (1, 1), ((1, 2), (0, 0)), (2, 2))),
    "3d": ((2, 2, 5, 4, 6), 3, 1, Window((2, 3, 2), (1, 1, 2), ((0, 1), (1, 1), (0, 0)), (1, 1, 1))),
}


@pytest.mark.parametrize(("shape", "channels", "groups", "window"), DECONVOLUTIONS.values(), ids=DECONVOLUTIONS)
@in_each_layout
def test_deconvolution_is_the_transpose_of_a_convolution(engine, shape, channels, groups, window, layout):
    w = uniform(channels, shape[1] // groups, *window.size, seed=1)  # of the convolution: (filters, channels, kernel…)
    conv = naive.convolution(np.zeros(shape), w, window, groups)
    x, b = uniform(*conv.shape), uniform(shape[1], seed=3)
    src, dst, bias = describe(engine, x.shape, layout), describe(engine, shape, layout), describe(engine, b.shape)
    split, axis = split_groups(w, groups), int(groups > 1)
    flipped = np.swapaxes(split, axis, axis + 1)  # oneDNN: ([groups,] output channels, input channels, kernel…)
    weights = describe(engine, flipped.shape, "plain" if layout == "plain" else "any")

    forward = primitive_descs.deconvolution_forward(src, weights, bias, dst, window)
    y = Run(forward, {Arg.SRC: x, Arg.WEIGHTS: flipped, Arg.BIAS: b})[Arg.DST]
    expected = naive.convolution_input_gradient(x, w, shape, window, groups) + b.reshape(-1, *[1] * len(window.size))
    assert_close(y, expected, w[:, 0].size + 1)


POOLINGS = {
    "1d": ((2, 3, 9), Window((3,), (2,), ((1, 1),), (1,))),
    "2d": ((2, 3, 7, 6), Window((2, 3), (2, 1), ((0, 1), (1, 0)), (1, 1))),
    "2d-blocked": ((2, 32, 6, 6), Window((3, 3), (2, 2), ((0, 1), (0, 1)), (1, 1))),
    "2d-dilated": ((2, 3, 9, 9), Window((2, 2), (1, 1), ((0, 0), (1, 0)), (2, 2))),
    "3d": ((1, 2, 5, 4, 6), Window((2, 2, 3), (2, 1, 2), ((0, 1), (0, 0), (1, 1)), (1, 1, 1))),
}
pooling = pytest.mark.parametrize(("shape", "window"), POOLINGS.values(), ids=POOLINGS)


@pooling
@in_each_layout
def test_max_pooling_stores_the_index_of_each_maximum(engine, shape, window, layout):
    x = uniform(*shape)
    windows = naive.taps(x, window, fill=-np.inf)
    axes = tuple(range(len(shape), windows.ndim))
    y = windows.max(axes)
    src, dst = describe(engine, shape, "plain" if layout == "any" else layout), describe(engine, y.shape, layout)
    forward = primitive_descs.pooling_forward(src, dst, window, AlgKind.POOLING_MAX)
    assert Arg.WORKSPACE in forward.arguments
    run = Run(forward, {Arg.SRC: x})
    np.testing.assert_array_equal(run[Arg.DST], y)

    # The gradient goes to the one element that equals the maximum: all elements of `x` differ.
    dy = uniform(*y.shape, seed=1)
    indices = naive.taps(np.arange(x.size).reshape(shape), window, fill=-1)
    chosen = indices[windows == y.reshape(*y.shape, *[1] * len(axes))].astype(int)
    expected = np.zeros(x.size)
    np.add.at(expected, chosen, dy.reshape(-1).astype(np.float64))
    backward = primitive_descs.pooling_backward(src, forward[Arg.DST], window, AlgKind.POOLING_MAX, forward)
    workspace = run.memories[Arg.WORKSPACE]
    dx = Run(backward, {Arg.DIFF_DST: dy, Arg.WORKSPACE: workspace})[Arg.DIFF_SRC]
    assert_close(dx, expected.reshape(shape))


@pooling
@in_each_layout
@pytest.mark.parametrize("algorithm", [AlgKind.POOLING_AVG_INCLUDE_PADDING, AlgKind.POOLING_AVG_EXCLUDE_PADDING])
def test_average_pooling(engine, shape, window, layout, algorithm):
    def average(values: Array) -> Array:
        windows = naive.taps(values, window)
        axes = tuple(range(len(shape), windows.ndim))
        inside = naive.taps(np.ones_like(values), window).sum(axes)
        includes_padding = algorithm is AlgKind.POOLING_AVG_INCLUDE_PADDING
        return windows.sum(axes) / (np.prod(window.size) if includes_padding else inside)

    x = uniform(*shape)
    y = average(x)
    src, dst = describe(engine, shape, "plain" if layout == "any" else layout), describe(engine, y.shape, layout)
    forward = primitive_descs.pooling_forward(src, dst, window, algorithm)
    assert_close(Run(forward, {Arg.SRC: x})[Arg.DST], y)

    # The average is linear and the same for all channels: row i of its Jacobian is the average of the i-th unit vector.
    dy = uniform(*y.shape, seed=1)
    size = int(np.prod(shape[2:]))
    jacobian = average(np.eye(size).reshape(size, 1, *shape[2:])).reshape(size, -1)
    expected = (dy.astype(np.float64).reshape(*shape[:2], -1) @ jacobian.T).reshape(shape)
    backward = primitive_descs.pooling_backward(src, forward[Arg.DST], window, algorithm, forward)
    assert_close(Run(backward, {Arg.DIFF_DST: dy})[Arg.DIFF_SRC], expected)


def test_pooling_for_inference_keeps_no_workspace(engine):
    src, dst = describe(engine, (1, 2, 4, 4)), describe(engine, (1, 2, 2, 2))
    window = Window((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))
    desc = primitive_descs.pooling_forward(src, dst, window, AlgKind.POOLING_MAX, training=False)
    assert desc.arguments == [Arg.SRC, Arg.DST]


def test_a_reorder_keeps_every_element(engine):
    conv = Convolution(engine, (2, 20, 6, 6), 50, 1, Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)))
    blocked = buffer(conv.forward()[Arg.WEIGHTS])
    copy(Memory.of(engine, conv.w), blocked)
    np.testing.assert_array_equal(to_plain(blocked), conv.w)


def test_max_pooling_skips_nan(engine):
    """Why maxima are not left to the library: a kernel that hides NaN keeps the guard from stopping the training."""
    x = uniform(1, 16, 4, 4)
    x[0, :, 0, 0] = np.nan
    src, dst = describe(engine, x.shape, "channels_last"), describe(engine, (1, 16, 2, 2), "channels_last")
    window = Window((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))
    forward = primitive_descs.pooling_forward(src, dst, window, AlgKind.POOLING_MAX)
    assert not np.isnan(Run(forward, {Arg.SRC: x})[Arg.DST]).any()
