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
    bits = _philox([seed, _ORDER], [0, epoch, 0, 0])
    return np.argsort(bits.random_raw(samples), kind="stable")


def order_digest(order: Array) -> str:
    """A fingerprint of an order of samples."""
    return fingerprint(order.astype("<i8").tobytes())


def sample_generator(seed: int, epoch: int, index: int, stage: int) -> np.random.Generator:
    """The random numbers for one sample in one epoch at one stage of its preparation."""
    return np.random.Generator(_philox([seed, _SAMPLE], [0, epoch, index, stage]))


def _philox(key: list[int], counter: list[int]) -> np.random.Philox:
    """The generator with this key and counter, as words of 64 bits, lowest first."""
    words = [np.array([word % _WORD for word in number], np.uint64) for number in (key, counter)]
    return np.random.Philox(key=words[0], counter=words[1])
