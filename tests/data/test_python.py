"""Samples from a Python program: arrays, lists, streams; and reports of wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.data.base import Dataset
from netspec.data.loader import Loader
from netspec.data.random import WindowedOrder
from netspec.data.readers.python import StreamDataset
from netspec.data.sources.python import Python
from netspec.errors import InputError
from netspec.training.evaluation import test as evaluated
from tests.data.conftest import split_of

COUNT = 50


def stream() -> Iterator[dict[str, Any]]:
    for index in range(COUNT):
        yield {"x": np.array([index, -index], np.float32), "label": index}


def loader_of(samples: object, *, prefetch: int = 0, **fields: Any) -> Loader:
    split = split_of(source="python", **{"batch_size": 8, "shuffle": True, **fields})
    assert isinstance(split, Python)
    return Loader(split.with_samples(samples).open(seed=1), split, seed=1, prefetch=prefetch)


def epochs(loader: Loader, number: int) -> list[tuple[int, list[Any], list[Any]]]:
    """Epoch, indices and values of each batch."""
    batches = islice(loader, number * loader.steps_per_epoch)
    return [(batch.epoch, batch.indices.tolist(), batch.inputs["x"].tolist()) for batch in batches]


class Fresh:
    """An iterable that can be iterated over repeatedly."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return stream()


GIVEN: dict[str, Callable[[], Any]] = {
    "arrays": lambda: {"x": np.array([[n, -n] for n in range(COUNT)], np.float32), "label": list(range(COUNT))},
    "list": lambda: list(stream()),
    "tuples": lambda: [(sample["x"], sample["label"]) for sample in stream()],
    "function": lambda: stream,
    "iterable": Fresh,
}


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("kind", GIVEN)
def test_every_sample_appears_once_per_epoch(monkeypatch: pytest.MonkeyPatch, kind, prefetch):
    monkeypatch.setattr("netspec.data.prefetch.SLOW", -1.0)
    more = {"fields": ["x", "label"]} if kind == "tuples" else {}
    with loader_of(GIVEN[kind](), prefetch=prefetch, **more) as loader:
        epochs_read = epochs(loader, 2)
    for epoch in (0, 1):
        of_epoch = [
            (index, x)
            for number, indices, xs in epochs_read
            if number == epoch
            for index, x in zip(indices, xs, strict=True)
        ]
        assert sorted(index for index, _ in of_epoch) == list(range(COUNT))
        assert all(x == [index, -index] for index, x in of_epoch)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_stream_resumes_at_its_position(monkeypatch: pytest.MonkeyPatch, prefetch):
    monkeypatch.setattr("netspec.data.prefetch.SLOW", -1.0)
    fields = {"shuffle": {"window": 20}, "prefetch": prefetch}
    straight = epochs(loader_of(stream, **fields), 3)
    assert [index for _, indices, _ in straight[:7] for index in indices] == WindowedOrder(
        COUNT, 1, 0, 20, stream=True
    ).take(0, COUNT).tolist()
    for stop in (3, 7, 12):
        with loader_of(stream, prefetch=prefetch, shuffle={"window": 20}) as loader:
            list(islice(loader, stop))
            state = loader.state()
        with loader_of(stream, prefetch=prefetch, shuffle={"window": 20}) as loader:
            loader.restore(state)
            remaining = islice(loader, 21 - stop)
            assert [
                (batch.epoch, batch.indices.tolist(), batch.inputs["x"].tolist()) for batch in remaining
            ] == straight[stop:]


def test_a_stream_holds_no_more_than_two_windows():
    alive: set[int] = set()
    most = 0

    class Tracked(np.ndarray):
        """An array that records when it is freed."""

        index = -1

        def __del__(self) -> None:
            alive.discard(self.index)

    def tracked() -> Iterator[dict[str, Any]]:
        nonlocal most
        for index in range(400):
            value = np.full(3, index, np.float32).view(Tracked)
            value.index = index
            alive.add(index)
            most = max(most, len(alive))
            yield {"x": value}

    with loader_of(tracked, shuffle={"window": 40}) as loader:
        epochs(loader, 2)
    assert 40 <= most <= 2 * 40 + 2  # two more: one in the generator, one taken from it


