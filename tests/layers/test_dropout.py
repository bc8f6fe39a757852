from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from netspec.layers.dropout import Dropout
from tests.layers.apply import layer

X = np.ones((64, 50))


def test_scales_what_it_keeps_and_drops_its_share():
    y = layer({"type": "Dropout", "rate": 0.25}, X, training=True).y
    assert set(np.unique(y)) == {0.0, 1 / 0.75}
    # Binomial: 3200 draws, standard deviation 0.0077; five of them.
    assert (y == 0).mean() == pytest.approx(0.25, abs=0.04)


def test_does_nothing_in_inference_or_at_rate_0():
    for fields, training in (({"rate": 0.5}, False), ({"rate": 0.0}, True)):
        np.testing.assert_array_equal(layer({"type": "Dropout", **fields}, X, training=training).y, X)


def test_gradient_flows_where_numbers_were_kept():
    made = layer({"type": "Dropout", "rate": 0.5}, X, training=True)
    np.testing.assert_array_equal(made.gradient(np.ones_like(X))[0], made.y)


def test_the_mask_does_not_depend_on_how_the_batch_is_split():
    """A worker that gets samples 24 … 63 of the global batch drops what one worker would drop of them."""
    fields = {"type": "Dropout", "rate": 0.5}
    whole = layer(fields, X[:, :7], training=True, rng=(3, 9, 0)).y
    parts = [
        layer(fields, X[part, :7], training=True, rng=(3, 9, part.start)).y for part in (slice(0, 24), slice(24, 64))
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_the_mask_depends_on_seed_and_step_and_not_on_the_precision():
    fields = {"type": "Dropout", "rate": 0.5}
    masks = [layer(fields, X, training=True, rng=rng).y != 0 for rng in ((1, 1, 0), (1, 1, 0), (2, 1, 0), (1, 2, 0))]
    np.testing.assert_array_equal(masks[0], masks[1])
    for other in masks[2:]:
        assert (masks[0] != other).mean() == pytest.approx(0.5, abs=0.05)
    single = layer(fields, X.astype(np.float32), training=True, rng=(1, 1, 0)).y != 0
    np.testing.assert_array_equal(single, masks[0])


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_rate_is_a_share_below_1(rate):
    with pytest.raises(ValidationError, match="Input should be"):
        Dropout.model_validate({"type": "Dropout", "rate": rate})
