"""The order of samples within windows and in streams."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.data.loader import Loader
from netspec.data.random import SequentialOrder, ShuffledOrder, WindowedOrder, order_digest
from netspec.errors import InputError
from netspec.schema.specs.data import ShuffleWindow
from tests.data.conftest import plain_dataset, split_of


@given(
    samples=st.integers(1, 120), window=st.integers(1, 60), epoch=st.integers(0, 3), stream=st.booleans(),
    cut=st.integers(1, 50),
)  # fmt: skip
def test_a_windowed_order_has_every_sample_once(samples, window, epoch, stream, cut):
    def order() -> WindowedOrder:
        return WindowedOrder(samples, 5, epoch, window, stream=stream)

    order_taken = order().take(0, samples).tolist()
    assert sorted(order_taken) == list(range(samples))
    shuffled = order()
    pieces = [shuffled.take(start, min(start + cut, samples)).tolist() for start in range(0, samples, cut)]
    assert [index for piece in pieces for index in piece] == order_taken
    if stream:
        assert all(position // window == index // window for position, index in enumerate(order_taken))


def test_a_window_reads_few_blocks_of_adjacent_samples():
    order = WindowedOrder(10_000, 1, 0, 320)
    for number in range(5):
        blocks = {index // 20 for index in order.take(number * 320, (number + 1) * 320).tolist()}
        assert len(blocks) <= 17  # 16, and where the last block is a short one, a piece of another
    assert len({index // 1000 for index in order.take(0, 320).tolist()}) > 3


def test_no_block_is_smaller_than_the_read_unit():
    order = WindowedOrder(10_000, 1, 0, 320, block=1000)
    for number in range(30):
        assert len({index // 1000 for index in order.take(number * 320, (number + 1) * 320).tolist()}) <= 2
    assert sorted(order.take(0, 10_000).tolist()) == list(range(10_000))


def test_windowed_orders_differ_by_seed_and_epoch_and_are_frozen():
    # Frozen: another order would make every checkpoint written so far resume elsewhere.
    assert WindowedOrder(10, 1, 0, 4).take(0, 10).tolist() == WINDOWED_1_0
    assert WindowedOrder(10, 1, 1, 4).take(0, 10).tolist() != WINDOWED_1_0
    assert WindowedOrder(10, 2, 0, 4).take(0, 10).tolist() != WINDOWED_1_0


def test_the_digest_of_a_short_order_covers_all_of_it(monkeypatch: pytest.MonkeyPatch):
    full_digest = order_digest(ShuffledOrder(100, 1, 0), 100)
    assert full_digest != order_digest(SequentialOrder(), 100)
    monkeypatch.setattr("netspec.data.random._PIECE", 50)
    assert order_digest(ShuffledOrder(100, 1, 0), 100) == full_digest


def test_the_digest_of_a_long_order_covers_its_ends():
    assert order_digest(SequentialOrder(), 2**45) != order_digest(
        SequentialOrder(), 2**45 + 1
    )  # drawing the full order would take days


def test_the_loader_uses_the_window_of_the_spec():
    split = split_of(source="npz", path="x", shuffle={"window": 4}, batch_size=10)
    assert split.shuffle == ShuffleWindow(window=4)
    (batch,) = [next(iter(Loader(plain_dataset(10), split, seed=1)))]
    assert batch.indices.tolist() == WINDOWED_1_0
    other = Loader(plain_dataset(10), split_of(source="npz", path="x", shuffle=True, batch_size=10), seed=1)
    with pytest.raises(InputError, match="`seed` or `shuffle` changed"):
        other.restore(Loader(plain_dataset(10), split, seed=1).state())


def test_a_stream_shuffles_no_more_samples_than_it_can_hold():
    data = plain_dataset(10)
    data.window = 4
    first = Loader(data, split_of(source="npz", path="x", shuffle=True, batch_size=4), seed=1)
    assert sorted(next(iter(first)).indices.tolist()) == [0, 1, 2, 3]
    with pytest.raises(InputError, match="the stream cannot hold that many samples") as error:
        Loader(data, split_of(source="npz", path="x", shuffle={"window": 5}), seed=1)
    assert error.value.problems[0].expected == "at most 4"


def test_orders_of_the_largest_index():
    assert np.array_equal(SequentialOrder().take(2**40, 2**40 + 2), [2**40, 2**40 + 1])


WINDOWED_1_0 = [5, 3, 9, 8, 1, 2, 0, 4, 6, 7]
