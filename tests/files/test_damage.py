"""Exceptions of libraries become errors that name the file, for every source and dataset."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.data.base import DamagedSamples, Dataset, FieldType, Source
from netspec.errors import InputError
from netspec.files.damage import refuse_damage
from netspec.schema.specs.paths import FilePath


@pytest.mark.parametrize(
    ("error", "got"),
    [
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError("no\nheader"), "no header"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), "Input/output error"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_an_exception_of_a_library_names_the_file(error: Exception, got: str) -> None:
    with pytest.raises(InputError, match=r"cannot read a\.bin") as caught, refuse_damage("a.bin", "numbers"):
        raise error
    assert (caught.value.problems[0].expected, caught.value.problems[0].got) == ("numbers", got)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [InputError("its own"), ModuleNotFoundError("pyarrow"), KeyboardInterrupt()])
def test_other_exceptions_pass(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, refuse_damage("a.bin"):
        raise error
    assert caught.value is error


class Fragile(Dataset):
    fields: Mapping[str, FieldType] = {"x": FieldType((), "int64")}
    digest = "fragile"

    def __len__(self) -> int:
        return 10

    def read(self, indices: Any) -> dict[str, Any]:
        if 3 in indices:
            raise KeyError("three")
        return {"x": indices}

    def describe(self, index: int) -> str:
        return f"f.bin, sample {index}"


class FragileSource(Source):
    source: str = "fragile"
    path: FilePath
    more: list[FilePath]

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        raise RecursionError("too deep")


def test_a_source_that_fails_names_its_files(tmp_path: Path) -> None:
    source = FragileSource(path=FilePath(tmp_path / "a.bin"), more=[FilePath(tmp_path / "b.bin")], batch_size=1)
    with pytest.raises(InputError) as caught:
        source.open()
    assert caught.value.summary == f"cannot read {tmp_path}/a.bin or {tmp_path}/b.bin"
    assert caught.value.problems[0].got == "RecursionError: too deep"


def test_samples_that_fail_are_found() -> None:
    data = Fragile()
    assert data.read(np.array([1, 2]))["x"].tolist() == [1, 2]
    with pytest.raises(DamagedSamples) as caught:
        data.read(np.array([2, 3, 4, 3]))
    assert sorted(caught.value.rows) == [1, 3]
    assert caught.value.rows[1][0].brief == "cannot read f.bin, sample 3: KeyError: 'three'"
