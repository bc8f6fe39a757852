"""Matrix multiplication against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.backends.onednn import primitive_descs
from netspec.backends.onednn.attributes import Attributes, BinaryPostOp, EltwisePostOp
from netspec.backends.onednn.constants import AlgKind, Arg, post_op_src
from netspec.backends.onednn.memory import MemoryDesc
from tests.backends.onednn.harness import Run, assert_close, describe, uniform

MATMULS = [((3, 5), (5, 4)), ((7, 3, 5), (7, 5, 4)), ((2, 3, 4, 5), (2, 3, 5, 6)), ((4, 3, 5), (1, 5, 2))]


@pytest.mark.parametrize(("left", "right"), MATMULS, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul(engine, left, right, transposed):
    a, b = uniform(*left), uniform(*right, seed=1)
    expected = a.astype(np.float64) @ b
    weights = describe(engine, right)
    if transposed:  # stored as (…, N, K)
        stored = MemoryDesc.strided(engine, (*right[:-2], right[-1], right[-2]))
        rank = len(right)
        weights = stored.permuted((*range(rank - 2), rank - 1, rank - 2))
        assert weights.shape == right
    desc = primitive_descs.matmul(describe(engine, left), weights, None, describe(engine, expected.shape))
    assert_close(Run(desc, {Arg.SRC: a, Arg.WEIGHTS: b})[Arg.DST], expected, left[-1])


def test_matmul_with_bias_and_a_fused_residual(engine):
    a, b, bias, residual = uniform(3, 5), uniform(5, 4, seed=1), uniform(1, 4, seed=2), uniform(3, 4, seed=3)
    attributes = Attributes(
        engine,
        [EltwisePostOp(AlgKind.ELTWISE_TANH), BinaryPostOp(AlgKind.BINARY_ADD, describe(engine, (3, 4)))],
    )
    shapes = [(3, 5), (5, 4), (1, 4), (3, 4)]
    desc = primitive_descs.matmul(*(describe(engine, shape) for shape in shapes), attributes=attributes)
    operands = {Arg.SRC: a, Arg.WEIGHTS: b, Arg.BIAS: bias, post_op_src(1): residual}
    expected = np.tanh(a.astype(np.float64) @ b + bias) + residual
    # The library's tanh is a polynomial, right to about 3 · 10⁻⁶ of 1.
    np.testing.assert_allclose(Run(desc, operands)[Arg.DST], expected, atol=5e-6)
