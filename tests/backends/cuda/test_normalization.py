"""Statistics of normalizations: their precision, and that they stay in float32 whatever shape they have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from netspec.backends.cuda import launch
from netspec.backends.cuda.kernels.batch_normalization import TrainingKernel
from netspec.backends.kernel_check import agree, array, fetch, for_signature, is_narrow, operands, signatures
from netspec.backends.op_call import call, numbers
from netspec.graph.kernel import kernels_for
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.op import Op
from netspec.graph.ops.batch_normalization import BatchNormalizationTraining
from netspec.graph.ops.group_normalization import GroupNormalization, GroupNormalizationGrad
from netspec.graph.ops.layer_normalization import (
    LayerNormalization,
    LayerNormalizationGrad,
    RMSNormalization,
    RMSNormalizationGrad,
)
from tests.backends.cuda.calls import DEVICE, Bound
from tests.backends.cuda.emulator import Emulator, compiler
from tests.interpret import evaluate

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with")


@pytest.fixture(autouse=True)
def emulator() -> Iterator[None]:
    before = launch.use(Emulator())
    yield
    launch.use(before)


@pytest.mark.parametrize("layout", [PLAIN, Layout.channels_last(4)], ids=str)
def test_a_variance_far_smaller_than_the_mean_is_found(layout: Layout) -> None:
    """Values around 4096, 0.3 apart, after an outlier: a sum of squares would lose the variance to rounding."""
    x = 4096 + 0.3 * np.random.default_rng(0).standard_normal((8, 5, 17, 13)).astype(np.float32)
    x[0, 0, 0, 0] = 0
    result = call(BatchNormalizationTraining(), x, np.ones(5, np.float32), np.zeros(5, np.float32))
    kernel = TrainingKernel()
    signature = kernel.layouts(result.node, [layout, PLAIN, PLAIN])
    inputs = [
        array(DEVICE, value.type, host, layout)
        for value, host, layout in zip(result.node.inputs, result.feeds.values(), signature.inputs, strict=True)
    ]
    outputs = [
        array(DEVICE, value.type, None, layout)
        for value, layout in zip(result.node.outputs, signature.outputs, strict=True)
    ]
    Bound.of(kernel, result, signature, inputs, outputs).run()
    exact = x.astype(np.float64)
    # Means of a thousand such values are off by some 1e-3, which adds its square to a variance of 0.09.
    np.testing.assert_allclose(outputs[1], exact.mean(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(outputs[2], exact.var(axis=(0, 2, 3)), rtol=1e-4)


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (LayerNormalization(), ((5, 1), (1,), (1,))),
        (LayerNormalizationGrad(), ((5, 1), (1,), (5, 1), (5, 1), (5, 1))),
        (RMSNormalization(), ((5, 1), (1,))),
        (RMSNormalizationGrad(), ((5, 1), (1,), (5, 1), (5, 1))),
        (GroupNormalization(groups=3), ((5, 3), (3,), (3,))),
        (GroupNormalizationGrad(groups=3), ((5, 3), (3,), (5, 3), (5, 3), (5, 3))),
    ],
    ids=lambda value: value.name if isinstance(value, Op) else None,
)
def test_statistics_of_the_shape_of_the_data_stay_in_float32(op: Op, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Rows of one element have as many statistics as elements. The kernels read and write these as float32."""
    result = call(op, *((np.abs(numbers(*shape)) + 1).astype(np.float32) for shape in shapes))
    types = [value.type for value in result.node.inputs]
    kernel = next(kernel for kernel in kernels_for(type(op), ("cuda",)) if kernel.reject_reason(op, *types) is None)
    narrow = [signature for signature in signatures(DEVICE, kernel, result) if is_narrow(signature)]
    assert narrow
    for signature in narrow:
        case = for_signature(result, signature)
        outputs = [
            array(DEVICE, value.type, None, layout)
            for value, layout in zip(result.node.outputs, signature.outputs, strict=True)
        ]
        Bound.of(kernel, case, signature, operands(DEVICE, case, signature), outputs).run()
        results = zip(outputs, result.node.outputs, signature.outputs, strict=True)
        actual = [fetch(DEVICE, y, value.type, layout) for y, value, layout in results]
        for fetched, right in zip(actual, evaluate(case.node.outputs, case.feeds), strict=True):
            agree(fetched, right, rounded_twice=True)
