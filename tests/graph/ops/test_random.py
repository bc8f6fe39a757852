from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.graph.ops.random import RandomUniform, philox4x32
from netspec.graph.types import DType, TensorType

# Known answers that the authors ship with Random123 (tests/kat_vectors), "philox4x32 10".
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_philox_matches_published_answers(counter, key, answer):
    c0, c1, c2, c3 = (np.array([word], np.uint64) for word in words(counter))
    k0, k1 = words(key)
    assert [int(word[0]) for word in philox4x32(np, (c0, c1, c2, c3), (k0, k1))] == words(answer)


def draw(*shape: int, rng=(1, 2, 0), stream: int = 3, dtype: DType = DType.FLOAT32) -> np.ndarray:
    numbers = RandomUniform(TensorType(shape, dtype), stream).forward(np, np.array(rng, np.int64))
    assert isinstance(numbers, np.ndarray)
    return numbers


def test_numbers_follow_the_documented_counter():
    """Element i is word i mod 4 of counter (i div 4, step, stream) under the key `seed`; its upper 24 bits are used."""
    seed, step, stream = 0x1234567890, 5, 77
    numbers = draw(9, rng=(seed, step, 0), stream=stream, dtype=DType.FLOAT64)
    for i, number in enumerate(numbers):
        counter = tuple(np.array([word], np.uint64) for word in (i // 4, 0, step, stream))
        block = philox4x32(np, counter, (seed & 0xFFFFFFFF, seed >> 32))  # type: ignore[arg-type]  # four words
        assert number == (int(block[i % 4][0]) >> 8) / 2**24


@given(st.integers(0, 40), st.integers(1, 20), st.integers(1, 7))
def test_worker_batch_draws_the_numbers_of_the_global_batch(first, count, width):
    global_batch = draw(first + count, width)
    np.testing.assert_array_equal(draw(count, width, rng=(1, 2, first)), global_batch[first:])


def test_numbers_do_not_depend_on_precision():
    np.testing.assert_array_equal(draw(1000).astype(np.float64), draw(1000, dtype=DType.FLOAT64))


def test_numbers_are_uniform_and_uncorrelated_across_seed_step_and_stream():
    numbers = draw(100_000, dtype=DType.FLOAT64)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts, _ = np.histogram(numbers, 100, (0, 1))
    # χ² with 99 degrees of freedom: mean 99, standard deviation 14; within six standard deviations.
    assert ((counts - 1000) ** 2 / 1000).sum() < 99 + 6 * 14
    for other in (draw(100_000, rng=(2, 2, 0)), draw(100_000, rng=(1, 3, 0)), draw(100_000, stream=4)):
        # The correlation of independent values has the standard deviation 1/√n = 0.0032; within six of them.
        assert abs(np.corrcoef(numbers, other)[0, 1]) < 0.019


@pytest.mark.parametrize("rng", [(-1, 0, 0), (2**63 - 1, 2**40, 0), (-(2**63), 2**62, 2**40)])
def test_extreme_seeds_and_steps_draw_distinct_numbers(rng):
    numbers = draw(50, rng=rng)
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert len(np.unique(numbers)) > 45
