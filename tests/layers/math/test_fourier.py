"""DFT and STFT against NumPy's transforms."""

from __future__ import annotations

import numpy as np
import pytest

from tests.layers.apply import layer

RANDOM = np.random.default_rng(6)
COMPLEX = RANDOM.normal(size=(2, 6, 3, 2))


def of_parts(pairs_of_parts: np.ndarray) -> np.ndarray:
    return pairs_of_parts[..., 0] + 1j * pairs_of_parts[..., 1]


@pytest.mark.parametrize("n", [None, 4, 9])
@pytest.mark.parametrize("axis", [1, 2])
def test_inverse_dft_restores_the_signal(n, axis):
    numbers = of_parts(COMPLEX)
    applied = layer({"type": "DFT", "axis": axis, "n": n}, COMPLEX).y
    np.testing.assert_allclose(of_parts(applied), np.fft.fft(numbers, n, axis), rtol=0, atol=1e-12)
    back = layer({"type": "DFT", "axis": axis, "n": n, "inverse": True}, COMPLEX).y
    np.testing.assert_allclose(of_parts(back), np.fft.ifft(numbers, n, axis), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [None, 3, 5, 8, 9])
def test_onesided_dft_restores_real_signals(n):
    real = COMPLEX[..., :1]
    applied = layer({"type": "DFT", "axis": 1, "n": n, "onesided": True}, real).y
    np.testing.assert_allclose(of_parts(applied), np.fft.rfft(real[..., 0], n, 1), rtol=0, atol=1e-12)
    back = layer({"type": "DFT", "axis": 1, "n": n, "onesided": True, "inverse": True}, COMPLEX).y
    np.testing.assert_allclose(back[..., 0], np.fft.irfft(of_parts(COMPLEX), n, 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("windowed", [False, True])
def test_stft_transforms_each_frame(windowed):
    signal, window = RANDOM.normal(size=(2, 11, 1)), np.hanning(4)
    values = [signal, np.stack([window, window])] if windowed else [signal]
    applied = layer({"type": "STFT", "frame_length": 4, "frame_step": 3}, *values).y
    frames = np.stack([signal[:, k : k + 4, 0] for k in (0, 3, 6)], 1) * (window if windowed else 1)
    np.testing.assert_allclose(of_parts(applied), np.fft.rfft(frames), rtol=0, atol=1e-12)
