"""The loader: order, coverage, resuming, prefetching, and the errors it finds in data."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.data import prefetch as prefetching
from netspec.data.base import FieldType, SampleKeys
from netspec.data.batches import Batch
from netspec.data.input_binding import InputBinding, ValueRange
from netspec.data.loader import Loader, open_loader
from netspec.data.random import epoch_order, sample_generator
from netspec.data.readers.arrays import ArrayDataset
from netspec.errors import InputError
from tests.data.conftest import PLAIN, plain_dataset, problems_of, split_of

sizes = st.integers(1, 40)


def loader_of(samples: int, *, seed: int = 1, prefetch: int = 0, **fields: Any) -> Loader:
    split = split_of(source="npz", path="unused.npz", shuffle=fields.pop("shuffle", True), **fields)
    return Loader(plain_dataset(samples), split, seed=seed, inputs=PLAIN, prefetch=prefetch)


def same(first: Batch, other: Batch) -> bool:
    return (
        (first.epoch, first.position, first.step) == (other.epoch, other.position, other.step)
        and np.array_equal(first.indices, other.indices)
        and all(np.array_equal(values, other.inputs[name]) for name, values in first.inputs.items())
    )


def test_the_order_does_not_change_between_versions():
    # Frozen: another order would make every checkpoint written so far resume elsewhere.
    assert epoch_order(10, seed=1, epoch=0).tolist() == ORDER_1_0
    assert epoch_order(10, seed=1, epoch=1).tolist() == ORDER_1_1
    assert epoch_order(10, seed=2, epoch=0).tolist() == ORDER_2_0


@given(samples=st.integers(0, 200), seed=st.integers(0, 2**64), epoch=st.integers(0, 10**6))
def test_an_order_is_a_permutation(samples, seed, epoch):
    assert sorted(epoch_order(samples, seed, epoch).tolist()) == list(range(samples))


def test_orders_are_fair():
    """Each of 6 orders of 3 samples is drawn about as often: 6000 epochs, expected 1000 ± 29, so 5 sigma is 145."""
    orders = [tuple(epoch_order(3, seed=7, epoch=epoch).tolist()) for epoch in range(6000)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert all(abs(count - 1000) < 145 for count in counts)


@given(samples=sizes, batch=sizes, shuffle=st.booleans(), limit=st.none() | sizes)
def test_every_epoch_has_every_sample_once(samples, batch, shuffle, limit):
    loader = loader_of(samples, batch_size=batch, shuffle=shuffle, limit=limit)
    expected = min(samples, limit or samples)
    batches = list(islice(loader, 2 * loader.steps_per_epoch))
    for epoch in (0, 1):
        of_epoch = [batch for batch in batches if batch.epoch == epoch]
        assert len(of_epoch) == loader.steps_per_epoch
        indices = [index for batch_read in of_epoch for index in batch_read.indices.tolist()]
        assert sorted(indices) == list(range(expected))
        assert shuffle or indices == list(range(expected))
        assert [batch_read.position for batch_read in of_epoch] == [number * batch for number in range(len(of_epoch))]
        assert {len(batch_read) for batch_read in of_epoch} == set(loader.batch_sizes)
    assert [batch.step for batch in batches] == list(range(len(batches)))
    for batch_read in batches:
        assert batch_read.inputs["label"].dtype == np.int32
        assert batch_read.inputs["label"].tolist() == batch_read.indices.tolist()
        assert batch_read.inputs["x"][:, 1].tolist() == (-batch_read.indices).tolist()


@given(samples=sizes, batch=sizes, prefetch=st.integers(0, 3))
def test_one_pass_has_every_sample_once_in_order(samples, batch, prefetch):
    loader = loader_of(samples, batch_size=batch, prefetch=prefetch)
    before = loader.state()
    for _ in range(2):
        indices = [index for read_batch in loader.one_pass() for index in read_batch.indices.tolist()]
        assert indices == list(range(samples))
    assert loader.state() == before


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("batch", [1, 3, 5, 10, 12])
def test_resuming_at_any_batch_gives_the_same_batches(batch, prefetch):
    samples, steps = 10, 22
    straight = list(islice(loader_of(samples, batch_size=batch), steps))
    stopping = loader_of(samples, batch_size=batch, prefetch=prefetch)
    states = [stopping.state(), *(stopping.state() for _ in islice(stopping, steps))]
    stopping.close()
    for stopped, state in enumerate(states):
        resumed = loader_of(samples, batch_size=batch, prefetch=prefetch)
        resumed.restore(state)
        remaining = list(islice(resumed, steps - stopped))
        resumed.close()
        assert all(
            same(resumed_batch, other) for resumed_batch, other in zip(remaining, straight[stopped:], strict=True)
        )


def test_a_new_iteration_continues_where_the_last_one_stopped():
    loader = loader_of(10, batch_size=4)
    straight = list(islice(loader_of(10, batch_size=4), 6))
    first = iter(loader)
    halves = [next(first), next(first), *islice(loader, 4)]
    assert all(same(second_half, other) for second_half, other in zip(halves, straight, strict=True))
    assert list(first) == []  # starting the second iterator has ended it


def test_resuming_with_another_batch_size_keeps_the_order():
    loader = loader_of(10, batch_size=4)
    next(iter(loader))
    resumed = loader_of(10, batch_size=3)
    resumed.restore(loader.state())
    batch = next(iter(resumed))
    assert (batch.position, batch.step) == (4, 1)
    assert batch.indices.tolist() == epoch_order(10, 1, 0)[4:7].tolist()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every batch as slow to prepare, so that batches after the first three are prepared ahead in a thread."""
    monkeypatch.setattr(prefetching, "SLOW", -1.0)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("prefetch", [1, 2, 5])
