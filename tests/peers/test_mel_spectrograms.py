"""MelSpectrogram against Keras's results, recorded by `tests.peers.record mel_spectrograms`."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.data.base import SampleKeys
from netspec.data.transforms.mel_spectrogram import MelSpectrogram
from tests.peers.mel_spectrograms import CASES, sounds
from tests.peers.recordings import load_answers


@pytest.mark.parametrize("number", range(len(CASES)))
def test_mel_spectrograms_equal_keras(number: int) -> None:
    fields = CASES[number]
    expected = load_answers("mel_spectrograms")[str(number)]
    batch = sounds()
    actual = MelSpectrogram(**fields).apply(batch, SampleKeys(0, 0, np.arange(len(batch)), 0))
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == np.float32
    if fields.get("power_to_db", True):
        # FFTs in float32 are off by 1e-7 of the loudest amplitude; 80 dB below it (1e-4) that is 1e-3, or 0.01 dB.
        np.testing.assert_allclose(actual, expected, atol=0.02)
    else:
        np.testing.assert_allclose(actual, expected, atol=1e-6 * float(expected.max()), rtol=1e-4)
