"""`{source: text}`: windows of running text, to predict the next token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from netspec.data.base import Dataset, FieldType, Source, Survey, located_at
from netspec.data.sources.files import FIRST
from netspec.data.text.tokenizers.base import AnyTokenizer
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.paths import FilePath, resolve_path
from netspec.schema.specs.spec import describe, problem


def _as_part(value: Any) -> Any:
    ends = list(value) if isinstance(value, (list, tuple)) else []
    numbers = all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in ends)
    if len(ends) != 2 or not numbers or not 0 <= ends[0] < ends[1] <= 1:
        raise problem(
            "not a range within a file",
            expected="[from, to] with 0 ≤ from < to ≤ 1",
            got=str(ends) if numbers and ends else describe(value),
        )
    return tuple(float(end) for end in ends)


FilePart = Annotated[tuple[float, float], BeforeValidator(_as_part, json_schema_input_type=list[float])]


@SOURCES.register
class Text(Source):
    """Running text in UTF-8, cut into windows, to predict the next token.

    Fields: `text` `[length]` of int32; `target` `[length]` of int32, which is `text` shifted by one token. Windows
    follow each other file by file, `stride` tokens apart, and none spans two files; tokens at the end that fill no
    window are left out. The vocabulary is that of the training split; it is saved with the weights. Text is read in
    blocks; the tokens of large texts are stored in a file in the cache folder.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "sequence_length": "use `length`",
        "seq_len": "use `length`",
        "block_size": "use `length`",
        "context_length": "use `length`",
    }

    source: Literal["text"] = "text"
    path: FilePath | Annotated[list[FilePath], Field(min_length=1)]
    """Path of the file, relative to this file; or of a folder (all `.txt` below it, sorted); or a list of these."""
    tokenizer: AnyTokenizer
    """The tokenizer that converts the text to token indices."""
    length: PositiveInt
    """Number of tokens in a window."""
    stride: PositiveInt | None = None
    """Number of tokens from the start of one window to that of the next; by default `length`, so that windows do not
    overlap."""
    part: FilePart = (0.0, 1.0)
    """The part of each file that is read, `[from, to]`: `[0, 0.9]` are the first nine tenths of its bytes."""

    samples: ClassVar = ({"path": "input.txt", "tokenizer": "characters", "length": 64, "part": [0, 0.9]},)

    divides_itself: ClassVar[bool] = True

    @model_validator(mode="after")
    def _is_divided_by_length(self) -> Self:
        for name in ("stratify", "group", "time", "folds"):
            if self.hold_out is not None and getattr(self.hold_out, name) is not None:
                raise problem(
                    f"running text is not divided by `{name}`", field="split",
                    expected="`validation` and `test`: their shares of the end of each file",
                )  # fmt: skip
        return self

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Open the windows. Text is read once, in the training split twice: first to learn the vocabulary."""
        from netspec.data.text.files import part_of
        from netspec.data.text.windows import TextWindows

        with located_at(self, "path"):
            parts = [part_of(file, *self._range()) for file in text_files(self, self.path)]
            return TextWindows(
                parts, self.tokenizer, length=self.length, stride=self.stride or self.length, learned=learned
            )

    def survey(self) -> Survey:
        """Look at the beginning of the first files."""
        with located_at(self, "path"):
            check_texts(text_files(self, self.path))
        return super().survey()

    def _range(self) -> FilePart:
        """Return the part of each file that belongs to this split: held-out text is at the end of each file."""
        if self.hold_out is None:
            return self.part
        begin, end = self.part
        test = end - (end - begin) * (self.hold_out.test or 0.0)
        validation = test - (end - begin) * (self.hold_out.validation or 0.0)
        return {"train": (begin, validation), "validation": (validation, test), "test": (test, end)}[self.split_name]

    def known_fields(self) -> Mapping[str, FieldType]:
        """Return the two windows."""
        kind = FieldType((self.length,), "int32")
        return {"text": kind, "target": kind}


def check_texts(files: Iterable[Path], *, skip: bool = False) -> None:
    """Raise `InputError` if one of the first files is missing or empty; without `skip` also if it is not in UTF-8."""
    from netspec.data.text.files import blocks, part_of

    for file in islice(files, FIRST):
        whole = part_of(file, 0.0, 1.0)
        if not skip:
            next(blocks(whole))


def text_files(source: Source, written: FilePath | list[FilePath]) -> Iterator[Path]:
    """Return the files that the field `path` of a source lists, and all `.txt` below folders, sorted."""
    from netspec.data.text.files import text_files_below

    is_list = isinstance(written, list)
    paths = [resolve_path(source, "path", at) for at in range(len(written))] if is_list else []
    for path in paths or [resolve_path(source, "path")]:
        if path.is_dir():
            yield from text_files_below(path)
        else:
            yield path