@pytest.mark.parametrize(("samples", "batch"), [(1, 1), (5, 3), (7, 7), (40, 3), (23, 30)])
def test_prefetching_does_not_change_batches(samples, batch, prefetch):
    expected = list(islice(loader_of(samples, batch_size=batch), 9))
    with loader_of(samples, batch_size=batch, prefetch=prefetch) as loader:
        batches = iter(loader)  # kept: its thread would end if it were garbage-collected
        batches_read = list(islice(batches, 9))
        assert len(prefetching_threads()) == 1
    assert all(same(read_batch, other) for read_batch, other in zip(batches_read, expected, strict=True))


def test_fast_items_start_no_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefetching, "SLOW", 60.0)
    with loader_of(100, batch_size=2, prefetch=3) as loader:
        batches = iter(loader)
        assert len(list(islice(batches, 9))) == 9
        assert prefetching_threads() == []


@pytest.mark.parametrize(("times", "ahead"), [([2, 2, 1, 2, 2, 1], 0), ([1, 2, 2, 2, 1, 1], 2)])
def test_a_thread_starts_after_three_slow_items_in_a_row(monkeypatch: pytest.MonkeyPatch, times, ahead):
    now = 0.0

    def items() -> Iterator[str]:
        nonlocal now
        for took in times:
            now += took
            yield threading.current_thread().name

    monkeypatch.setattr(prefetching, "SLOW", 1.5)
    monkeypatch.setattr(prefetching, "perf_counter", lambda: now)
    with prefetching.Prefetcher(items(), 2) as prefetcher:
        assert [name == "netspec-prefetch" for name in prefetcher] == [False] * (6 - ahead) + [True] * ahead


def prefetching_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "netspec-prefetch"]


@pytest.mark.usefixtures("slow")
def test_threads_end_with_the_loader():
    with loader_of(100, batch_size=2, prefetch=3) as loader:
        training, testing = iter(loader), loader.one_pass()
        list(islice(training, 3))
        list(islice(testing, 3))
        assert len(prefetching_threads()) == 2
    assert prefetching_threads() == []
    assert list(training) == []
    assert list(testing) == []


