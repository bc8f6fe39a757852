"""Base of the sources of known datasets, which are downloaded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from netspec.data.base import Source, Survey, located_at
from netspec.data.known_datasets import KnownSet
from netspec.schema.specs.hold_out import HoldOut, StoredPart
from netspec.schema.specs.paths import FilePath, resolve_path


class KnownSource(Source):
    """A dataset that is downloaded by its name."""

    known_set: ClassVar[KnownSet]
    foreign_fields: ClassVar[dict[str, str]] = {"root": "use `path`", "train": "use `split: train`"}

    split: Annotated[Literal["train", "test"] | HoldOut, StoredPart(Literal["train", "test"])]
    """`train` or `test`: the split of the dataset; or a mapping, as in `{validation: 0.1}`, which divides `train`."""
    path: FilePath | None = None
    """The folder that contains the files, or to which they are downloaded. By default in the user's cache folder, or in
    the folder that the environment variable NETSPEC_DATA names."""
    download: bool = True
    """Whether missing files are downloaded. With `false` they are an error."""

    def data_folder(self) -> Path:
        """Return the folder of the files, which may not exist yet."""
        from netspec.files.cache_folder import data_folder

        return data_folder() / self.known_set.name if self.path is None else resolve_path(self, "path")

    def files(self) -> list[Path]:
        """Return the files of the split; download missing ones. Raises `InputError` if one is not as published."""
        from netspec.data.dataset_files import find_file, verified_files
        from netspec.data.downloads import ensure

        folder, names = self.data_folder(), self.known_set.splits[str(self.stored_part("train"))]
        if any(find_file(self.known_set, folder, self.known_set.parts[name]) is None for name in names):
            folder = ensure(self.known_set, folder, offline=not self.download)
        return verified_files(self.known_set, folder, names)

    def is_here(self) -> bool:
        """Whether all files of the split are in the folder, so that nothing must be downloaded."""
        from netspec.data.dataset_files import find_file

        names = self.known_set.splits[str(self.stored_part("train"))]
        return all(find_file(self.known_set, self.data_folder(), self.known_set.parts[name]) for name in names)

    def known_samples(self) -> int | None:
        """Return the number of samples of the set; None for a folder of the user."""
        count = self.known_set.samples.get(str(self.stored_part("train")))
        return None if count is None or self.path is not None else min(count, self.limit or count)

    def known_classes(self) -> Mapping[str, int]:
        """Return the numbers of classes of the set."""
        return {name: len(names) for name, names in self.known_set.classes.items()}

    def classes_without_samples(self) -> Mapping[str, Sequence[str]]:
        """Return the class names of the set."""
        return self.known_set.classes

    def optional_paths(self) -> Collection[str]:
        """Return `path` if missing files are downloaded."""
        return ("path",) if self.download else ()

    def survey(self) -> Survey:
        """Look for the files if they are not downloaded; their content is not read."""
        from netspec.data.downloads import check_folder

        with located_at(self, self.blamed):
            check_folder(self.known_set, self.data_folder(), offline=not self.download)
        return super().survey()

    @property
    def blamed(self) -> str:
        """The field that determines the files, for messages."""
        return "source" if self.path is None else "path"
