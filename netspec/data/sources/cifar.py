"""`{source: cifar10}`, `{source: cifar100}`, `{source: cifar_binary}`: the CIFAR datasets in their binary version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from netspec.data.base import Dataset, FieldType, Source, Survey, located_at
from netspec.data.known_datasets import CIFAR10, CIFAR100, KnownSet
from netspec.data.sources.known import KnownSource
from netspec.errors import InputError
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.hold_out import HoldOut, StoredPart
from netspec.schema.specs.paths import FilePath, resolve_path

INSIDE = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}
"""The folder in the archives, which many users keep."""


class _KnownCifar(KnownSource):
    """Base of the two published sets."""

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Open the files of the split."""
        from netspec.data.readers.cifar import open_cifar

        with located_at(self, self.blamed):
            return open_cifar(self.files(), self.known_set.classes)

    def known_fields(self) -> Mapping[str, FieldType] | None:
        """Return the fields of the set."""
        return _fields(self.known_set)


@SOURCES.register
class Cifar10(_KnownCifar):
    """CIFAR-10, downloaded if it is missing: 50,000 color images for training, 10,000 for test.

    Fields: `image` `[3, 32, 32]` of uint8, `label` `[]` of int32: airplane, automobile, bird, cat, deer, dog, frog,
    horse, ship, truck. Images are read batch by batch.
    """

    source: Literal["cifar10"] = "cifar10"
    known_set: ClassVar[KnownSet] = CIFAR10
    samples: ClassVar = ({"split": "train"},)


@SOURCES.register
class Cifar100(_KnownCifar):
    """CIFAR-100, downloaded if it is missing: 50,000 color images for training, 10,000 for test.

    Fields: `image` `[3, 32, 32]` of uint8; `label` `[]` of int32, one of 100 classes; `coarse_label` `[]` of int32, one
    of the 20 superclasses (`inputs: {label: coarse_label}`). Images are read batch by batch.
    """

    source: Literal["cifar100"] = "cifar100"
    known_set: ClassVar[KnownSet] = CIFAR100
    samples: ClassVar = ({"split": "train"}, {"split": "train", "inputs": {"label": "coarse_label"}})


@SOURCES.register
class CifarBinary(Source):
    """Files in the layout of CIFAR's binary version, any number of them, read one after the other.

    Fields: `image` `[3, 32, 32]` of uint8; `label` `[]` of int32; for files like CIFAR-100's also `coarse_label`.
    Images are read batch by batch.
    """

    source: Literal["cifar_binary"] = "cifar_binary"
    path: FilePath | list[FilePath]
    """A file, a list of files, or a folder with files of the usual names, relative to this file."""
    split: Annotated[Literal["train", "test"] | HoldOut | None, StoredPart(Literal["train", "test"] | None)] = None
    """The files of a folder to read: `data_batch_1.bin` to `5` or `train.bin`; `test_batch.bin` or `test.bin`. Or, in
    `train`, which samples are held out, as in `{validation: 0.1}`."""
    kind: Literal["cifar10", "cifar100"] = "cifar10"
    """The labels of each image: one of 10 classes; or a coarse one, followed by one of 100."""

    samples: ClassVar = (
        {"path": "cifar-10-batches-bin", "split": "train"},
        {"path": ["mine/train_1.bin", "mine/train_2.bin"], "kind": "cifar100"},
    )

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Open the files."""
        from netspec.data.readers.cifar import open_cifar

        with located_at(self, "path"):
            return open_cifar(self._files(), _known_set(self.kind).classes)

    def _files(self) -> list[Path]:
        if isinstance(self.path, list):
            if not self.path:
                raise InputError("`path` names no file", expected="one file or more")
            return [resolve_path(self, "path", number) for number in range(len(self.path))]
        path = resolve_path(self, "path")
        if not path.is_dir():
            return [path]
        part = self.stored_part("train" if self.hold_out is not None else None)
        if part is None:
            raise InputError(f"{path} is a folder", expected="files, or also `split: train` or `split: test`")
        return _files_in(path, _known_set(self.kind), part)

    def survey(self) -> Survey:
        """Open the files, whose samples are not read."""
        from netspec.data.surveys import survey_of, undivided

        return survey_of(self, undivided(self).open())

    def known_fields(self) -> Mapping[str, FieldType] | None:
        """Return the fields of the kind."""
        return _fields(_known_set(self.kind))


def _known_set(kind: str) -> KnownSet:
    return CIFAR100 if kind == "cifar100" else CIFAR10


def _fields(dataset: KnownSet) -> dict[str, FieldType]:
    return {"image": FieldType((3, 32, 32), "uint8"), **{name: FieldType((), "int32") for name in dataset.classes}}


def _files_in(folder: Path, dataset: KnownSet, split: str) -> list[Path]:
    """Return the files of a split in a folder, or in the archive's folder below it. They may not exist."""
    inside = folder / INSIDE[dataset.name]
    return [(inside if inside.is_dir() else folder) / name for name in dataset.splits[split]]