@pytest.mark.usefixtures("slow")
def test_threads_end_when_the_consumer_fails():
    def consume() -> None:
        for batch in loader_of(100, batch_size=2, prefetch=3):
            if batch.step == 4:
                assert len(prefetching_threads()) == 1
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert prefetching_threads() == []


class OnTheFly(ArrayDataset):
    """Samples whose labels can only be read together with the rest of the sample."""

    def reads_alone(self, name):
        return False


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_an_error_in_the_data_is_raised_after_the_preceding_batches(prefetch):
    labels = np.array([0, 1, 2, 1, 0, 0, 1, 1, 7, 0])
    data = OnTheFly({"label": labels}, digest="", describe=lambda index: f"labels.npz, sample {index}")
    split = split_of(source="npz", path="labels.npz", batch_size=2)
    inputs = {"label": FieldType((), "int32")}
    ranges = {"label": ValueRange(0, 2, "`logits` has 3 classes")}
    with Loader(data, split, seed=1, inputs=inputs, ranges=ranges, prefetch=prefetch) as loader:
        batches = loader.one_pass()
        assert [next(batches).indices.tolist() for _ in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        with pytest.raises(InputError) as error:
            next(batches)
    assert error.value.render() == (
        "train.yaml:2:9: error: `label` is 7, out of range\n"
        "  at: source\n"
        "  expected: 0 to 2: `logits` has 3 classes\n"
        "  got: 7 in labels.npz, sample 8"
    )


def test_the_same_fault_of_many_samples_is_shown_five_times_and_counted():
    data = OnTheFly({"label": np.full(64, 7)}, digest="", describe=lambda index: f"sample {index}")
    split = split_of(source="npz", path="labels.npz", batch_size=60)
    ranges = {"label": ValueRange(0, 2, "`logits` has 3 classes")}
    with Loader(data, split, seed=1, ranges=ranges, prefetch=0) as loader, pytest.raises(InputError) as error:
        next(loader.one_pass())
    *listed, last = error.value.problems
    assert [problem.got for problem in listed] == [f"7 in sample {index}" for index in range(5)]
    assert last.message == "`label`: the same problem in 55 more samples of this batch of 60"


@pytest.mark.parametrize(
    ("labels", "dtype", "message", "got", "hint"),
    [
        ([1, 2, 3, 3], "int32", "`label` is out of range in 2 of 4 samples", "3 (2 samples)", "classes count from 0"),
        ([1, 2, 3, 0], "int32", "`label` is 3, out of range", "3 in x, sample 2", None),
        ([0.5, 1, 0.5, 2], "int32", "`label` does not fit in int32 in 2 of 4 samples", "0.5 (2 samples)", None),
        ([np.nan, 1, np.inf, 2], "float32", "`label` is missing or not finite in 2 of 4 samples",
         "nan (1 sample), inf (1 sample)", None),
    ],
)  # fmt: skip
def test_labels_are_checked_when_they_can_be_read_alone(labels, dtype, message, got, hint):
    values = np.array(labels)
    data = ArrayDataset({"label": values}, digest="", describe=lambda index: f"x, sample {index}")
    binding = InputBinding("label", "label", (), dtype, exact=values.dtype.kind == "i" or dtype == "float32",
                           range=ValueRange(0, 2, "`logits` has 3 classes") if dtype == "int32" else None)  # fmt: skip
    problem, *_ = binding.check_all(values, data.describe)
    assert (problem.message, problem.got) == (message, got)
    assert (problem.hint or "").startswith(hint or "")
    assert bool(problem.hint) == bool(hint)


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        (np.array([[0.0, 1.0], [2.0, np.nan]], np.float32), "float32", "nan in x, sample 1"),
        (np.array([[0.0, 1e300], [2.0, 1.0]]), "float32", "1e+300 in x, sample 0"),
        (np.array([[0.0, -np.inf], [2.0, np.inf]]), "float64", "-inf in x, sample 0"),
        (np.array([[1, 2], [3, 2**31]]), "int32", "2147483648 in x, sample 1"),
        (np.array([[1, 2], [3, 2**64 - 1]], np.uint64), "int64", "18446744073709551615 in x, sample 1"),
        (np.array([[1, 2], [3, -1]], np.int32), "uint8", "-1 in x, sample 1"),
        (np.array([[2**24, 2], [3, 2**24 + 1]], np.int32), "float32", "16777217 in x, sample 1"),
    ],
)
def test_values_that_an_input_cannot_take_are_reported(values, dtype, message):
    data = ArrayDataset({"x": values}, digest="", describe=lambda index: f"x, sample {index}")
    loader = Loader(data, split_of(source="npz", path="x"), seed=1, inputs={"x": FieldType((2,), dtype)}, prefetch=0)
    with pytest.raises(InputError) as error:
        list(loader.one_pass())
    assert message in [problem.got for problem in error.value.problems]
    assert f"{dtype}" in str(error.value)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("source", ["uint8", "int64", "bool"])
