"""`sampler: balanced`: all classes are drawn equally often, in an order that depends only on seed and epoch."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.data.loader import Loader, open_loader
from netspec.data.random import BalancedOrder
from netspec.errors import InputError
from tests.data.conftest import split_of

LABELS = np.array([0] * 80 + [2] * 15 + [5] * 5, np.int32)


def loader(folder: Path, **fields: Any) -> Loader:
    np.savez(folder / "a.npz", x=np.arange(100, dtype=np.float32), label=LABELS)
    split = split_of(str(folder / "train.yaml"), source="npz", path="a.npz", batch_size=7, sampler="balanced", **fields)
    return open_loader(split, seed=3)


def drawn(order: BalancedOrder) -> np.ndarray:
    return order.take(0, 100)


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_all_classes_are_equally_frequent(epoch: int) -> None:
    classes = np.unique(LABELS, return_inverse=True)[1]
    order = drawn(BalancedOrder(classes, 3, epoch))
    assert sorted(np.bincount(classes[order]).tolist()) == [33, 33, 34]
    repeats = np.bincount(order, minlength=100)
    assert set(repeats[:80].tolist()) <= {0, 1}  # of the most frequent class, no sample twice
    assert set(repeats[80:95].tolist()) <= {2, 3}  # each of 15 samples twice before any is drawn a third time
    assert set(repeats[95:].tolist()) <= {6, 7}


def test_frequent_samples_change_with_the_epoch() -> None:
    classes = np.unique(LABELS, return_inverse=True)[1]
    used = [set(drawn(BalancedOrder(classes, 3, epoch)).tolist()) for epoch in range(12)]
    assert used[0] != used[1]
    assert len(set.union(*used)) > 95
    np.testing.assert_array_equal(drawn(BalancedOrder(classes, 3, 4)), drawn(BalancedOrder(classes, 3, 4)))
    assert (drawn(BalancedOrder(classes, 3, 4)) != drawn(BalancedOrder(classes, 4, 4))).any()


def test_an_epoch_keeps_its_length_and_resumes_exactly(tmp_path: Path) -> None:
    with loader(tmp_path) as uninterrupted, loader(tmp_path) as resumed:
        assert uninterrupted.steps_per_epoch == 15
        batches = list(itertools.islice(uninterrupted, 30))
        assert [len(batch) for batch in batches] == ([7] * 14 + [2]) * 2
        list(itertools.islice(resumed, 11))
        state = resumed.state()
        with loader(tmp_path) as other:
            other.restore(state)
            for batch, expected in zip(other, batches[11:], strict=False):
                np.testing.assert_array_equal(batch.indices, expected.indices)
                if expected.step == 29:
                    break


def test_an_evaluation_reads_each_sample_once(tmp_path: Path) -> None:
    with loader(tmp_path) as balanced:
        indices = [int(index) for batch in balanced.one_pass() for index in batch.indices]
        assert indices == [*range(100)]


def test_the_log_has_the_counts(tmp_path: Path) -> None:
    with loader(tmp_path) as balanced:
        assert (
            balanced.sampling == "sampler: balanced: 33 draws of each class per epoch; samples: 0 (80), 2 (15), 5 (5)"
        )


@pytest.mark.parametrize("field", ["x", "label"])  # there is no label, or it has numbers that are not classes
def test_data_that_cannot_be_balanced_is_reported(tmp_path: Path, field: str) -> None:
    np.savez(tmp_path / "b.npz", **{field: np.arange(9.0)})  # type: ignore[arg-type]  # another keyword is a bool
    split = split_of(str(tmp_path / "train.yaml"), source="npz", path="b.npz", batch_size=7, sampler="balanced")
    with pytest.raises(InputError, match="classes cannot be balanced"):
        open_loader(split, seed=1)
