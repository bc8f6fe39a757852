"""Problems, notes and named files, while a solver is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from netspec.errors import InputError, Problem
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.notes import Notes


@dataclass
class Diagnostics:
    """Problems and notes, in the order in which they were found."""

    problems: list[Problem] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)

    def problem(
        self, message: str, at: Message, name: str | None = None, *,
        expected: str | None = None, got: object = None, hint: str | None = None,
    ) -> None:  # fmt: skip
        """Add a problem of a field of `at`."""
        got_text = None if got is None else str(got)
        self.problems.append(Problem(message, at.location(name), expected=expected, got=got_text, hint=hint))

    def check(self) -> None:
        """Raise `InputError` with all problems, if there are any."""
        if self.problems:
            raise InputError(self.problems)


MAX_PARENT_FOLDERS = 12
"""Number of folders above a file in which Caffe may have been run."""


@dataclass(frozen=True)
class FileFinder:
    """Looks for files that the file at `path` names."""

    path: Path

    def candidates(self, name: str) -> list[Path]:
        """Paths that a name may mean, most likely first: in the folder, as given, in folders above, by last parts."""
        folder, named = self.path.absolute().parent, Path(name)
        if named.is_absolute():
            return [named, *self._tails(folder, named)]
        above = [parent / named for parent in list(folder.parents)[:MAX_PARENT_FOLDERS]]
        return list(dict.fromkeys([folder / named, named.absolute(), *above, *self._tails(folder, named)]))

    def find(self, name: str) -> Path | None:
        """The first of these paths that exists."""
        return next((candidate for candidate in self.candidates(name) if _is_there(candidate)), None)

    def need(self, name: str, kind: str) -> Path:
        """The first of these paths that exists. Raises `InputError` with all paths if none does."""
        path = self.find(name)
        if path is None:
            raise InputError(
                f"{self.path} names {kind} that does not exist: {name}", expected="one of " + self.tried(name),
                hint="run netspec in the folder in which Caffe ran, or copy the file next to this one",
            )  # fmt: skip
        return path

    def tried(self, name: str) -> str:
        """The paths for a message; those in folders above are summarized."""
        folder, named = self.path.absolute().parent, Path(name)
        first = [folder / named, named.absolute()]
        tails = self._tails(folder, named)
        paths = list(dict.fromkeys(map(str, [*first, *tails])))
        return ", ".join(paths) + ("" if named.is_absolute() else f", or {named} in a folder above")

    @staticmethod
    def _tails(folder: Path, named: Path) -> list[Path]:
        parts = named.parts[1:]
        return [folder.joinpath(*parts[k:]) for k in range(len(parts))]


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # not a valid file name
        return False
