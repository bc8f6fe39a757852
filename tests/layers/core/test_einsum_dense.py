"""EinsumDense against NumPy's einsum."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from netspec.graph.ops.linear import MatMul
from netspec.graph.value import ShapeMismatch, Value
from tests.layers.apply import layer

RANDOM = np.random.default_rng(9)
CASES = [
    ("ab,bc->ac", (3, 4), 5, (4, 5)),
    ("abc,cd->abd", (2, 3, 4), (None, 5), (4, 5)),
    ("abc,cde->abde", (2, 3, 4), (None, 2, 5), (4, 2, 5)),
    ("abde,cde->abc", (2, 3, 2, 5), (3, 4), (4, 2, 5)),
    ("abcd,ce->aebd", (2, 3, 4, 2), (5, None, None), (4, 5)),
    ("abc,bcd->abd", (2, 3, 4), (3, 5), (3, 4, 5)),  # a kernel for each position
    ("abc,bd->ad", (2, 3, 4), 5, (3, 5)),  # an axis that is summed over
    ("ab,c->abc", (2, 3), (3, 4), (4,)),  # no axis is summed over
    ("...x,xy->...y", (2, 3, 2, 4), 5, (4, 5)),
    ("ab...,bc->ac...", (2, 3, 4, 2), 5, (3, 5)),
]


@pytest.mark.parametrize(("equation", "shape", "output_shape", "kernel_shape"), CASES, ids=lambda case: str(case))
def test_einsum_dense_matches_einsum(equation, shape, output_shape, kernel_shape):
    x, kernel = RANDOM.normal(size=shape), RANDOM.normal(size=kernel_shape)
    result = layer({"type": "EinsumDense", "equation": equation, "output_shape": output_shape}, x, kernel=kernel)
    np.testing.assert_allclose(result.y, np.einsum(equation, x, kernel), rtol=1e-12, atol=1e-12)
    assert sum(isinstance(node, MatMul) for node in [value.op for value in _reached(result.outputs[0])]) == 1


def _reached(value: Value) -> Iterator[Value]:
    yield value
    for operand in value.inputs:
        yield from _reached(operand)


def test_einsum_dense_bias_axes():
    x = RANDOM.normal(size=(2, 3, 4))
    fields = {"type": "EinsumDense", "equation": "abc,cde->abde", "output_shape": [3, 2, 5]}
    bias = {"d": (2, 1), "e": (5,), "de": (2, 5), "b": (3, 1, 1)}
    for axes, shape in bias.items():
        values = RANDOM.normal(size=shape)
        result = layer({**fields, "bias_axes": axes}, x, bias=values)
        expected = np.einsum("abc,cde->abde", x, result.feeds["it/kernel"]) + values
        np.testing.assert_allclose(result.y, expected, rtol=1e-12)
    dotted = {"type": "EinsumDense", "equation": "ab...,bc->ac...", "output_shape": 5, "bias_axes": "c"}
    assert layer(dotted, x).net.states["it/bias"].value.shape == (5, 1)


def test_einsum_dense_kernel_is_initialized_as_a_matrix():
    x = np.zeros((2, 3, 400))
    kernel = layer({"type": "EinsumDense", "equation": "abc,cde->abde", "output_shape": [3, 20, 10]}, x).feeds[
        "it/kernel"
    ]
    assert np.abs(kernel).max() == pytest.approx((6 / (400 + 200)) ** 0.5, rel=1e-3)


def test_einsum_dense_requires_unknown_sizes():
    with pytest.raises(ShapeMismatch, match="the size of the axis `c` is unknown"):
        layer({"type": "EinsumDense", "equation": "ab,bc->ac", "output_shape": [None]}, np.zeros((2, 3)))
