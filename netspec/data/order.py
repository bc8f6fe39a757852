"""The random numbers of the data room: counter-based (Philox), keyed by what they are for.

Key and counter of Philox-4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) are set, so any
draw is found without those before it: nothing needs to be saved to resume, and workers need not agree.
Only raw bits of the generator decide the order of samples: NumPy guarantees them for all its versions, which it does
not for `permutation` (NEP 19).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netspec.data.files import fingerprint

if TYPE_CHECKING:
    from netspec.data.base import Array

_ORDER, _SAMPLE = 1, 2  # second half of the key: what the numbers are for
_WORD = 2**64


def epoch_order(samples: int, seed: int, epoch: int) -> Array:
    """A permutation of `range(samples)`, (samples,) of int64, that depends on nothing but the arguments.

    Every sample draws 64 bits; the order is that of the draws, equal draws staying in order.
    """
    bits = np.random.Philox(key=[seed % _WORD, _ORDER], counter=[0, epoch, 0, 0])
    return np.argsort(bits.random_raw(samples), kind="stable")


def order_digest(order: Array) -> str:
    """A fingerprint of an order of samples."""
    return fingerprint(order.astype("<i8").tobytes())


def sample_generator(seed: int, epoch: int, index: int, stage: int) -> np.random.Generator:
    """The random numbers for one sample in one epoch at one stage of its preparation."""
    return np.random.Generator(np.random.Philox(key=[seed % _WORD, _SAMPLE], counter=[0, epoch, index, stage]))
