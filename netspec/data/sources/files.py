"""`FileSource`: base of the sources whose samples are files: images, sounds, documents."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import PrivateAttr

from netspec.data.base import Source, Survey, located_at
from netspec.data.file_kinds import FileKind

if TYPE_CHECKING:
    from netspec.data.readers.file_samples import Listing

FIRST = 20
"""Number of files of each class that a survey looks at."""
MAX_LINES = 4096
"""Number of lines of a list that a survey reads, as many as rows of a table."""
MAX_COUNTED = 20_000
"""Number of files up to which a survey counts them, which takes much less than a second."""


class FileSource(Source):
    """Base of sources of one sample per file, which can also read other files of the same kind, without labels."""

    _unlabeled: tuple[Path, ...] = PrivateAttr(default=())
    """Files and folders to read instead of those in the spec, without labels."""

    def file_kind(self) -> FileKind:
        """Return the kind of the files."""
        raise NotImplementedError(f"{type(self).__name__} has no `file_kind`")

    def with_files(self, paths: Sequence[Path], fields: Collection[str]) -> list[Source]:
        """Return one source for all files and folders, whose files are sorted by path; without labels."""
        suffixes = self.file_kind().suffixes
        if not all(path.is_dir() or path.suffix.lower() in suffixes for path in paths):
            return []
        return [self._of_files(paths)]

    def known_classes(self) -> Mapping[str, int]:
        """Return the number of declared classes, or of class folders, if the folder exists."""
        declared = super().known_classes()
        folder = self.class_folder()
        if declared or folder is None or not folder.is_dir():
            return declared
        names = [item for item in folder.iterdir() if item.is_dir() and not item.name.startswith(".")]
        return {"label": len(names)} if names else {}

    def classes_of_folders(self) -> Mapping[str, Sequence[str]] | None:
        """Return the declared class names, or those of the class folders, if they exist; None if a list names them.

        For sources that learn only class names. Raises `InputError` if the folder has no classes.
        """
        from netspec.data.readers.file_samples import class_folders

        declared: Sequence[str] | None = getattr(self, "classes", None)
        if declared:
            return {"label": declared}
        folder = self.class_folder()
        if folder is None or not folder.is_dir():
            return None if folder is None else {}
        with located_at(self, "path"):
            return {"label": class_folders(folder, None, self.file_kind(), 1).classes}

    def class_folder(self) -> Path | None:
        """Return the folder that contains the class folders; None if labels come from elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} has no `class_folder`")

    def first_files(self) -> Listing | None:
        """Return a few files of each class folder, or the first ones of a list; None if they are not looked for.

        Raises `InputError` as `open` does.
        """
        return None

    def survey_of(self, listing: Listing) -> Survey:
        """Return the fields of the samples, as far as a few files show them, and findings about these files."""
        return Survey(self.known_fields() or {})

    def survey(self) -> Survey:
        """List the class folders, and look at a few files."""
        listing = self.first_files()
        if listing is None:
            return super().survey()
        is_list = bool(listing.locations)
        names = {"label": len(listing.classes)} if listing.classes else {}
        exact = {**({} if is_list else names), **super().known_classes()}
        least = {} if exact else names
        if is_list and listing.labels and not listing.classes:
            least = {"label": max(listing.labels) + 1}
        samples = None if is_list else self._counted_files()
        survey = self.survey_of(listing)
        columns = (*listing.columns, *survey.fields) if listing.columns else ()
        return replace(survey, classes=exact, least_classes=least, columns=columns, samples=samples)

    def check_division(self) -> None:
        """Look at the first lines of a list. Raises `InputError` if their times cannot be read."""
        import numpy as np

        from netspec.data.hold_out import NamedValues, check_division

        listing = self.first_files() if self.hold_out is not None and self.hold_out.time is not None else None
        if self.hold_out is None or listing is None or not listing.columns:
            return
        with located_at(self, "split"):
            columns = {name: np.array(cells, str) for name, cells in listing.columns.items()}
            listed = NamedValues(len(listing.files), columns, lambda index: listing.locations[index])
            check_division(self.hold_out, listed, are_all=False)

    def _counted_files(self) -> int | None:
        """Return the number of files in the class folders; None if there are more than are counted."""
        from netspec.data.readers.file_samples import count_files

        folder = self.class_folder()
        count = 0 if folder is None else count_files(folder, self.file_kind(), MAX_COUNTED)
        return count if 0 < count < MAX_COUNTED else None

    def file_suffix(self) -> str:
        """Return a suffix of the files."""
        return max(self.file_kind().suffixes)

    def _of_files(self, paths: Sequence[Path]) -> Self:
        source = self.model_copy(update={"split": None, "limit": None, "shuffle": False, "on_error": "error"})
        source._unlabeled = tuple(paths)
        source._tree = None  # problems must not point to the spec
        return source
