"""MaxUnpool after max pooling restores the maxima, with 0 elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests.layers.apply import layer


@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ((2, 3, 6), {"pool_size": 3}),
        ((2, 3, 4, 6), {"pool_size": [2, 3]}),
        ((1, 2, 4, 5), {"pool_size": 2, "padding": 1}),
        ((1, 2, 2, 4, 2), {"pool_size": 2}),
    ],
)
def test_unpooling_restores_positions(shape, fields):
    rank = len(shape) - 2
    x = np.random.default_rng(3).permutation(np.prod(shape)).reshape(shape) + 1.0
    most = layer({"type": f"MaxPooling{rank}D", **fields}, x).y
    indices = layer({"type": f"ArgMaxPooling{rank}D", **fields}, x).y
    flat = x.reshape(*shape[:2], -1)
    actual = np.take_along_axis(flat, indices.reshape(*shape[:2], -1), -1)
    np.testing.assert_array_equal(actual.reshape(most.shape), most)
    if "padding" in fields:
        return  # windows at the border are smaller, so the input's size is not restored
    size = fields["pool_size"] if isinstance(fields["pool_size"], list) else [fields["pool_size"]] * rank
    applied = layer({"type": "MaxUnpool", "pool_size": size}, most, indices).y
    np.testing.assert_array_equal(applied, np.where(np.isin(x, most), x, 0))
