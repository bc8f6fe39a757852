"""The files that `netspec init` writes for data: where they are, and the lines that all of them have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netspec.tools.init.class_folders import NO_LISTS, stored_parts
from netspec.tools.init.files import comment, entries, entry, relative
from netspec.tools.init.search_space import SearchSpace


@dataclass(frozen=True)
class Project:
    """Paths and shared lines of the files that `netspec init` writes.

    `net_head` and `train_head` contain the search variables that were declared in `space` before.
    """

    data: Path
    folder: Path
    """The folder of the files."""
    net: str
    """Name of the net file."""
    space: SearchSpace
    """The values to search."""

    @property
    def name(self) -> str:
        """A name for the net and its runs: that of the data or, if its files are elsewhere, of their folder."""
        path = self.data.resolve()
        if self.folder.resolve() not in (path, path.parent):
            path = self.folder.resolve()
        stem = path.stem if path.is_file() else path.name
        cleaned = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in stem).strip("_")
        return cleaned if cleaned and cleaned[0].isalpha() else f"net_{cleaned}".rstrip("_")

    @property
    def location(self) -> str:
        """The path of the data for a comment in a file."""
        written = self.path_of(self.data)
        return "this folder" if written == "." else written

    def path_of(self, path: Path) -> str:
        """Return a path as the files name it."""
        return relative(path, self.folder)

    def net_head(self, description: str) -> list[str]:
        """Return the lines of the net file up to its inputs."""
        return [*comment(description), "netspec: 1", f"name: {self.name}", *self.space.net_lines(), "inputs:"]

    def train_head(self, purpose: str) -> list[str]:
        """Return the lines of the training file up to the training data; `purpose` completes a comment."""
        head = [*comment(f"Trains the net in {self.net} {purpose}."), "netspec: 1", f"net: {self.net}"]
        return [*head, *self.space.train_lines(), "data:", "  train:"]

    def stored_splits(
        self, source: str, fields: Sequence[tuple[str, Any, str]], batch: int, transforms: Sequence[Mapping[str, Any]],
        lists: Mapping[str, Path] = NO_LISTS,
    ) -> list[str]:  # fmt: skip
        """Return the entries of `data` for the stored parts, with the fields of the training split.

        `transforms` are those without the random ones.
        """
        lines: list[str] = []
        for part, paths in stored_parts(self.data, lists).items():
            located = {key: self.path_of(value) for key, value in paths.items()}
            located |= {key: value for key, value, _ in fields if key not in located}
            lines += [f"  {part}:", f"    source: {source}", *entries(located, 4)]
            lines += [*entry("batch_size", batch, "", 4), *entry("transforms", list(transforms), "", 4)]
        return lines
