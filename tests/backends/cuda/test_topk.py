"""Top-k of values with ties and NaN."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from netspec.backends.backend import load_kernels
from netspec.backends.cuda import launch
from netspec.backends.op_call import call
from netspec.graph.kernel import Buffers, kernels_for
from netspec.graph.layout import PLAIN, LayoutSignature
from netspec.graph.ops.reduce import ArgMax
from netspec.graph.ops.topk import InTopK, TopK
from tests.backends.cuda.emulator import Emulator, compiler
from tests.interpret import evaluate

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with")
load_kernels("cuda")
ROWS = np.array([[2, np.nan, 2, 1, np.nan, -np.inf], [0, -0.0, np.inf, np.inf, 0, -1], [3, 3, 3, 3, 3, 3]], np.float32)
OPS = [TopK(6, 1), TopK(4, 1, largest=False), InTopK(3), ArgMax(1)]


@pytest.fixture(autouse=True, scope="module")
def emulator() -> Iterator[None]:
    before = launch.use(Emulator())
    yield
    launch.use(before)


def test_ties_keep_their_order_and_nan_is_placed_like_reference() -> None:
    calls = []
    for op in OPS:
        result = call(op, ROWS)
        results = tuple(np.full(value.shape, 101, str(value.dtype)) for value in result.node.outputs)
        signature = LayoutSignature((PLAIN,), (PLAIN,) * len(results))
        kind, kernels = result.node.inputs[0].type, kernels_for(type(op), ("cuda",))
        taking = [kernel for kernel in kernels if kernel.reject_reason(op, kind) is None]
        calls += [
            (result, results, kernel.bind(result.node, Buffers((ROWS,), results, signature))) for kernel in taking
        ]
    assert {type(result.op) for result, _, _ in calls} == {type(op) for op in OPS}
    for result, results, run in calls:
        run()
        for actual, right in zip(results, evaluate(result.node.outputs, result.feeds), strict=True):
            np.testing.assert_array_equal(actual, right, err_msg=str(result.op))
