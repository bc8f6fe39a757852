"""Random numbers of `netspec.data`: counter-based (Philox), with a key for each purpose.

Key and counter of Philox-4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) are set explicitly,
so any draw is computed without those before it: resuming needs no saved state, and workers need not communicate. Only
raw bits of the generator determine the order of samples: NumPy guarantees them for all its versions, but not
`permutation` (NEP 19).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from netspec.data.base import Array
from netspec.data.files import fingerprint_of

_ORDER, _SAMPLE, _UNIFORM, _BLOCKS, _WINDOW, _HOLD_OUT, _BALANCED = 1, 2, 3, 4, 5, 6, 7
"""Second half of the key: the purpose of the numbers."""
BLOCKS = 16
"""Number of blocks of neighbors in a shuffle window: reading stays local in a file, and windows differ."""
_WORD = 2**64


class Order(Protocol):
    """The order of the samples of an epoch, queried piece by piece."""

    def take(self, start: int, stop: int) -> Array:
        """Return the samples at these positions of the order, (stop - start,) of int64."""
        ...


class SequentialOrder:
    """The order of the source."""

    def take(self, start: int, stop: int) -> Array:
        """Return the positions themselves."""
        return np.arange(start, stop)


class ShuffledOrder:
    """A random order of all samples."""

    def __init__(self, samples: int, seed: int, epoch: int) -> None:
        self._order = epoch_order(samples, seed, epoch)

    def take(self, start: int, stop: int) -> Array:
        """Return a slice of the permutation."""
        return self._order[start:stop]


class WindowedOrder:
    """Blocks of neighbors in random order, shuffled within windows of `window` samples.

    Only the samples of a window are needed at a time. For a `stream`, which can only be read in order, the blocks are
    not shuffled. A block has at least `block` samples, the number that is read together; it may span several windows.
    """

    def __init__(
        self, samples: int, seed: int, epoch: int, window: int, *, stream: bool = False, block: int = 1
    ) -> None:
        self._samples, self._seed, self._epoch, self._window = samples, seed, epoch, window
        self._size = max(block, window // BLOCKS)
        blocks = -(-samples // self._size)
        self._blocks = np.arange(blocks) if stream else _permutation(blocks, [seed, _BLOCKS], [0, epoch, 0, 0])
        sizes = np.minimum(self._size, samples - self._blocks * self._size)
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self._last: tuple[int, Array] = (-1, np.zeros(0, np.int64))

    def take(self, start: int, stop: int) -> Array:
        """Return a slice of the order, from the windows that contain it."""
        first, last = start // self._window, -(-stop // self._window)
        pieces = [self._window_order(number) for number in range(first, last)] or [np.zeros(0, np.int64)]
        offset = first * self._window
        return np.concatenate(pieces)[start - offset : stop - offset]

    def _window_order(self, number: int) -> Array:
        """Return the order of one window. The last one is cached, since the next slice is usually of the same one."""
        if self._last[0] != number:
            positions = np.arange(number * self._window, min((number + 1) * self._window, self._samples))
            block = np.searchsorted(self._starts, positions, side="right") - 1
            samples = self._blocks[block] * self._size + positions - self._starts[block]
            mixed = _permutation(len(samples), [self._seed, _WINDOW], [0, self._epoch, number, 0])
            self._last = number, samples[mixed]
        return self._last[1]


def epoch_order(samples: int, seed: int, epoch: int) -> Array:
    """Return a permutation of `range(samples)`, (samples,) of int64, that depends only on the arguments.

    Every sample draws 64 bits; the order is that of the draws, with ties in the original order.
    """
    return _permutation(samples, [seed, _ORDER], [0, epoch, 0, 0])


class BalancedOrder:
    """A random order of as many draws as there are samples, in which all classes are equally frequent.

    `classes` (N,) are the class numbers of the samples, from 0, each with one sample or more. A class with fewer
    samples than draws is used several times in full before any sample is repeated once more.
    """

    def __init__(self, classes: Array, seed: int, epoch: int) -> None:
        count = len(classes)
        sizes = np.bincount(classes)
        members = np.split(np.argsort(classes, kind="stable"), np.cumsum(sizes)[:-1])
        turns = _permutation(len(sizes), [seed, _BALANCED], [0, epoch, 0, 0])
        draws = np.full(len(sizes), count // len(sizes))
        draws[turns[: count % len(sizes)]] += 1
        drawn = [
            member[_permutation(len(member), [seed, _BALANCED], [0, epoch, number + 1, turn])]
            for number, member in enumerate(members)
            for turn in range(-(-int(draws[number]) // len(member)))
        ]
        ends = np.cumsum([-(-int(draws[number]) // len(member)) * len(member) for number, member in enumerate(members)])
        every = np.concatenate(drawn)
        starts = np.concatenate([[0], ends[:-1]])
        chosen = np.concatenate([every[start : start + size] for start, size in zip(starts, draws, strict=True)])
        self._order = chosen[_permutation(count, [seed, _ORDER], [0, epoch, 0, 0])]

    def take(self, start: int, stop: int) -> Array:
        """Return a slice of the draws."""
        return self._order[start:stop]


def hold_out_order(samples: int, seed: int) -> Array:
    """Return a permutation of `range(samples)` that decides which samples are held out from training."""
    return _permutation(samples, [seed, _HOLD_OUT], [0, 0, 0, 0])


def _permutation(count: int, key: list[int], counter: list[int]) -> Array:
    return np.argsort(_philox(key, counter).random_raw(count), kind="stable")


def order_digest(order: Order, samples: int) -> str:
    """Return a fingerprint of an order of `samples` samples. Of a long order, only the beginning and the end count."""
    ends = (range(samples),) if samples <= 2 * _PIECE else (range(_PIECE), range(samples - _PIECE, samples))
    pieces = (order.take(end.start, end.stop) for end in ends)
    return fingerprint_of(samples * 8, (piece.astype("<i8").tobytes() for piece in pieces))


_PIECE = 2**20
"""Number of samples: enough to distinguish two orders, and few enough to hash in each checkpoint."""


def sample_generator(seed: int, epoch: int, index: int, stage: int) -> np.random.Generator:
    """Return the random numbers for one sample in one epoch at one stage of its preparation."""
    return np.random.Generator(_philox([seed, _SAMPLE], [0, epoch, index, stage]))


def sample_generators(seed: int, epoch: int, indices: Array, stage: int) -> Iterator[np.random.Generator]:
    """Yield `sample_generator` for each of the samples. Faster, since one object is reset."""
    source = _philox([seed, _SAMPLE], [0, epoch, 0, stage])
    generator = np.random.Generator(source)
    for _ in _reset_for_each(source, indices):
        yield generator


def _reset_for_each(source: np.random.Philox, indices: Array) -> Iterator[None]:
    """Reset the generator to the start of each of the samples in turn."""
    state: Any = source.state
    for index in indices.tolist():
        state["state"]["counter"][2] = index % _WORD
        source.state = state
        yield


_MANY = 64
"""Number of samples from which on computing their numbers together is faster than drawing them one by one."""


def sample_uniform(seed: int, epoch: int, indices: Array, stage: int, count: int) -> Array:
    """Return the first `count` numbers of each sample, (N, count) of float64 in [0, 1): multiples of 2⁻⁵³."""
    if len(indices) < _MANY:
        source = _philox([seed, _UNIFORM], [0, epoch, 0, stage])
        drawn = [source.random_raw(count) for _ in _reset_for_each(source, indices)]
        words = np.array(drawn, np.uint64).reshape(len(indices), count)
    else:
        words = _words_of_samples(seed, epoch, indices, stage, count)
    uniform: Array = (words >> np.uint64(11)) * 2.0**-53
    return uniform


def _words_of_samples(seed: int, epoch: int, indices: Array, stage: int, count: int) -> Array:
    blocks = -(-count // 4)
    counter = np.empty((4, len(indices), blocks), np.uint64)
    counter[0] = np.arange(1, blocks + 1, dtype=np.uint64)  # NumPy's generator increments the counter before it draws
    counter[1] = epoch % _WORD
    counter[2] = indices.astype(np.uint64)[:, None]
    counter[3] = stage
    words = philox(counter, (seed % _WORD, _UNIFORM))
    return np.moveaxis(words, 0, -1).reshape(len(indices), 4 * blocks)[:, :count]


_ROUNDS = 10
_FACTORS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_STEPS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B  # increments of the key in each round
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def philox(counter: Array, key: tuple[int, int]) -> Array:
    """Compute Philox-4x64-10 of many counters, (4, …) of uint64 → (4, …), equal to the draws of NumPy's generator."""
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
    """Return the upper and the lower 64 bits of each 128-bit product, from products of 32 bits."""
    low, high = values & _LOW, values >> _HALF
    factor_low, factor_high = factor & _LOW, factor >> _HALF
    cross = low * factor_high + ((low * factor_low) >> _HALF)
    middle = high * factor_low + (cross & _LOW)
    return high * factor_high + (cross >> _HALF) + (middle >> _HALF), values * factor


def _philox(key: list[int], counter: list[int]) -> np.random.Philox:
    """Return the generator with this key and counter, given as words of 64 bits, lowest first."""
    words = [np.array([word % _WORD for word in number], np.uint64) for number in (key, counter)]
    return np.random.Philox(key=words[0], counter=words[1])
