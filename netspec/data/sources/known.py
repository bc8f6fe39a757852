"""What the sources of known sets have in common: where their files are, and that they are fetched."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from netspec.data.base import Source
from netspec.data.known_datasets import KnownSet
from netspec.schema.specs.paths import FilePath, resolve_path


class KnownSource(Source):
    """A set that is fetched by its name."""

    known: ClassVar[KnownSet]
    foreign_fields: ClassVar[dict[str, str]] = {"root": "here it is `path`", "train": "here it is `split: train`"}

    split: Literal["train", "test"]
    """which of the two parts"""
    path: FilePath | None = None
    """the folder that has the set's files, or that they are fetched into; default: below the user's cache folder, or
    below the folder in the environment variable NETSPEC_DATA"""
    download: bool = True
    """whether files that are not there are fetched; `false`: that is an error"""

    def place(self) -> Path:
        """The folder that has the files, or will have them."""
        from netspec.data.known_datasets import home

        return home() / self.known.name if self.path is None else resolve_path(self, "path")

    def files(self) -> list[Path]:
        """The split's files, fetched where they are not there. Raises InputError for one that is not the published."""
        from netspec.data.dataset_files import checked, located
        from netspec.data.downloads import ensure

        folder, names = self.place(), self.known.splits[self.split]
        if any(located(self.known, folder, self.known.parts[name]) is None for name in names):
            folder = ensure(self.known, folder, offline=not self.download)
        return checked(self.known, folder, names)

    def known_samples(self) -> int | None:
        """Those of the set; in a folder of the user's may be others."""
        count = self.known.samples.get(self.split)
        return None if count is None or self.path is not None else min(count, self.limit or count)

    @property
    def blamed(self) -> str:
        """The field that says where the files are, for messages."""
        return "source" if self.path is None else "path"
