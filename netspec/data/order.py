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

_ORDER, _SAMPLE, _UNIFORM = 1, 2, 3  # second half of the key: what the numbers are for
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


def sample_uniform(seed: int, epoch: int, indices: Array, stage: int, count: int) -> Array:
    """The first `count` numbers of each sample, (N, count) of float64 in [0, 1): multiples of 2⁻⁵³."""
    blocks = -(-count // 4)
    counter = np.empty((4, len(indices), blocks), np.uint64)
    counter[0] = np.arange(1, blocks + 1, dtype=np.uint64)  # NumPy's generator counts up before it draws
    counter[1] = epoch % _WORD
    counter[2] = indices.astype(np.uint64)[:, None]
    counter[3] = stage
    words = philox(counter, (seed % _WORD, _UNIFORM))
    raw = np.moveaxis(words, 0, -1).reshape(len(indices), 4 * blocks)[:, :count]
    uniform: Array = (raw >> np.uint64(11)) * 2.0**-53
    return uniform


_ROUNDS = 10
_FACTORS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_STEPS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B  # what the key grows by each round
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def philox(counter: Array, key: tuple[int, int]) -> Array:
    """Philox-4x64-10 of many counters at once, (4, …) of uint64 → (4, …): what NumPy's generator draws one by one."""
    first, second, third, fourth = counter
    low_key, high_key = key
    for _ in range(_ROUNDS):
        high_one, low_one = _product(first, _FACTORS[0])
        high_two, low_two = _product(third, _FACTORS[1])
        first, second = high_two ^ second ^ np.uint64(low_key), low_two
        third, fourth = high_one ^ fourth ^ np.uint64(high_key), low_one
        low_key, high_key = (low_key + _STEPS[0]) % _WORD, (high_key + _STEPS[1]) % _WORD
    return np.stack([first, second, third, fourth])


def _product(values: Array, factor: np.uint64) -> tuple[Array, Array]:
    """The upper and the lower 64 bits of each product of 128, from products of 32 bits, which 64 hold."""
    low, high = values & _LOW, values >> _HALF
    factor_low, factor_high = factor & _LOW, factor >> _HALF
    cross = low * factor_high + ((low * factor_low) >> _HALF)
    middle = high * factor_low + (cross & _LOW)
    return high * factor_high + (cross >> _HALF) + (middle >> _HALF), values * factor


def _philox(key: list[int], counter: list[int]) -> np.random.Philox:
    """The generator with this key and counter, as words of 64 bits, lowest first."""
    words = [np.array([word % _WORD for word in number], np.uint64) for number in (key, counter)]
    return np.random.Philox(key=words[0], counter=words[1])
