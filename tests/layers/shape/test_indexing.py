"""Layers for indexing, scattering and sorting against loops and functions of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.layers.apply import layer

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(2, 4, 3))


def test_gather_with_indices_of_any_rank():
    x, indices = RANDOM.normal(size=(2, 3, 4, 2)), np.array([[[0, -1], [3, 2], [1, 1]], [[2, 0], [0, 1], [-4, 3]]])
    actual = layer({"type": "Gather", "axis": 2}, x, indices).y
    np.testing.assert_array_equal(actual, [x[n].take(indices[n], axis=1) for n in range(2)])
    single = layer({"type": "Gather"}, X, np.array([3, -2])).y
    np.testing.assert_array_equal(single, [X[0, 3], X[1, 2]])


def test_gather_elements_matches_numpy():
    indices = np.array([[[3, -1], [0, 1]], [[2, 2], [1, -4]]])
    expected = [[[X[n, indices[n, i, j], j] for j in range(2)] for i in range(2)] for n in range(2)]
    np.testing.assert_array_equal(layer({"type": "GatherElements"}, X, indices).y, expected)


@pytest.mark.parametrize(
    ("reduction", "joined"),
    [("none", lambda a, b: b), ("add", np.add), ("mul", np.multiply), ("min", min), ("max", max)],
)
def test_scatter_elements_combines_updates(reduction, joined):
    indices, updates = np.array([[[0, 2]], [[-1, 1]]]), RANDOM.normal(size=(2, 1, 2))
    expected = X.copy()
    for n in range(2):
        for j in range(2):
            expected[n, indices[n, 0, j], j] = joined(X[n, indices[n, 0, j], j], updates[n, 0, j])
    actual = layer({"type": "ScatterElements", "reduction": reduction}, X, indices, updates).y
    np.testing.assert_array_equal(actual, expected)


def test_scatter_add_sums_repeated_indices():
    result = layer(
        {"type": "ScatterElements", "reduction": "add"}, np.zeros((1, 3)), np.array([[2, 2, 0]]), np.ones((1, 3))
    )
    np.testing.assert_array_equal(result.y, [[1, 0, 2]])
    rows = layer(
        {"type": "ScatterND", "reduction": "add"}, np.zeros((1, 2, 2)), np.array([[[1], [1]]]), np.ones((1, 2, 2))
    )
    np.testing.assert_array_equal(rows.y, [[[0, 0], [2, 2]]])


def test_scatter_nd_inverts_gather_nd():
    indices = np.array([[[0, 1], [3, -1]], [[2, 0], [-2, 2]]])
    expected = [[X[n][tuple(index)] for index in indices[n]] for n in range(2)]
    np.testing.assert_array_equal(layer({"type": "GatherND"}, X, indices).y, expected)
    updates = RANDOM.normal(size=(2, 2))
    filled = layer({"type": "ScatterND"}, X, indices, updates).y
    np.testing.assert_array_equal(layer({"type": "GatherND"}, filled, indices).y, updates)
    assert (filled != X).sum() == updates.size


@pytest.mark.parametrize(("mode", "rows"), [("linear", [2, 3]), ("circular", [3, 0])])
def test_tensor_scatter_writes_from_an_offset_per_sample(mode, rows):
    updates = RANDOM.normal(size=(2, 2, 3))
    expected = X.copy()
    expected[0, [1, 2]], expected[1, rows] = updates
    actual = layer({"type": "TensorScatter", "mode": mode}, X, updates, np.array([1, rows[0]])).y
    np.testing.assert_array_equal(actual, expected)


def test_reverse_sequence_reverses_a_prefix_per_sequence():
    x = np.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(
        layer({"type": "ReverseSequence"}, x, np.array([3, 0])).y, [[2, 1, 0, 3], [4, 5, 6, 7]]
    )
    within = layer({"type": "ReverseSequence", "batch_axis": 1, "time_axis": 2}, x[None], np.array([[1, 4]])).y
    np.testing.assert_array_equal(within, [[[0, 1, 2, 3], [7, 6, 5, 4]]])


def test_one_hot_of_negative_and_out_of_range_indices():
    actual = layer({"type": "OneHot", "depth": 3, "on_value": 5, "off_value": -1}, np.array([[1, -1, 7, -9]])).y
    np.testing.assert_array_equal(actual, [[[-1, 5, -1], [-1, -1, 5], [-1, -1, -1], [-1, -1, -1]]])


def test_top_k_of_integers():
    x = np.array([[-(2**63), 5, 2**62 + 1, 5, 2**62]])
    largest, indices = layer({"type": "TopK", "k": 4}, x).all
    np.testing.assert_array_equal(largest, [[2**62 + 1, 2**62, 5, 5]])
    np.testing.assert_array_equal(indices, [[2, 4, 1, 3]])
    least, indices = layer({"type": "TopK", "k": 3, "largest": False}, x).all
    np.testing.assert_array_equal(least, [[-(2**63), 5, 5]])
    np.testing.assert_array_equal(indices, [[0, 1, 3]])


@pytest.mark.parametrize(("kind", "first", "last"), [("ArgMax", 1, 3), ("ArgMin", 0, 4)])
def test_argmax_of_equal_elements_takes_first_or_last(kind, first, last):
    x = np.array([[0.0, 2, 1, 2, 0]])
    assert layer({"type": kind}, x).y == [first]
    assert layer({"type": kind, "select_last_index": True}, x).y == [last]
