"""Windows of FractionalMaxPooling against PyTorch's, which `tests.peers.record fractional_regions` recorded."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.layers.pooling.fractional import window_starts
from tests.peers.fractional_regions import SIZES, samples
from tests.peers.test_answers import ANSWERS


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_windows_begin_where_pytorch_s_do(number: int) -> None:
    size, window, count = SIZES[number]
    with np.load(ANSWERS / "fractional_regions.npz") as stored:
        expected = stored[str(number)]
    steps, slope = np.arange(count - 1, dtype=np.float32), (size - window) / max(1, count - 1)
    found = window_starts(steps, samples()[:, None], slope, np.floor)
    np.testing.assert_array_equal(found, expected[:, :-1])
    assert (expected[:, -1] == size - window).all()
