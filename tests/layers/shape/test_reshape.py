"""Layers that only move elements, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.layers.apply import layer

X = np.random.default_rng(3).normal(size=(2, 8, 6))
IMAGE = np.random.default_rng(4).normal(size=(2, 8, 3, 4))
LARGE = np.random.default_rng(5).normal(size=(2, 2, 6, 4))
ONES = X[:, :4, :3].reshape(2, 1, 4, 1, 3)

MOVES: list[tuple[dict[str, Any], np.ndarray, tuple[Any, ...]]] = [
    ({"type": "Slice", "start": 2, "stop": 5}, X[:, 2:5], (X,)),
    ({"type": "Slice", "axis": -1, "start": -3}, X[:, :, -3:], (X,)),
    ({"type": "Slice", "start": -4, "size": 3, "step": 2}, X[:, 4:7:2], (X,)),
    ({"type": "Crop", "offset": [1, 0]}, IMAGE[:, :, 1:3, 0:2], (IMAGE, LARGE[:, :1, :2, :2])),
    ({"type": "Crop", "axis": 1, "offset": 2}, X[:, 2:6, 2:5], (X, X[:, :4, :3])),
    ({"type": "Gather", "indices": [7, 0, 0, -2]}, X[:, [7, 0, 0, 6]], (X,)),
    ({"type": "Gather", "indices": [1], "axis": 2}, X[:, :, 1:2], (X,)),
    ({"type": "Gather"}, np.stack([X[0, [3, 3, 1]], X[1, [0, 7, 2]]]), (X, np.array([[3, 3, 1], [0, 7, 2]]))),
    (
        {"type": "Gather", "axis": 3},
        np.stack([IMAGE[0][:, :, [3, 0]], IMAGE[1][:, :, [1, 1]]]),
        (IMAGE, np.array([[3, 0], [1, 1]], "int32")),
    ),
    ({"type": "BatchReindex"}, X[[1, 1]], (X, np.array([1, 1]))),
    ({"type": "Squeeze"}, ONES[:, 0, :, 0], (ONES,)),
    ({"type": "Squeeze", "axis": -2}, ONES[:, :, :, 0], (ONES,)),
    ({"type": "ExpandDims", "axis": 2}, X[:, :, None], (X,)),
    ({"type": "ExpandDims", "axis": -1}, X[..., None], (X,)),
    ({"type": "Transpose"}, IMAGE.transpose(0, 3, 2, 1), (IMAGE,)),
    ({"type": "Transpose", "axes": [0, 2, 3, 1]}, IMAGE.transpose(0, 2, 3, 1), (IMAGE,)),
    ({"type": "Tile", "tiles": 3}, np.tile(X, (1, 3, 1)), (X,)),
    ({"type": "Tile", "tiles": 2, "axis": -1}, np.tile(X, (1, 1, 2)), (X,)),
    ({"type": "Cast", "dtype": "int32"}, (3 * X).astype("int32"), (3 * X,)),
    ({"type": "Cast", "dtype": "bool"}, X > 0, (np.maximum(X, 0),)),
    ({"type": "ChannelShuffle", "groups": 2}, X[:, [0, 4, 1, 5, 2, 6, 3, 7]], (X,)),
]


@pytest.mark.parametrize(("fields", "expected", "inputs"), MOVES, ids=lambda value: str(value)[:60])
def test_shape_layers_move_elements_correctly(
    fields: dict[str, Any], expected: np.ndarray, inputs: tuple[Any, ...]
) -> None:
    actual = layer(fields, *inputs).y
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


def block(mode: str, b: int, i: int, j: int, depth: int, c: int) -> int:
    """Return the channel of element (i, j) of a block of channel c, in ONNX's two orders."""
    return (i * b + j) * depth + c if mode == "DCR" else c * b * b + i * b + j


@pytest.mark.parametrize("mode", ["CRD", "DCR"])
def test_space_to_depth_moves_blocks_to_channels(mode: str) -> None:
    small = layer({"type": "SpaceToDepth", "block_size": 2, "mode": mode}, LARGE).y
    assert small.shape == (2, 8, 3, 2)
    for c, i, j in np.ndindex(2, 2, 2):
        np.testing.assert_array_equal(small[:, block(mode, 2, i, j, 2, c)], LARGE[:, c, i::2, j::2])
    back = layer({"type": "DepthToSpace", "block_size": 2, "mode": mode}, small).y
    np.testing.assert_array_equal(back, LARGE)


def test_gradients_of_repeated_indices_are_summed() -> None:
    result = layer({"type": "Gather", "indices": [2, 0, 2]}, X)
    dy = np.random.default_rng(6).normal(size=(2, 3, 6))
    expected = np.zeros_like(X)
    expected[:, 0], expected[:, 2] = dy[:, 1], dy[:, 0] + dy[:, 2]
    np.testing.assert_allclose(result.gradient(dy)[0], expected)


def test_indices_from_a_net_input_are_checked_by_the_loader() -> None:
    result = layer({"type": "Gather"}, X, np.array([[0], [1]]))
    domain = result.net.domains["x1"]
    assert (domain.low, domain.high) == (-8, 8)  # negative ones count from the end
    assert "axis 1" in domain.why


def test_concatenation_inverts_split() -> None:
    parts = layer({"type": "Split", "sections": [1, 5, 2]}, X).all
    assert [part.shape[1] for part in parts] == [1, 5, 2]
    np.testing.assert_array_equal(layer("Concatenate", *parts).y, X)
