"""Pad, CumSum and CumProd, Einsum, Col2Im, Det, Trilu and Flip against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.graph.value import ShapeMismatch, Value
from tests.interpret import evaluate
from tests.layers.apply import layer

RANDOM = np.random.default_rng(12)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("sides", [(1, 2), (7, 9), (0, 3)])
def test_pad_matches_numpy(mode, sides):
    x = RANDOM.normal(size=(2, 4, 1))
    values = [[0, 0], sides, [1, 1]]
    np.testing.assert_array_equal(
        layer({"type": "Pad", "padding": [list(side) for side in values[1:]], "mode": mode}, x).y,
        np.pad(x, values, mode),
    )


def test_negative_padding_crops_first():
    x = np.arange(5.0).reshape(1, 5)
    for mode, expected in (("constant", [2, 3, 4, 7, 7]), ("reflect", [2, 3, 4, 3, 2])):
        value = {"value": 7} if mode == "constant" else {}
        applied = layer({"type": "Pad", "padding": [[-2, 2]], "mode": mode, **value}, x).y
        np.testing.assert_array_equal(applied, [expected])


def test_cumulative_sums_and_products_match_numpy():
    x = RANDOM.normal(size=(2, 7))
    x[0, 3] = 0
    for kind, function, start in (("CumSum", np.cumsum, 0.0), ("CumProd", np.cumprod, 1.0)):
        full = function(x, axis=1)
        np.testing.assert_allclose(layer({"type": kind}, x).y, full, rtol=1e-13)
        before = np.concatenate([np.full((2, 1), start), full[:, :-1]], axis=1)
        np.testing.assert_allclose(layer({"type": kind, "exclusive": True}, x).y, before, rtol=1e-13)
        back = function(x[:, ::-1], axis=1)[:, ::-1]
        np.testing.assert_allclose(layer({"type": kind, "reverse": True}, x).y, back, rtol=1e-12)


def test_gradient_of_a_product_reduction_with_zeros():
    x = np.array([[2.0, 0.0, 3.0]])
    result = layer({"type": "CumProd"}, x)
    (actual,) = result.gradient(np.array([[0.0, 0.0, 1.0]]))
    np.testing.assert_array_equal(actual, [[0, 6, 0]])


EQUATIONS = [
    ("bij,bjk,bkl->bil", (2, 3, 4), (2, 4, 5), (2, 5, 2)),
    ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("bij,bij->b", (2, 3, 4), (2, 3, 4)),
    ("bijk->bk", (2, 3, 4, 5)),
    ("biijj->bji", (2, 3, 3, 4, 4)),
    ("b...i,bi...->b...", (2, 4, 3), (2, 3, 4)),
    ("b...,b...->b...", (2, 1, 4), (2, 3, 1)),
    ("bi,bj,bk->bkji", (2, 2), (2, 3), (2, 4)),
    ("bi,b->bi", (2, 3), (2,)),
]


@pytest.mark.parametrize(
    ("equation", "shapes"), [(equation, shapes) for equation, *shapes in EQUATIONS], ids=lambda value: str(value)
)
def test_einsum_matches_numpy(equation, shapes):
    arrays = [RANDOM.normal(size=shape) for shape in shapes]
    applied = layer({"type": "Einsum", "equation": equation}, *arrays)
    expected = np.einsum(equation, *arrays)
    np.testing.assert_allclose(applied.y, expected, rtol=1e-12, atol=1e-13)
    (y,) = applied.outputs
    by_matrices = y.op.decompose(*y.inputs)
    assert isinstance(by_matrices, Value)
    (actual,) = evaluate([by_matrices], applied.feeds)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-13)


def test_einsum_requires_a_letter_for_each_axis():
    with pytest.raises(ShapeMismatch, match="`bij` does not name the axes"):
        layer({"type": "Einsum", "equation": "bij->bi"}, RANDOM.normal(size=(2, 3)))


def test_col2im_inverts_im2col():
    """Each element is multiplied by the number of windows that contain it."""
    image = RANDOM.normal(size=(1, 1, 3, 4))
    windows = np.lib.stride_tricks.sliding_window_view(image[0, 0], (2, 2)).reshape(6, 4).T
    counts = np.array([[1, 2, 2, 1], [2, 4, 4, 2], [1, 2, 2, 1]])
    actual = layer({"type": "Col2Im", "output_size": [3, 4], "kernel_size": 2}, windows[None]).y
    np.testing.assert_allclose(actual, image * counts, rtol=1e-13)


def test_determinant_of_a_singular_matrix_has_nan_gradient():
    x = np.array([np.eye(2), np.ones((2, 2))])
    result = layer({"type": "Det"}, x)
    np.testing.assert_array_equal(result.y, [1, 0])
    (actual,) = result.gradient(np.ones(2))
    np.testing.assert_array_equal(actual[0], np.eye(2))
    assert np.isnan(actual[1]).all()


def test_trilu_replaces_infinity_by_zero():
    x = np.full((1, 2, 3), np.inf)
    np.testing.assert_array_equal(
        layer({"type": "Trilu", "upper": False}, x).y, [[[np.inf, 0, 0], [np.inf, np.inf, 0]]]
    )
    np.testing.assert_array_equal(
        layer({"type": "Flip", "axis": [1, 2]}, np.arange(4.0).reshape(1, 2, 2)).y, [[[3, 2], [1, 0]]]
    )


def test_tile_with_many_copies_matches_few():
    x = RANDOM.normal(size=(2, 3, 2))
    for count in (2, 1000):
        np.testing.assert_array_equal(layer({"type": "Tile", "tiles": count}, x).y, np.tile(x, (1, count, 1)))
    assert len(layer({"type": "Tile", "tiles": 1000}, x).outputs[0].inputs) == 1
