"""Damaged samples are an error or skipped, with any number of threads, and also after a resume."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.data import prefetch as prefetching
from netspec.data.base import DamagedSamples, Dataset, FieldType, OutOfRangeSamples
from netspec.data.batches import Batch
from netspec.data.input_binding import ValueRange
from netspec.data.loader import Loader
from netspec.data.readers.arrays import ArrayDataset
from netspec.data.thread_pool import ThreadPool
from netspec.errors import InputError, Problem
from tests.data.conftest import split_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


class Torn(Dataset):
    """`x` (2,), which contains the index of its sample; some samples cannot be read."""

    digest = "torn"

    def __init__(self, samples: int, damaged: Collection[int] = (), *, error: Exception | None = None) -> None:
        self.fields = {"x": FieldType((2,), "float64")}
        self._samples, self._damaged, self._error = samples, set(damaged), error

    def __len__(self) -> int:
        return self._samples

    def read(self, indices: np.ndarray) -> dict[str, Any]:
        torn = {
            row: [Problem(f"sample {index} is torn")] for row, index in enumerate(indices) if index in self._damaged
        }
        if torn and self._error is not None:
            raise self._error
        if torn:
            raise DamagedSamples(torn)
        return {"x": np.stack([indices, -indices], axis=1).astype(float)}

    def describe(self, index: int) -> str:
        return f"torn, sample {index}"


def loader_of(data: Dataset, *, prefetch: int = 0, **fields: Any) -> Loader:
    split = split_of(source="npz", path="unused", **{"on_error": "skip", "shuffle": True, "workers": 3, **fields})
    return Loader(data, split, seed=1, inputs={"x": FieldType((2,), "float32")}, prefetch=prefetch)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every batch as slow to prepare, so that threads share the preparation of batches after the first three."""
    monkeypatch.setattr(prefetching, "SLOW", -1.0)


def contents(batch: Batch) -> tuple[Any, ...]:
    skipped = [(sample.index, str(sample)) for sample in batch.skipped]
    position = (batch.epoch, batch.position, batch.step, batch.end)
    return position, batch.indices.tolist(), batch.inputs["x"].tolist(), skipped


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("netspec-")]


samples_and_damage = st.integers(1, 30).flatmap(
    lambda samples: st.tuples(st.just(samples), st.sets(st.integers(0, samples - 1), max_size=samples - 1))
)