def test_values_that_fit_are_converted(source, dtype):
    data = ArrayDataset({"x": np.array([0, 1, 1]).astype(source)}, digest="", describe=str)
    loader = Loader(data, split_of(source="npz", path="x"), seed=1, inputs={"x": FieldType((), dtype)}, prefetch=0)
    (batch,) = loader.one_pass()
    assert batch.inputs["x"].dtype == dtype
    assert batch.inputs["x"].tolist() == [0, 1, 1]


def test_all_fields_that_do_not_match_the_net_are_reported_at_once(tmp_path):
    image, score, label = np.zeros((3, 28, 28), np.uint8), np.zeros(3, np.float32), np.zeros(3, np.int64)
    np.savez(tmp_path / "some.npz", image=image, score=score, label=label)
    inputs = {"label": "labl", "imge": "image", "y": "score"}
    split = split_of(str(tmp_path / "train.yaml"), source="npz", path="some.npz", inputs=inputs)
    net_inputs = {
        "image": FieldType((1, 28, 28), "float32"),
        "label": FieldType((), "int32"),
        "y": FieldType((), "int32"),
        "z": FieldType((4,), "float32"),
    }
    with pytest.raises(InputError) as error:
        open_loader(split, seed=1, inputs=net_inputs)
    assert problems_of(error, tmp_path) == MISMATCHES


def test_without_requested_inputs_all_fields_keep_their_names():
    split = split_of(source="npz", path="x", inputs={"image": "x"})
    (batch, *_) = Loader(plain_dataset(3), split, seed=1).one_pass()
    assert {name: values.dtype.name for name, values in batch.inputs.items()} == {"image": "float32", "label": "int64"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 11}, "the training data changed since the checkpoint"),
        ({"seed": 2}, "`seed` or `shuffle` changed since the checkpoint"),
        ({"shuffle": False}, "`seed` or `shuffle` changed since the checkpoint"),
        ({"limit": 9}, "`limit` changed since the checkpoint"),
    ],
)
def test_a_checkpoint_of_other_data_is_refused(change, message):
    state = loader_of(10).state()
    other = loader_of(**{"samples": 10, **change})
    with pytest.raises(InputError) as error:
        other.restore(state)
    assert error.value.summary == message
    assert error.value.problems[0].hint


@pytest.mark.parametrize("damage", [{"epoch": -1}, {"position": "4"}, {"step": None}, {"position": 10}])
def test_a_damaged_checkpoint_is_refused(damage):
    loader = loader_of(10)
    with pytest.raises(InputError, match="position in the data is damaged"):
        loader.restore({**loader.state(), **damage})


def test_no_samples_is_an_error():
    with pytest.raises(InputError, match="the data has no samples"):
        loader_of(0)


def test_the_random_numbers_of_a_sample_depend_only_on_its_keys():
    draws = {
        (seed, epoch, index, stage): sample_generator(seed, epoch, index, stage).random()
        for seed in (0, 1, 2**64 - 1)
        for epoch in (0, 1)
        for index in (0, 1, 5)
        for stage in (0, 1)
    }
    assert len(set(draws.values())) == len(draws)
    assert draws[1, 1, 5, 1] == sample_generator(1, 1, 5, 1).random()


