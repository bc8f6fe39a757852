"""Polyphase resampling: upsample by zero insertion, low-pass filter, downsample.

The filter is a sinc with a Kaiser window (β = 5, ten zero crossings on each side), as in SciPy's `resample_poly`.
Crochiere and Rabiner, "Multirate Digital Signal Processing" (1983), chapter 2.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

import numpy as np

from netspec.data.base import Array

ZEROS, BETA = 10, 5.0
MAX_STRETCH, MAX_TERM = 256, 2**18
"""Largest factor by which a sound may become longer, and largest term of the reduced ratio of the rates: a damaged
header must not cause allocations of gigabytes."""


def reduced_ratio(rate: int, new_rate: int) -> tuple[int, int]:
    """Return the ratio of the rates in lowest terms: up, down."""
    common = gcd(rate, new_rate)
    return new_rate // common, rate // common


def resampled(sound: Array, rate: int, new_rate: int) -> Array:
    """Resample a sound: (channels, frames) at `rate` → (channels, ⌈frames · new_rate / rate⌉) of float32.

    y[m] = Σₖ x[k] h[m · down − k · up], where up / down is new_rate / rate in lowest terms.
    """
    up, down = reduced_ratio(rate, new_rate)
    if up == down:
        return sound
    phases = filter_phases(up, down)  # (up, taps), the latest sample first
    taps, half = phases.shape[1], ZEROS * max(up, down)
    frames = -(-sound.shape[1] * up // down)
    at = np.arange(frames) * down + half
    newest = at // up  # index of the last input sample that y[m] depends on
    padded = np.pad(sound, ((0, 0), (taps - 1, taps)))
    result = np.empty((len(sound), frames), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps, axis=1)
    for first in range(min(up, frames)):  # outputs `up` apart have the same phase
        phase = slice(first, None, up)
        result[:, phase] = windows[:, newest[phase]] @ phases[at[first] % up, ::-1]
    return result


@lru_cache(maxsize=8)
def filter_phases(up: int, down: int) -> Array:
    """Return the filter h[phase + up · tap], (up, taps) of float32, scaled so that it preserves the level."""
    half = ZEROS * max(up, down)
    positions = np.arange(-half, half + 1)
    sinc = np.sinc(positions / max(up, down)) * np.kaiser(2 * half + 1, BETA)
    weights = sinc * (up / sinc.sum())
    taps = -(-len(weights) // up)
    phases = np.pad(weights, (0, taps * up - len(weights))).reshape(taps, up).T.astype(np.float32)
    phases.setflags(write=False)
    return phases
