"""`{source: documents}`: texts to classify, one per file or one per line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from netspec.data.base import Array, ClassNames, Dataset, FieldType, Source, Survey, located_at
from netspec.data.file_kinds import TEXTS, FileKind, has_table_suffix
from netspec.data.sources.files import FIRST, FileSource
from netspec.data.sources.text import check_texts, text_files
from netspec.data.text.tokenizers.base import AnyTokenizer
from netspec.errors import InputError
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.paths import FilePath, resolve_path

if TYPE_CHECKING:
    from netspec.data.readers.file_samples import Listing
    from netspec.data.text.documents import LineIndex


@SOURCES.register
class Documents(FileSource):
    """Texts in UTF-8, each a sample of its own length: files in one folder per class, or the lines of files.

    Fields: `text` `[tokens]` of int32, which the transform Padding gives a common length; `label` `[]` of int32, the
    index of the class in `classes`, if there are classes. Samples are ordered by class, then by path, then by line;
    blank lines are skipped. The vocabulary is that of the training split; it is saved with the weights. For text in a
    column of a table use the source `csv`.
    """

    source: Literal["documents"] = "documents"
    path: FilePath | Annotated[list[FilePath], Field(min_length=1)]
    """A path relative to this file. For `documents: files`: the folder with the class folders of `.txt` files. For
    `documents: lines`: a file, a list of files, or a folder (all `.txt` below it, sorted)."""
    documents: Literal["files", "lines"] = "files"
    """Whether a document is a file or a line."""
    tokenizer: AnyTokenizer
    """The tokenizer that converts the text to token indices."""
    classes: ClassNames | None = None
    """The class names in the order of their labels. For `files`: by default all folders, sorted. For `lines`: one for
    each file, in their order; by default there are no labels."""

    divides_itself: ClassVar[bool] = True

    samples: ClassVar = (
        {"path": "reviews/train", "tokenizer": {"type": "words", "padding": True, "unknown": True, "size": 10000},
         "transforms": [{"type": "Padding", "length": 200}]},
    )  # fmt: skip

    _table: Path | None = PrivateAttr(default=None)
    """A table whose column `text` is read instead of files."""

    def with_files(self, paths: Sequence[Path], fields: Collection[str]) -> list[Source]:
        """Return one source for files and folders of texts, or one for each table with a column of texts."""
        if not paths or not all(map(has_table_suffix, paths)):
            return super().with_files(paths, fields)
        sources = [self._of_files([path]) for path in paths]
        for source, path in zip(sources, paths, strict=True):
            source._table = path
        return [*sources]

    def file_kind(self) -> FileKind:
        """Return the kind of text files."""
        return TEXTS

    def class_folder(self) -> Path | None:
        """Return the folder of the class folders, if there are any."""
        is_single_folder = self.documents == "files" and not isinstance(self.path, list)
        return resolve_path(self, "path") if is_single_folder else None

    def first_files(self) -> Listing | None:
        """Return some of the files; lines of files are not read."""
        from netspec.data.readers.file_samples import class_folders

        if self.documents == "lines":
            return None
        with located_at(self, "path"):
            return class_folders(self._folder(), self.classes, self.file_kind(), FIRST)

    def survey(self) -> Survey:
        """List the class folders; for `lines`, look at the beginning of the first files."""
        if self.documents == "lines":
            with located_at(self, "path"):
                check_texts(self._line_files(), skip=self.on_error == "skip")
        return super().survey()

    def _folder(self) -> Path:
        if isinstance(self.path, list):
            raise InputError(
                "`documents: files` reads one folder", expected="the folder that contains the class folders"
            )
        return resolve_path(self, "path")

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """List the documents. The training split reads them once to learn the vocabulary."""
        from netspec.data.text.documents import TextFiles, TextLines

        if self._table is not None:
            from netspec.data.text.table_column import TableTexts

            return TableTexts(self._table, self.tokenizer, learned)
        skip = self.on_error == "skip"
        with located_at(self, "path"):
            if self.documents == "files":
                return TextFiles(self._files(), self.tokenizer, learned, skip=skip)
            classes = () if self._unlabeled else tuple(self.classes or ())
            return TextLines(self._lines(), classes, self.tokenizer, learned, skip=skip)

    def _files(self) -> Listing:
        from netspec.data.readers.file_samples import class_folders, unlabeled

        if self._unlabeled:
            return unlabeled(self._unlabeled, self.file_kind())
        listing = class_folders(self._folder(), self.classes, self.file_kind())
        indices = self._held_out_indices(len(listing.files), listing.labels)
        return listing if indices is None else listing.only(indices.tolist())

    def _lines(self) -> LineIndex:
        from netspec.data.readers.file_samples import unlabeled
        from netspec.data.text.documents import find_lines

        if self._unlabeled:
            return find_lines(unlabeled(self._unlabeled, self.file_kind()).files)
        lines = find_lines(self._line_files())
        indices = self._held_out_indices(len(lines.starts), None if self.classes is None else lines.owners)
        return lines if indices is None else lines.only(indices)

    def _line_files(self) -> list[Path]:
        """Return the files of `documents: lines`. Raises `InputError` if `classes` does not name each of them."""
        files = list(text_files(self, self.path))
        if self.classes is not None and len(self.classes) != len(files):
            raise InputError(
                "`classes` must have a name for each file",
                path="classes",
                expected=f"{len(files)}: {', '.join(file.name for file in files[:5])}",
                got=str(len(self.classes)),
            )
        return files

    def _held_out_indices(self, count: int, labels: Any) -> Array | None:
        """Return which documents belong to this split; None if all do."""
        import numpy as np

        from netspec.data.hold_out import NamedValues, indices_of

        if self.hold_out is None:
            return None
        with located_at(self, "split"):
            columns = {} if labels is None else {"label": np.asarray(labels)}
            return indices_of(self.hold_out, self.split_name, NamedValues(count, columns))

    def known_fields(self) -> Mapping[str, FieldType]:
        """Return the text, and the label if there is one."""
        text = {"text": FieldType((None,), "int32")}
        labeled = self.documents == "files" or self.classes is not None
        return {**text, "label": FieldType((), "int32")} if labeled else text
