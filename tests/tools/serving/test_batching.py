"""`Batcher`: which requests share a batch, padding, errors, and the end."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

from netspec.tools.serving.batching import Arrays, Batcher, batch_sizes


def double(arrays: Arrays) -> Arrays:
    return {"y": 2 * arrays["x"]}


def batch(*values: float) -> Arrays:
    return {"x": np.array(values, np.float32)}


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(1, [1]), (2, [1, 2]), (32, [1, 2, 4, 8, 16, 32]), (48, [1, 2, 4, 8, 16, 32, 48]), (256, [1, 4, 16, 64, 256])],
)
def test_sizes_are_few_and_end_with_the_largest_batch(most, sizes):
    assert batch_sizes(most) == sizes
    assert all(len(batch_sizes(size)) <= 7 and batch_sizes(size)[-1] == size for size in range(1, 4097))


def test_requests_that_arrive_together_share_a_batch():
    computed = []

    def compute(arrays):
        computed.append(arrays["x"].tolist())
        return double(arrays)

    batcher = Batcher(compute, [1, 4, 8], max_delay=5.0)
    futures = [batcher.submit(batch(*range(size)), size) for size in (1, 3, 4)]
    results = [future.result(10)["y"].tolist() for future in futures]
    batcher.close()
    assert results == [[0], [0, 2, 4], [0, 2, 4, 6]]
    assert computed == [[0, 0, 1, 2, 0, 1, 2, 3]], "the batch was full, so nothing waited for 5 s"


def test_a_batch_waits_no_longer_than_its_delay_and_is_padded():
    computed = []
    batcher = Batcher(double, [1, 4, 8], max_delay=0.05, observe=lambda samples, seconds: computed.append(samples))
    began = time.monotonic()
    assert batcher.submit(batch(1, 2, 3), 3).result(10)["y"].tolist() == [2, 4, 6]
    assert time.monotonic() - began >= 0.045
    batcher.close()
    assert computed == [3]


def test_more_samples_than_a_batch_are_computed_in_parts():
    sizes = []

    def compute(arrays):
        sizes.append(len(arrays["x"]))
        return double(arrays)

    batcher = Batcher(compute, [1, 2, 4], max_delay=0.0)
    assert batcher.submit(batch(*range(9)), 9).result(10)["y"].tolist() == [2 * number for number in range(9)]
    batcher.close()
    assert sizes == [4, 4, 1]


def test_an_error_reaches_every_request_and_later_ones_are_computed():
    def compute(arrays):
        if arrays["x"].max() > 100:
            raise ValueError("too large")
        return double(arrays)

    batcher = Batcher(compute, [1, 2], max_delay=5.0)
    futures = [batcher.submit(batch(1000), 1), batcher.submit(batch(1), 1)]
    for future in futures:
        with pytest.raises(ValueError, match="too large"):
            future.result(10)
    assert batcher.submit(batch(1, 2), 2).result(10)["y"].tolist() == [2, 4]
    batcher.close()


def test_a_canceled_request_is_not_computed():
    entered, leave, computed = threading.Event(), threading.Event(), []

    def compute(arrays):
        computed.append(arrays["x"].tolist())
        entered.set()
        leave.wait(10)
        return double(arrays)

    batcher = Batcher(compute, [1], max_delay=0.0)
    first, second = batcher.submit(batch(1), 1), batcher.submit(batch(2), 1)
    assert entered.wait(10)
    assert batcher.waiting == 1
    assert second.cancel()
    leave.set()
    assert first.result(10)["y"].tolist() == [2]
    batcher.close()
    assert computed == [[1]]
    with pytest.raises(CancelledError):
        second.result(0)


def test_close_computes_waiting_requests():
    batcher = Batcher(double, [1, 8], max_delay=60.0)
    futures = [batcher.submit(batch(number), 1) for number in range(3)]
    batcher.close()
    assert [future.result(0)["y"].tolist() for future in futures] == [[0], [2], [4]]
    with pytest.raises(RuntimeError):
        batcher.submit(batch(1), 1)