def test_windows_of_an_unshuffled_stream_are_batches():
    data = StreamDataset(stream, None, window=1, limit=None, skip=False)
    for start in range(0, COUNT, 10):
        data.read(np.arange(start, start + 10))
        assert len(data._buffered) <= 10


def test_a_limit_makes_an_endless_stream_end():
    loader = loader_of(lambda: ({"x": [n, -n]} for n in count()), limit=20)
    assert loader.samples == 20
    assert len(epochs(loader, 2)) == 6


def changing(values: list[Any]) -> Callable[[], Iterator[Any]]:
    """Return a function that iterates over the next of the lists at each call, but over the first list twice.

    The first list is read once for its first sample, and again for the first pass.
    """
    passes = iter([values[0], *values, values[-1]])
    return lambda: iter(next(passes))


ONE = {"x": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (3, "the object does not hold samples"),
        ({"x": [[1, 2], [3]]}, "`x` is not an array"),
        ({"x": np.zeros((3, 2)), "label": [1, 2]}, "the arrays differ in their number of samples"),
        ({"x": ["a", "b"]}, "`x` holds no samples"),
        ({}, "there are no arrays"),
        ([], "there are no samples"),
        (lambda: iter([]), "there are no samples"),
        (lambda: 3, "the function must return an iterator"),
        (stream(), "a generator can be iterated only once"),
        ([3], "not a sample"),
        ([(1, 2)], "a sample is a tuple, whose parts have no names"),
        (lambda: iter([ONE, {"y": [1.0, 2.0]}]), "a sample has different fields from the first one"),
        (lambda: iter([ONE, {"x": [1.0]}]), "`x` differs from the first sample"),
        (lambda: iter([ONE, {"x": "ab"}]), "`x` differs from the first sample"),
        (lambda: iter([{"x": [1, 2]}, {"x": [0.5, 2]}]), "`x` differs from the first sample"),
        ([{"x": "ab"}], "`x` of the first sample is not of numbers"),
    ],
)
def test_problems_are_reported_before_the_first_batch(samples, message):
    with pytest.raises(InputError) as error:
        loader_of(samples)
    assert error.value.problems[0].message.startswith(message)


@pytest.mark.parametrize(("second", "message"), [([ONE] * 2, "2"), ([ONE] * 4, "more")])
def test_a_different_number_of_samples_in_the_second_pass_is_an_error(second, message):
    with loader_of(changing([[ONE] * 3, second]), shuffle=False) as loader, pytest.raises(InputError) as error:
        list(loader.one_pass())
    assert "a different number of samples" in error.value.problems[0].message
    assert error.value.problems[0].got == message


def test_samples_that_do_not_fit_are_reported_or_skipped():
    samples = [ONE, {"x": [1.0]}, ONE, {"z": 1}, ONE]
    for source in (samples, lambda: iter(samples)):
        with loader_of(source, shuffle=False, on_error="skip", batch_size=2) as loader:
            batches = list(loader.one_pass())
        assert [batch.indices.tolist() for batch in batches] == [[0, 2], [4]]
        assert [str(skipped) for batch in batches for skipped in batch.skipped] == [
            "`x` differs from the first sample: float64 of shape [1] in sample 1",
            "a sample has different fields from the first one: z in sample 3",
        ]
    with pytest.raises(InputError) as error:
        loader_of(lambda: iter([ONE] + [{"x": [1.0]}] * 9))
    assert error.value.problems[-1].message == "4 more samples do not fit"


def test_the_fingerprint_depends_on_the_samples():
    def digest(samples: object) -> str:
        return loader_of(samples).state()["data"]  # type: ignore[return-value]  # a text, of the values of a state

    for kind in GIVEN.values():
        more: dict[str, Any] = {"fields": ["x", "label"]} if kind is GIVEN["tuples"] else {}
        assert loader_of(kind(), **more).state() == loader_of(kind(), **more).state()
    assert digest([ONE, ONE]) != digest([ONE, {"x": [1.0, 3.0]}])
    assert digest(lambda: iter([ONE, ONE])) != digest(lambda: iter([ONE, ONE, ONE]))


NET = {
    "netspec": 1,
    "name": "given",
    "inputs": {"x": {"shape": [2]}, "label": {"shape": [], "dtype": "int32"}},
    "layers": [{"name": "logits", "type": "Dense", "units": 2}],
    "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
}


