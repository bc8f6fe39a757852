"""Convolutions and poolings by the library: the layouts and implementations that it offers, threads, and NaN."""

from __future__ import annotations

import numpy as np

from netspec.backends.onednn import primitive_descs
from netspec.backends.onednn.constants import AlgKind, Arg, FormatKind
from netspec.backends.onednn.memory import Memory, MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.openmp import using_threads
from netspec.graph.op import Array
from netspec.graph.ops.convolution import Conv
from netspec.graph.ops.window import Window
from tests.backends.onednn.harness import Run, assert_close, buffer, copy, describe, to_plain, uniform

WINDOW = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))


class Convolution:
    """A convolution with a bias, and the result of the reference."""

    def __init__(self, engine, shape: tuple[int, ...], filters: int, layout: str = "any") -> None:
        self.w, self.b = uniform(filters, shape[1], *WINDOW.size, seed=2), uniform(filters, seed=1)
        self.operands: dict[int, Array] = {Arg.SRC: uniform(*shape), Arg.WEIGHTS: self.w, Arg.BIAS: self.b}
        y = Conv(WINDOW).forward(np, self.operands[Arg.SRC].astype(np.float64), self.w.astype(np.float64))
        self.y = y + self.b.reshape(-1, 1, 1)
        self.terms = self.w[0].size + 1
        self.src, self.dst = describe(engine, shape, layout), describe(engine, y.shape, layout)
        self.weights, bias = MemoryDesc.any(engine, self.w.shape), describe(engine, (filters,))
        self.desc = primitive_descs.convolution_forward(self.src, self.weights, bias, self.dst, WINDOW)

    def check(self, desc: PrimitiveDesc) -> None:
        assert_close(Run(desc, self.operands)[Arg.DST], self.y, self.terms)


def test_the_library_chooses_a_blocked_layout(engine):
    conv = Convolution(engine, (2, 20, 6, 6), 50)
    weights = conv.desc[Arg.WEIGHTS]
    assert weights.format_kind is FormatKind.BLOCKED
    assert weights.shape == (50, 20, 3, 3)
    assert weights.nbytes >= 4 * conv.w.size
    conv.check(conv.desc)
    blocked = buffer(weights)
    copy(Memory.of(engine, conv.w), blocked)
    np.testing.assert_array_equal(to_plain(blocked), conv.w)


def test_every_implementation_computes_the_same(engine):
    conv = Convolution(engine, (2, 16, 7, 7), 32, "channels_last")
    others = list(conv.desc.alternatives())
    assert len({conv.desc.implementation, *(other.implementation for other in others)}) > 1
    for other in others:
        conv.check(other)


def test_two_threads_agree_with_the_reference_and_with_themselves(engine):
    conv = Convolution(engine, (4, 16, 5, 5), 8)
    dy = uniform(*conv.y.shape, seed=3)
    with using_threads(2):
        conv.check(conv.desc)
        update = primitive_descs.convolution_backward_weights(conv.src, conv.weights, conv.dst, WINDOW, conv.desc)
        operands = {Arg.SRC: conv.operands[Arg.SRC], Arg.DIFF_DST: dy}
        runs = [Run(update, operands)[Arg.DIFF_WEIGHTS] for _ in range(3)]
    assert all(np.array_equal(runs[0], run) for run in runs)


def test_max_pooling_skips_nan(engine):
    """The reason why the library is not used for max pooling: if NaN is dropped, the guard cannot stop training."""
    x = uniform(1, 16, 4, 4)
    x[0, :, 0, 0] = np.nan
    src, dst = describe(engine, x.shape, "channels_last"), describe(engine, (1, 16, 2, 2), "channels_last")
    window = Window((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))
    forward = primitive_descs.pooling_forward(src, dst, window, AlgKind.POOLING_MAX)
    assert not np.isnan(Run(forward, {Arg.SRC: x})[Arg.DST]).any()
