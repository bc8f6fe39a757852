"""The contract of sources, transforms and the loader: samples of different sizes, learned values, changing files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from netspec.data.base import Dataset, FieldType, SampleKeys, Transform
from netspec.data.files import Watched
from netspec.data.loader import Loader, open_loader
from netspec.data.pipeline import Learned
from netspec.data.readers.arrays import ArrayDataset
from netspec.errors import InputError
from tests.data.conftest import split_of

if TYPE_CHECKING:
    from pathlib import Path

    from netspec.data.base import Samples


class Lengths(Dataset):
    """Samples of shape (1, index + 1) that contain their index."""

    digest = "lengths"

    def __init__(self, samples: int) -> None:
        self.fields = {"x": FieldType((1, None), "float32")}
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def read(self, indices: np.ndarray) -> dict[str, Any]:
        return {"x": [np.full((1, index + 1), index, np.float32) for index in indices]}


class First(Transform):
    """Keeps the first element of each sample; only for these tests."""

    type: Literal["First"] = "First"

    def infer(self, field: FieldType) -> FieldType:
        return FieldType((1, 1), field.dtype)

    def apply(self, batch: Samples, keys: SampleKeys) -> Samples:
        assert isinstance(batch, list)
        return np.stack([sample[:, :1] for sample in batch])


def test_samples_of_different_sizes_need_a_resizing_transform():
    with pytest.raises(InputError) as error:
        Loader(Lengths(5), split_of(source="npz", path="x"), seed=1, inputs={"x": FieldType((1, 1), "float32")})
    (problem,) = error.value.problems
    assert problem.message == "the samples of `x` differ in size"
    assert problem.got == "float32 of shape [1, ?] from the source"
    assert "Padding" in str(problem.hint)
    split = split_of(source="npz", path="x").model_copy(update={"transforms": [First()]})
    batches = [batch.inputs["x"].tolist() for batch in Loader(Lengths(5), split, seed=1).one_pass()]
    assert batches == [[[[0]], [[1]], [[2]], [[3]]], [[[4]]]]


def test_shape_preserving_transforms_accept_samples_of_different_sizes():
    scaled = {"type": "Rescaling", "scale": 2}
    normal = {"type": "Normalization", "adapt": True, "apply_to": "x"}
    split = split_of(source="npz", path="x", transforms=[scaled, normal], batch_size=5)
    loader = Loader(Lengths(5), split.model_copy(update={"transforms": [*split.transforms, First()]}), seed=1)
    values = np.concatenate([np.full(index + 1, 2.0 * index) for index in range(5)])
    (batch,) = loader.one_pass()
    expected = (2 * np.arange(5) - values.mean()) / values.std()
    # rounding four times, values below 3
    np.testing.assert_allclose(batch.inputs["x"][:, 0, 0], expected, atol=4 * 3 * 2**-24)


def test_learned_values_of_a_source_are_saved_and_passed_to_other_splits(monkeypatch: pytest.MonkeyPatch):
    split = split_of(source="npz", path="x")
    data = ArrayDataset({"x": np.zeros((3, 1))}, digest="", describe=str)
    data.learned = {"words": ["a", "b"]}
    learned = Learned.from_json(Loader(data, split, seed=1).learned.as_json())
    assert learned.source == {"words": ["a", "b"]}
    learned_values: list[Any] = []

    def opened(self: object, *, seed: int, learned: Any) -> Dataset:
        learned_values.append(learned)
        return data

    monkeypatch.setattr(type(split), "open", opened)
    open_loader(split, seed=1)
    open_loader(split, seed=1, learned=learned)
    assert learned_values == [None, {"words": ["a", "b"]}]
    assert Learned.from_json({"classes": {}, "values": {}}).source == {}  # written by an earlier version


def test_a_changed_file_is_detected(tmp_path: Path):
    first, other = tmp_path / "one", tmp_path / "other"
    for path in (first, other):
        path.write_bytes(b"123")
    watched = Watched([first, other])
    watched.check()
    other.write_bytes(b"1234")
    watched.check(first)
    with pytest.raises(InputError, match="other changed while it was read") as error:
        watched.check()
    assert error.value.problems[0].got == "4 bytes; its size changed"
    os.utime(first, ns=(0, 0))
    with pytest.raises(InputError, match="its modification time changed"):
        watched.check(first)
    first.unlink()
    with pytest.raises(InputError, match="one was removed while it was read"):
        watched.check(first)