@pytest.mark.parametrize("others", [0, 100])  # the numbers of many samples are computed together
def test_uniform_numbers_equal_the_philox_of_numpy(others):
    indices = np.append(np.array([0, 1, 7, 2**40]), np.arange(others))
    for seed, epoch, stage in ((0, 0, 0), (3, 5, 2), (2**64 - 1, 2**33, 1)):
        drawn = SampleKeys(seed, epoch, indices, stage).uniform(7)
        assert drawn.shape == (len(indices), 7)
        for row, index in enumerate(indices.tolist()):
            key, counter = np.array([seed, 3], np.uint64), np.array([0, epoch, index, stage], np.uint64)
            expected = np.random.Generator(np.random.Philox(key=key, counter=counter)).random(7)
            assert drawn[row].tolist() == expected.tolist()


def test_uniform_numbers_depend_only_on_the_sample():
    all_numbers = SampleKeys(1, 2, np.arange(90), 3).uniform(2)
    assert all_numbers[4:6].tolist() == SampleKeys(1, 2, np.array([4, 5]), 3).uniform(2).tolist()
    assert all_numbers[:, :1].tolist() == SampleKeys(1, 2, np.arange(90), 3).uniform(1).tolist()


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"image": (1, 8, 8), "label": ()}, "set `inputs: {a: image, b: label}`"),
        ({"image": (1, 8, 8), "id": (), "label": ()}, "name the field that feeds it: `inputs: {b: …}`"),
    ],
)
def test_inputs_without_a_field_get_the_only_field_that_fits_as_hint(fields, hint):
    data = ArrayDataset(
        {name: np.zeros((2, *shape), np.int32) for name, shape in fields.items()}, digest="", describe=str
    )
    inputs = {"a": FieldType((1, 8, 8), "float32"), "b": FieldType((), "int32")}
    with pytest.raises(InputError) as error:
        Loader(data, split_of(source="npz", path="x.npz", batch_size=2), seed=1, inputs=inputs, prefetch=0)
    assert [problem.message[-3:] for problem in error.value.problems] == ["`a`", "`b`"]
    assert error.value.problems[-1].hint == hint


ORDER_1_0 = [0, 6, 5, 3, 4, 9, 7, 8, 2, 1]
ORDER_1_1 = [8, 7, 9, 2, 5, 3, 6, 4, 1, 0]
ORDER_2_0 = [2, 7, 0, 9, 8, 1, 5, 6, 3, 4]

MISMATCHES = """\
./train.yaml:2:1: error: the net has no input `imge`
  at: inputs.imge
  expected: one of image, label, y, z
  hint: did you mean `image`?
./train.yaml:2:9: error: `image` has a different shape from the net's input `image`
  at: source
  expected: float32 of shape [1, 28, 28], as the net declares
  got: uint8 of shape [28, 28] from the source
  hint: declare `image: {shape: [28, 28]}` in the net, or change the data
./train.yaml:1:8: error: the source has no field `labl`
  at: inputs.label
  expected: one of image, label, score
  hint: did you mean `label`?
./train.yaml:3:4: error: `score` cannot feed the net's input `y` without loss
  at: inputs.y
  expected: int32 of shape [], as the net declares
  got: float32 of shape [] from the source
  hint: if these are class numbers, write them as integers (2, not 2.5) in every row of the data; if not, \
declare `y: {dtype: float32}` and use a loss for real numbers such as MeanSquaredError
./train.yaml:2:9: error: the source has no field for the net's input `z`
  at: source
  expected: a field `z`: float32 of shape [4]
  got: `image`: uint8 of shape [28, 28], `score`: float32 of shape [], `label`: int64 of shape []
  hint: name the field that feeds it: `inputs: {z: …}`
5 errors"""
