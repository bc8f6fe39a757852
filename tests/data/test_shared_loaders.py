"""Loaders of trainings that take turns."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np

from netspec.data.loader import open_loader
from netspec.data.shared_loaders import SharedLoaders
from tests.data.conftest import split_of


def test_each_batch_is_prepared_once_for_readers_in_step_and_again_for_others(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.arange(20, dtype=np.float32))
    split = split_of(source="npz", path=str(tmp_path / "x.npz"), batch_size=8, shuffle=True)
    with open_loader(split, seed=1) as alone, SharedLoaders() as shared:
        expected = list(islice(alone, 6))
        first, second, other_seed = (shared.open(split, seed=seed) for seed in (1, 1, 2))
        for batch, one, other in zip(expected, first, second, strict=False):
            assert one is other
            np.testing.assert_array_equal(one.inputs["x"], batch.inputs["x"])
            assert first.position == second.position
        assert not np.array_equal(next(iter(other_seed)).indices, expected[0].indices)
        late = shared.open(split, seed=1)
        late.seek_batch(2)
        assert next(iter(late)).indices.tolist() == expected[2].indices.tolist()
        assert next(iter(first)).step == 6, "the position of another reader has not changed"
        assert len(list(late.one_pass())) == 3


def test_held_out_parts_are_read_by_loaders_of_their_own(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.arange(20, dtype=np.float32))
    divided = {"validation": 0.3, "test": 0.3}
    split = split_of(source="npz", path=str(tmp_path / "x.npz"), batch_size=20, split=divided)
    assert split.held_out("validation") == split.held_out("validation")
    assert split.held_out("validation") != split.held_out("test")
    with SharedLoaders() as shared:
        parts = [shared.open(part, seed=1) for part in (split, split.held_out("validation"), split.held_out("test"))]
        values = [value for part in parts for batch in part.one_pass() for value in batch.inputs["x"].tolist()]
    assert sorted(values) == list(range(20)), "each sample is in one part"
