"""Statistics of batch normalization, read once, are as good as those of two readings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from netspec.backends.cuda import launch
from netspec.backends.cuda.normalization import TrainingKernel
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.ops.normalization import BatchNormalizationTraining
from tests.backends.cuda.calls import DEVICE, Bound
from tests.backends.cuda.emulator import Emulator, compiler
from tests.registry.kernel_calls import array
from tests.registry.op_calls import call

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with")


@pytest.fixture(autouse=True)
def emulator() -> Iterator[None]:
    before = launch.use(Emulator())
    yield
    launch.use(before)


@pytest.mark.parametrize("layout", [PLAIN, Layout.channels_last(4)], ids=str)
def test_a_variance_far_smaller_than_the_mean_is_found(layout: Layout) -> None:
    """Numbers around 4096, 0.3 apart, after one that is far away: sums of squares would have no digit of it."""
    x = 4096 + 0.3 * np.random.default_rng(0).standard_normal((8, 5, 17, 13)).astype(np.float32)
    x[0, 0, 0, 0] = 0
    made = call(BatchNormalizationTraining(), x, np.ones(5, np.float32), np.zeros(5, np.float32))
    one = TrainingKernel()
    lying = one.layouts(made.node, [layout, PLAIN, PLAIN])
    inputs = [
        array(DEVICE, value.type, host, how)
        for value, host, how in zip(made.node.inputs, made.feeds.values(), lying.inputs, strict=True)
    ]
    outputs = [
        array(DEVICE, value.type, None, how) for value, how in zip(made.node.outputs, lying.outputs, strict=True)
    ]
    Bound.of(one, made, lying, inputs, outputs).run()
    exact = x.astype(np.float64)
    # Sums of a thousand such numbers are some 1e-3 off, by the square of which a variance of 0.09 is too large.
    np.testing.assert_allclose(outputs[1], exact.mean(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(outputs[2], exact.var(axis=(0, 2, 3)), rtol=1e-4)