@given(data=samples_and_damage, size=st.integers(1, 12))
def test_each_intact_sample_appears_once_per_epoch_in_full_batches(data, size):
    samples, damaged = data
    loader, plain = (loader_of(Torn(samples, torn), batch_size=size, workers=1) for torn in (damaged, ()))
    sound = samples - len(damaged)
    batches = list(islice(loader, 2 * -(-sound // size)))
    order = list(islice(plain, 2 * plain.steps_per_epoch))
    for epoch in (0, 1):
        of_epoch = [batch for batch in batches if batch.epoch == epoch]
        epoch_order = [index for batch in order if batch.epoch == epoch for index in batch.indices.tolist()]
        indices = [index for batch in of_epoch for index in batch.indices.tolist()]
        assert indices == [index for index in epoch_order if index not in damaged]
        assert [len(batch) for batch in of_epoch[:-1]] == [size] * (len(of_epoch) - 1)
        assert sorted(sample.index for batch in of_epoch for sample in batch.skipped) == sorted(damaged)
        assert [batch.position for batch in of_epoch[1:]] == [batch.end for batch in of_epoch[:-1]]
        assert of_epoch[-1].end == samples
    assert loader.epoch == 2
    assert loader.between_epochs


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("size", [1, 7, 20, 64])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_do_not_depend_on_threads_and_resuming(size, workers):
    damaged = [0, 3, 4, 5, 6, 19, 38, 39]
    steps = 14
    straight = [contents(batch) for batch in islice(loader_of(Torn(40, damaged), batch_size=size), steps)]
    with loader_of(Torn(40, damaged), batch_size=size, prefetch=2, workers=workers) as loader:
        states, batches = [loader.state()], []
        for batch in islice(loader, steps):
            batches.append(contents(batch))
            states.append(loader.state())
    assert batches == straight
    for stopped in range(0, steps, 3):
        with loader_of(Torn(40, damaged), batch_size=size, prefetch=2, workers=workers) as loader:
            loader.restore(states[stopped])
            assert [contents(batch) for batch in islice(loader, steps - stopped)] == straight[stopped:]
    assert threads() == []


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("prefetch", [0, 2])
def test_values_that_the_net_does_not_have_are_never_skipped(prefetch):
    data = Torn(50, [7])
    split = split_of(source="npz", path="unused", batch_size=4, on_error="skip", workers=2)
    ranges = {"x": ValueRange(-20, 45, "so it is")}
    with Loader(
        data, split, seed=1, inputs={"x": FieldType((2,), "float32")}, ranges=ranges, prefetch=prefetch
    ) as loader:
        batches = loader.one_pass()
        read = [index for _ in range(4) for index in next(batches).indices.tolist()]
        assert read == [*range(7), *range(8, 17)]
        with pytest.raises(OutOfRangeSamples) as error:
            next(batches)
    assert error.value.problems[0].brief == "`x` is -21.0, out of range: -21.0 in torn, sample 21"


def test_labels_out_of_range_are_an_error_before_the_first_batch_while_damaged_ones_are_skipped():
    labels = np.array([0, 1, np.nan, 5, 5, 2])
    data = ArrayDataset({"label": labels}, digest="", describe=lambda index: f"labels.npz, sample {index}")
    split = split_of(source="npz", path="unused", batch_size=3, on_error="skip")
    ranges, inputs = {"label": ValueRange(0, 4, "`logits` has 5 classes")}, {"label": FieldType((), "int32")}
    data.non_integer_labels = {"label": [Problem("nan in sample 2")]}
    with pytest.raises(InputError) as error:
        Loader(data, split, seed=1, inputs=inputs, ranges=ranges)
    (problem,) = error.value.problems
    assert problem.message == "`label` is out of range in 2 of 6 samples"
    labels[3:5] = 4
    with Loader(data, split, seed=1, inputs=inputs, ranges=ranges, prefetch=0) as loader:
        batches = list(loader.one_pass())
    assert [batch.inputs["label"].tolist() for batch in batches] == [[0, 1, 4], [4, 2]]


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("prefetch", [0, 2])
def test_without_skipping_all_damaged_samples_of_a_batch_are_reported(prefetch):
    with loader_of(Torn(90, [70, 71, 85]), batch_size=20, prefetch=prefetch, on_error="error", shuffle=False) as loader:
        batches = loader.one_pass()
        assert [next(batches).indices[0] for _ in range(3)] == [0, 20, 40]
        with pytest.raises(InputError) as error:
            next(batches)
    assert [problem.message for problem in error.value.problems] == ["sample 70 is torn", "sample 71 is torn"]
    assert threads() == []


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_epoch_without_an_intact_sample_is_an_error(prefetch):
    with loader_of(Torn(6, range(6)), batch_size=4, prefetch=prefetch) as loader, pytest.raises(InputError) as error:
        next(iter(loader))
    assert error.value.problems[0].message == "none of 6 samples can be used"
    assert len(error.value.problems) == 6


@pytest.mark.usefixtures("slow")
def test_an_error_in_a_thread_is_raised_after_the_preceding_batches():
    data = Torn(90, [70], error=OSError("the disk is gone"))
    with loader_of(data, batch_size=20, prefetch=2, on_error="error", shuffle=False) as loader:
        batches = loader.one_pass()
        assert [next(batches).indices[0] for _ in range(3)] == [0, 20, 40]
        with pytest.raises(InputError, match="the disk is gone"):
            next(batches)
    assert threads() == []


class Slow(Torn):
    """A dataset that takes some time to read."""

    def read(self, indices: np.ndarray) -> dict[str, Any]:
        time.sleep(0.005)
        return super().read(indices)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("steps", [3, 5])
def test_stopping_early_ends_the_threads(steps):
    def consume() -> None:
        for batch in loader_of(Slow(10_000), batch_size=64, prefetch=2):
            if batch.step == steps:
                assert "netspec-prefetch" in threads()
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert threads() == []


def test_workers_keep_the_order_and_stop_at_once():
    def slowest_first(item: int) -> int:
        time.sleep(0.002 * (5 - item % 5))
        if item == 23:
            raise ValueError("23")
        return item

    def items() -> Iterator[int]:
        yield from range(23)
        yield 23

    with ThreadPool(4) as workers:
        results = workers.map_ordered(slowest_first, items(), 8)
        assert list(islice(results, 23)) == list(range(23))
        with pytest.raises(ValueError, match="23"):
            next(results)
        blocked = workers.map_ordered(lambda _: time.sleep(0.05), iter(range(100)), 50)
        next(blocked)
        began = time.perf_counter()
    # It waits only for the items that have begun; all 50 would take longer.
    assert time.perf_counter() - began < 1
    assert threads() == []


def test_a_consumer_that_waits_for_a_running_item_is_released_at_once():
    begun, end = threading.Event(), threading.Event()

    def run(_: int) -> None:
        begun.set()
        end.wait(10)

    with ThreadPool(1) as workers:

        def stop() -> None:
            begun.wait()
            workers.stop()

        Thread(target=stop).start()
        with pytest.raises(CancelledError):
            next(workers.map_ordered(run, iter(range(3)), 1))
        end.set()
    assert threads() == []


def test_threads_that_start_after_the_end_of_their_pool_end_too():
    workers = ThreadPool(3)
    workers.stop()
    with pytest.raises(CancelledError):
        next(workers.map_ordered(str, iter(range(3)), 1))
    workers.close()
    assert threads() == []
