"""Spectra of sounds by NumPy's FFT: frames, windows, and the mel scale."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from netspec.data.base import Array

if TYPE_CHECKING:
    from netspec.data.transforms.mel_spectrogram import MelSpectrogram

AT_A_TIME = 2**22
"""Number of frames in memory at a time: those of a batch would be many times as large as its sounds."""
_WEIGHTS = {"hann": 0.5, "hamming": 0.54}


def mel_spectrogram(spec: MelSpectrogram, sounds: Array) -> Array:
    """Compute spectra: sounds (N, …, samples) → (N, …, bins, frames) of float32, separately for each sample."""
    rows = sounds.reshape(-1, sounds.shape[-1])
    window, bands = window_of(spec), _bands(spec)
    frames = 1 + rows.shape[-1] // spec.sequence_stride
    spectra = np.empty((len(rows), spec.num_mel_bins, frames), np.float32)
    step = max(1, AT_A_TIME // spec.fft_length)
    for row, sound in zip(spectra, rows, strict=True):
        mirrored = np.pad(sound.astype(np.float32), spec.fft_length // 2, mode="reflect")
        cut = np.lib.stride_tricks.sliding_window_view(mirrored, spec.fft_length)[:: spec.sequence_stride]
        for first in range(0, frames, step):
            spectrum = np.fft.rfft(cut[first : min(first + step, frames)] * window)
            power = spectrum.real**2 + spectrum.imag**2
            if spec.mag_exp != 2:
                power **= spec.mag_exp / 2
            row[:, first : first + step] = bands.sums(power).T
    result = spectra.reshape(*sounds.shape[:-1], spec.num_mel_bins, frames)
    return decibels(spec, result) if spec.power_to_db else result


def decibels(spec: MelSpectrogram, power: Array) -> Array:
    """10 log10(max(power, least) / reference), raised to `top_db` below the loudest value of each sample (N, …)."""
    loud: Array = np.log10(np.maximum(power, np.float32(spec.min_power)))
    loud -= np.float32(np.log10(max(spec.ref_power, spec.min_power)))
    loud *= 10
    loudest = loud.max(axis=tuple(range(1, loud.ndim)), keepdims=True)
    np.maximum(loud, loudest - np.float32(spec.top_db), out=loud)
    return loud


def window_of(spec: MelSpectrogram) -> Array:
    """Return the periodic window, padded with zeros on both sides to the length of the FFT."""
    length = spec.sequence_length or spec.fft_length
    weight = _WEIGHTS[spec.window] if spec.window else 1.0
    window = weight - (1 - weight) * np.cos(2 * np.pi * np.arange(length) / length)
    before = (spec.fft_length - length) // 2
    return np.pad(window, (before, spec.fft_length - length - before)).astype(np.float32)


def _bands(spec: MelSpectrogram) -> MelBands:
    top = spec.max_freq or spec.sampling_rate / 2
    return mel_bands(spec.fft_length, spec.sampling_rate, spec.num_mel_bins, spec.min_freq, top)


def band_weights(spec: MelSpectrogram) -> Array:
    """Return the weight of each frequency of the FFT in each band, (frequencies, bins)."""
    return _bands(spec).sums(np.eye(spec.fft_length // 2 + 1, dtype=np.float32))


class MelBands(NamedTuple):
    """Triangular filters: each begins at the center of the previous one and ends at that of the next."""

    rising: Array
    """Weight of each frequency in the band that rises there, (frequencies + 1,)."""
    falling: Array
    """Weight of each frequency in the band that falls there; the last element is 0."""
    starts: Array
    """First frequency of each interval between two centers or ends, (bins + 2,)."""

    def sums(self, power: Array) -> Array:
        """Apply the filters: power (frames, frequencies) → (frames, bins).

        Interval by interval: most of a matrix product would be zeros, and its threads would wait for each other.
        """
        power = np.pad(power, ((0, 0), (0, 1)))
        up, down = (np.add.reduceat(power * weights, self.starts, axis=1) for weights in (self.rising, self.falling))
        empty = self.starts[1:] == self.starts[:-1]  # `reduceat` returns the element itself for empty intervals
        up[:, :-1][:, empty] = 0
        down[:, :-1][:, empty] = 0
        bands: Array = up[:, :-2] + down[:, 1:-1]
        return bands


@lru_cache(maxsize=8)
def mel_bands(fft_length: int, sampling_rate: int, bins: int, low: float, high: float) -> MelBands:
    """Return the weight of each frequency of the FFT in each band: triangles of height 1, linear in mel, as in HTK.

    Frequency 0 is in no band.
    """
    mels = _mel(np.linspace(0, sampling_rate / 2, fft_length // 2 + 1))
    edges = np.linspace(_mel(low), _mel(high), bins + 2)
    starts = np.searchsorted(mels, edges)
    piece = np.clip(np.searchsorted(edges, mels, side="right") - 1, 0, bins)
    rising = np.clip((mels - edges[piece]) / (edges[piece + 1] - edges[piece]), 0, 1)
    falling = 1 - rising
    rising[0] = falling[0] = 0
    return MelBands(np.append(rising, 0).astype(np.float32), np.append(falling, 0).astype(np.float32), starts)


def _mel(hertz: Array | float) -> Array:
    return np.asarray(2595 * np.log10(1 + np.asarray(hertz) / 700))
