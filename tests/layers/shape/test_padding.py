from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from netspec.graph.value import ShapeMismatch
from netspec.schema.specs.kinds import LAYERS
from tests.layers.apply import layer

RANDOM = np.random.default_rng(2)
SIDES = [[2, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_cropping_inverts_zero_padding(rank):
    x, sides = RANDOM.normal(size=(2, 3, 4, 2, 3)[: rank + 2]), SIDES[:rank]
    written = sides[0] if rank == 1 else sides
    padded = layer({"type": f"ZeroPadding{rank}D", "padding": written}, x).y
    np.testing.assert_array_equal(padded, np.pad(x, [(0, 0), (0, 0), *sides]))
    np.testing.assert_array_equal(layer({"type": f"Cropping{rank}D", "cropping": written}, padded).y, x)


@pytest.mark.parametrize(("written", "sides"), [(2, [[2, 2], [2, 2]]), ([0, 1], [[0, 0], [1, 1]])])
def test_padding_shorthands(written, sides):
    x = RANDOM.normal(size=(1, 2, 3, 3))
    y = layer({"type": "ZeroPadding2D", "padding": written}, x).y
    np.testing.assert_array_equal(y, np.pad(x, [(0, 0), (0, 0), *sides]))


def test_padding_defaults_match_keras():
    x = np.ones((1, 1, 5, 5))
    assert layer("ZeroPadding2D", x).y.shape == (1, 1, 7, 7)
    assert layer("Cropping2D", x).y.shape == (1, 1, 5, 5)
    assert layer("Cropping1D", x[0]).y.shape == (1, 5, 3)


def test_cropping_everything_is_rejected():
    with pytest.raises(ShapeMismatch, match="nothing is left"):
        layer({"type": "Cropping1D", "cropping": [3, 2]}, np.zeros((1, 2, 5)))


@pytest.mark.parametrize("value", ["same", -1, [1, 2, 3], [[1], [2]], True])
def test_padding_must_be_integers(value):
    with pytest.raises(ValidationError, match="has an invalid value"):
        LAYERS["ZeroPadding2D"].model_validate({"padding": value})
