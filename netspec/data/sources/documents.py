"""`{source: documents}`: texts to classify, one per file or one per line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from netspec.data.base import ClassNames, Dataset, FieldType, located_at
from netspec.data.sources.files import FileSource
from netspec.data.sources.text import text_files
from netspec.data.text.tokenizers.base import AnyTokenizer
from netspec.errors import InputError
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.paths import FilePath, resolve_path

if TYPE_CHECKING:
    from netspec.data.readers.file_samples import FileKind


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
    """The tokenizer that converts the text to token numbers."""
    classes: ClassNames | None = None
    """The class names in the order of their labels. For `files`: by default all folders, sorted. For `lines`: one for
    each file, in their order; by default there are no labels."""

    samples: ClassVar = (
        {"path": "reviews/train", "tokenizer": {"type": "words", "padding": True, "unknown": True, "size": 10000},
         "transforms": [{"type": "Padding", "length": 200}]},
    )  # fmt: skip

    def file_kind(self) -> FileKind:
        """Return the kind of text files."""
        from netspec.data.text.documents import TEXTS

        return TEXTS

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """List the documents. The training split reads them once to learn the vocabulary."""
        from netspec.data.readers.file_samples import class_folders, unlabelled
        from netspec.data.text.documents import TEXTS, TextFiles, TextLines

        skip = self.on_error == "skip"
        with located_at(self, "path"):
            if self._unlabelled:
                listing = unlabelled(self._unlabelled, TEXTS)
                if self.documents == "files":
                    return TextFiles(listing, self.tokenizer, learned, skip=skip)
                return TextLines(listing.files, (), self.tokenizer, learned, skip=skip)
            if self.documents == "files":
                if isinstance(self.path, list):
                    raise InputError(
                        "`documents: files` reads one folder", expected="the folder that contains the class folders"
                    )
                listing = class_folders(resolve_path(self, "path"), self.classes, TEXTS)
                return TextFiles(listing, self.tokenizer, learned, skip=skip)
            files = list(text_files(self, self.path))
            if self.classes is not None and len(self.classes) != len(files):
                raise InputError(
                    "`classes` must have a name for each file",
                    path="classes",
                    expected=f"{len(files)}: {', '.join(file.name for file in files[:5])}",
                    got=str(len(self.classes)),
                )
            return TextLines(files, tuple(self.classes or ()), self.tokenizer, learned, skip=skip)

    def known_fields(self) -> Mapping[str, FieldType]:
        """Return the text, and the label if there is one."""
        text = {"text": FieldType((None,), "int32")}
        labelled = self.documents == "files" or self.classes is not None
        return {**text, "label": FieldType((), "int32")} if labelled else text
