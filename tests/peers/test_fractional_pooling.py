"""Windows of FractionalMaxPooling against PyTorch's, recorded by `tests.peers.record fractional_pooling`."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.layers.pooling.fractional import window_starts
from tests.peers.fractional_pooling import SIZES, samples
from tests.peers.recordings import load_answers


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_windows_begin_at_the_positions_of_pytorch(number: int) -> None:
    size, window, count = SIZES[number]
    expected = load_answers("fractional_pooling")[str(number)]
    steps, slope = np.arange(count - 1, dtype=np.float32), (size - window) / max(1, count - 1)
    actual = window_starts(steps, samples()[:, None], slope, np.floor)
    np.testing.assert_array_equal(actual, expected[:, :-1])
    assert (expected[:, -1] == size - window).all()
