"""Mel spectrograms that Keras computes for synthetic sounds."""

from __future__ import annotations

from typing import Any

import numpy as np

CASES: list[dict[str, Any]] = [
    {"fft_length": 64, "sequence_stride": 16, "num_mel_bins": 8},
    {"fft_length": 64, "sequence_length": 50, "sequence_stride": 21, "num_mel_bins": 5, "window": "hamming"},
    {"fft_length": 48, "sequence_stride": 48, "num_mel_bins": 6, "window": None, "power_to_db": False, "mag_exp": 1.0},
    {"fft_length": 64, "sequence_stride": 20, "num_mel_bins": 4, "sampling_rate": 8000, "min_freq": 300.0,
     "max_freq": 3000.0, "top_db": 20.0, "min_power": 1e-3, "ref_power": 0.1},
]  # fmt: skip
"""Fields, which have the same names and values in netspec and Keras."""


def sounds() -> np.ndarray:
    """(3, 400): a rising tone, noise, and silence with a click."""
    time = np.arange(400) / 16000
    waves = np.stack([np.sin(2 * np.pi * (300 + 40000 * time) * time), np.zeros(400), np.zeros(400)])
    waves[1] = np.random.default_rng(0).normal(size=400) / 4
    waves[2, 100] = 0.5
    return waves.astype(np.float32)


def record(keras: Any) -> dict[str, np.ndarray]:
    """Record Keras's result for each sound separately, since `top_db` refers to the loudest sound of a batch."""
    recorded = {}
    for number, fields in enumerate(CASES):
        layer = keras.layers.MelSpectrogram(**fields)
        recorded[str(number)] = np.stack([np.asarray(layer(sound.astype("float64"))) for sound in sounds()])
    return recorded
