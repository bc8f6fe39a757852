"""Inner products and matrix multiplication against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.backends.onednn import products
from netspec.backends.onednn.attributes import Attributes, Binary, Eltwise
from netspec.backends.onednn.constants import Algorithm, Arg, post_op_src
from netspec.backends.onednn.memory import MemoryDesc
from tests.backends.onednn.harness import LAYOUTS, Run, assert_close, describe, uniform


@pytest.mark.parametrize("shape", [(3, 7), (5, 64), (2, 3, 5), (2, 4, 3, 5), (2, 2, 3, 2, 4)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_inner_product(engine, shape, layout):
    units = 10
    x, w, b = uniform(*shape), uniform(units, *shape[1:], seed=1), uniform(units, seed=2)
    dy = uniform(shape[0], units, seed=3)
    flat, matrix = x.reshape(len(x), -1).astype(np.float64), w.reshape(units, -1).astype(np.float64)
    src, weights = describe(engine, shape, layout), describe(engine, w.shape, layout)
    bias, dst = describe(engine, (units,)), describe(engine, dy.shape, layout)
    terms = matrix.shape[1] + 1

    forward = products.inner_product_forward(src, weights, bias, dst)
    run = Run(forward, {Arg.SRC: x, Arg.WEIGHTS: w, Arg.BIAS: b})
    assert_close(run[Arg.DST], flat @ matrix.T + b, terms)

    backward = products.inner_product_backward_data(src, weights, dst, forward)
    run = Run(backward, {Arg.DIFF_DST: dy, Arg.WEIGHTS: w})
    assert_close(run[Arg.DIFF_SRC], (dy.astype(np.float64) @ matrix).reshape(shape), units)

    update = products.inner_product_backward_weights(src, weights, bias, dst, forward)
    run = Run(update, {Arg.SRC: x, Arg.DIFF_DST: dy})
    assert_close(run[Arg.DIFF_WEIGHTS], (dy.astype(np.float64).T @ flat).reshape(w.shape), len(x))
    assert_close(run[Arg.DIFF_BIAS], dy.astype(np.float64).sum(0), len(x))


def test_inner_product_with_fused_relu(engine):
    x, w = uniform(4, 9), uniform(6, 9, seed=1)
    attributes = Attributes(engine, [Eltwise(Algorithm.ELTWISE_RELU)])
    arguments = (describe(engine, (4, 9)), describe(engine, (6, 9), "any"), None, describe(engine, (4, 6)))
    desc = products.inner_product_forward(*arguments, training=False, attributes=attributes)
    assert Arg.BIAS not in desc.arguments
    expected = np.maximum(x.astype(np.float64) @ w.T, 0)
    assert_close(Run(desc, {Arg.SRC: x, Arg.WEIGHTS: w})[Arg.DST], expected, 9)


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
    desc = products.matmul(describe(engine, left), weights, None, describe(engine, expected.shape))
    assert_close(Run(desc, {Arg.SRC: a, Arg.WEIGHTS: b})[Arg.DST], expected, left[-1])


def test_matmul_with_bias_and_a_fused_residual(engine):
    a, b, bias, residual = uniform(3, 5), uniform(5, 4, seed=1), uniform(1, 4, seed=2), uniform(3, 4, seed=3)
    attributes = Attributes(
        engine, [Eltwise(Algorithm.ELTWISE_TANH), Binary(Algorithm.BINARY_ADD, describe(engine, (3, 4)))]
    )
    shapes = [(3, 5), (5, 4), (1, 4), (3, 4)]
    desc = products.matmul(*(describe(engine, shape) for shape in shapes), attributes=attributes)
    operands = {Arg.SRC: a, Arg.WEIGHTS: b, Arg.BIAS: bias, post_op_src(1): residual}
    expected = np.tanh(a.astype(np.float64) @ b + bias) + residual
    # The library's tanh is a polynomial, right to about 3 · 10⁻⁶ of 1.
    np.testing.assert_allclose(Run(desc, operands)[Arg.DST], expected, atol=5e-6)
