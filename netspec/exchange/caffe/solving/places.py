"""Files that Caffe's files name: relative to where Caffe was run, which nobody wrote down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from netspec.errors import InputError

MOST_ABOVE = 12
"""How many folders above a file may be where Caffe was run."""


@dataclass(frozen=True)
class Finder:
    """Looks for files that the file at `path` names."""

    path: Path

    def candidates(self, name: str) -> list[Path]:
        """Where a file may be, the likeliest first: beside, as it stands, from a folder above, by its tail beside."""
        folder, given = self.path.absolute().parent, Path(name)
        if given.is_absolute():
            return [given, *self._tails(folder, given)]
        above = [one / given for one in list(folder.parents)[:MOST_ABOVE]]
        return list(dict.fromkeys([folder / given, given.absolute(), *above, *self._tails(folder, given)]))

    def find(self, name: str) -> Path | None:
        """The file or folder, if it is in one of these places."""
        return next((one for one in self.candidates(name) if _is_there(one)), None)

    def need(self, name: str, what: str) -> Path:
        """The file. Raises `InputError` with the places where it is not."""
        found = self.find(name)
        if found is None:
            raise InputError(
                f"{self.path} names {what} that is not there: {name}", expected="one of " + self.tried(name),
                hint="Caffe's paths begin where Caffe is run: go there, or put the file beside",
            )  # fmt: skip
        return found

    def tried(self, name: str) -> str:
        """The places, for a message: those above in few words."""
        folder, given = self.path.absolute().parent, Path(name)
        first = [folder / given, given.absolute()]
        tails = self._tails(folder, given)
        told = list(dict.fromkeys(map(str, [*first, *tails])))
        return ", ".join(told) + ("" if given.is_absolute() else f", or {given} in a folder above")

    @staticmethod
    def _tails(folder: Path, given: Path) -> list[Path]:
        parts = given.parts[1:]
        return [folder.joinpath(*parts[k:]) for k in range(len(parts))]


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False