def spec(**train: Any) -> dict[str, Any]:
    split = {"source": "python", "batch_size": 10}
    return {
        "netspec": 1,
        "net": NET,
        "data": {"train": {**split, "shuffle": {"window": 16}}, "test": split},
        "solver": {"type": "SGD", "learning_rate": 0.01},
        "train": {"max_epochs": 2, **train},
    }


def halves() -> Iterator[dict[str, Any]]:
    for sample in stream():
        yield {**sample, "label": sample["label"] % 2}


def test_training_on_python_samples_resumes_and_is_evaluated(tmp_path):
    arrays = {name: np.stack([np.asarray(sample[name]) for sample in halves()]) for name in ("x", "label")}
    samples = {"train": halves, "test": arrays}
    run = netspec.train(spec(), run_dir=tmp_path / "run", samples=samples)
    assert run.steps == 10
    assert run.test is not None
    longer = netspec.train(spec(max_epochs=3), run_dir=tmp_path / "run", samples=samples, resume=True)
    uninterrupted = netspec.train(spec(max_epochs=3), run_dir=tmp_path / "whole", samples=samples)
    assert longer.weights.read_bytes() == uninterrupted.weights.read_bytes()
    assert evaluated(spec(), longer.weights, samples=samples) == longer.test
    assert netspec.load(NET, longer.weights).evaluate(spec(), samples={"test": list(halves())}) == longer.test
    with pytest.raises(InputError, match="the samples of this split are missing") as error:
        netspec.train(run.run_dir / "spec.yaml", run_dir=tmp_path / "other")
    assert error.value.problems[0].location is not None


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([1], "samples are not given by split"),
        ({"training": [ONE]}, "samples are given for `training`, but the spec has no such split"),
        ({"test": [ONE]}, "samples are given for `test`, which reads from another source"),
    ],
)
def test_samples_are_given_by_split(samples, message):
    other = spec()
    other["data"]["test"] = {"source": "npz", "path": "x.npz", "batch_size": 4}
    with pytest.raises(InputError, match=message):
        netspec.train(other, samples=samples)


class Raising:
    """Nine samples, two of which raise an error."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> dict[str, float]:
        if index in {0, 4}:
            raise ValueError(f"no file {index}")
        return {"x": float(index)}


def streamed() -> Iterator[dict[str, float]]:
    """Return the same samples as an iterator that continues after an exception."""
    return map(Raising().__getitem__, range(9))


def open_given(samples: object, **fields: Any) -> Dataset:
    split = split_of("train.yaml", source="python", **fields)
    assert isinstance(split, Python)
    return split.with_samples(samples).open()


@pytest.mark.parametrize("samples", [Raising(), streamed], ids=["indexed", "stream"])
def test_exceptions_of_a_sequence_name_the_sample(samples):
    with pytest.raises(InputError) as error:
        open_given(samples)
    problem = error.value.problems[0]
    assert problem.message == "the program raised an exception for a sample"
    assert problem.got is not None
    assert problem.got.startswith("ValueError: no file 0 at ")
    assert problem.got.endswith(" in sample 0")
    with loader_of(samples, on_error="skip", batch_size=9) as loader:
        (batch,) = loader.one_pass()
    assert batch.inputs["x"].tolist() == [1, 2, 3, 5, 6, 7, 8]
    assert ["in sample 0" in str(sample.problems[0].got) for sample in batch.skipped] == [True, False]


def test_a_generator_that_raises_is_an_error():
    def samples():
        yield {"x": 1.0}
        yield {"x": 2.0}
        raise KeyError("name")

    with pytest.raises(InputError) as error:
        open_given(samples, on_error="skip")
    (problem,) = error.value.problems
    assert "KeyError: 'name'" in str(problem.got)
    assert str(problem.got).endswith("in sample 2")
    assert problem.hint == "no sample comes after it"


def test_a_first_sample_of_another_length_is_named():
    with pytest.raises(InputError) as error:
        open_given([(1.0, 2.0, 3.0), (1.0, 2.0)], fields=["x", "y"])
    assert error.value.problems[0].got == "3 parts in sample 0"
