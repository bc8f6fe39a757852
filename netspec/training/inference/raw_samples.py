"""Convert samples in memory (images, rows of a table, texts) to files of the kind that a training reads."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from errno import EDQUOT, ENOSPC
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, TypeGuard

from netspec.data.base import Source
from netspec.data.sources.csv import Csv
from netspec.data.sources.files import FileSource
from netspec.data.sources.image_folder import images_like
from netspec.data.tabular.declaration import index_of
from netspec.data.tabular.number_format import NumberFormat
from netspec.data.tabular.row_errors import MAX_PROBLEMS
from netspec.data.tabular.row_origin import RowOrigin
from netspec.data.tabular.source import RowKeys, TableSource
from netspec.errors import InputError, Problem, RunError, counted, listing
from netspec.schema.specs.net import InputSpec

Row: TypeAlias = Mapping[str, Any] | Sequence[Any]
TEXT = "text"
"""Key of the text in a row, whatever the name of the column of texts."""
TEXT_FILE = "text"
"""Start of the name of a file with a text, before the index of the text."""


def sample_kind(split: Source) -> str:
    """Return `image`, `table`, `text` or `audio`; or `arrays` if the data is not read from files of samples."""
    if isinstance(split, TableSource):
        return "table" if split.text_column() is None else "text"
    if isinstance(split, FileSource):
        return {"document": "text", "text": "text", "image": "image"}.get(split.file_kind().name, "audio")
    try:
        return "image" if images_like(split, [Path("image.png")]) else "arrays"
    except InputError:  # the training data is missing
        return "arrays"


def is_raw(samples: object, inputs: Mapping[str, InputSpec]) -> bool:
    """Return whether samples need the preprocessing of the training: paths, images, rows or a data frame.

    A list of mappings by the names of the net's `inputs` does not: its arrays are passed to the net unchanged.
    """
    if isinstance(samples, (str, Path)) or is_pillow_image(samples) or is_data_frame(samples):
        return True
    if is_row(samples):
        return _has_cells(samples, inputs)
    if not isinstance(samples, list) or not samples:
        return False
    first = samples[0]
    if isinstance(first, Mapping):
        return _has_cells(first, inputs)
    return isinstance(first, (str, Path)) or is_pillow_image(first)


def _has_cells(sample: Mapping[str, Any], inputs: Mapping[str, InputSpec]) -> bool:
    """Return whether a sample is a row: it has other keys than the net, or a value that cannot be an input's array."""
    return not set(sample) <= set(inputs) or any(_is_cell(value, inputs[name]) for name, value in sample.items())


def _is_cell(value: object, declared: InputSpec) -> bool:
    """Return whether a value is a cell of a table: missing, a text, or a scalar for an input that is an array."""
    return value is None or isinstance(value, str) or (_is_scalar(value) and bool(declared.shape))


def _is_scalar(value: object) -> bool:
    """Return whether a value is a single one, such as a number, a date or a text: neither a container nor an array."""
    if hasattr(value, "__array_interface__"):  # NumPy and Pillow
        return getattr(value, "ndim", None) == 0
    return isinstance(value, str) or not hasattr(value, "__iter__")


def is_row(samples: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether samples are a single row of a table, a value for each column; not a source, nor arrays."""
    return (
        isinstance(samples, Mapping)
        and len(samples) > 0
        and "source" not in samples
        and all(map(_is_scalar, samples.values()))
    )


def is_pillow_image(sample: object) -> bool:
    """Return whether a sample is a Pillow image, without importing Pillow."""
    return hasattr(sample, "getbands") and hasattr(sample, "save")


def is_data_frame(samples: object) -> bool:
    """Return whether samples are a table of pandas, polars or Arrow, without importing these libraries."""
    return hasattr(samples, "columns") and any(hasattr(samples, name) for name in ("to_dict", "to_dicts", "to_pylist"))


@contextmanager
def raw_files(samples: Any, split: Source) -> Iterator[tuple[list[Path], Source]]:
    """Write samples to temporary files; yield these, and the source that describes their format.

    `samples` are a path or a list of paths, which are yielded as they are; an image or a list of images; a row, a
    list of rows or a data frame; or texts as rows: `[{"text": "…"}]`. Raises `InputError` if they are not what the
    training reads.
    """
    items: list[Any] = samples if isinstance(samples, list) else [samples]
    if is_data_frame(samples):
        items = _frame_rows(samples)
    if not items:
        raise InputError("there is no sample", expected="one sample or more")
    if all(isinstance(item, (str, Path)) for item in items):
        yield [Path(item) for item in items], split
        return
    kind = sample_kind(split)
    with temporary_folder() as folder:
        if all(map(is_pillow_image, items)) and kind == "image":
            yield list(_write_images(items, folder)), split
        elif all(isinstance(item, Mapping) for item in items) and isinstance(split, TableSource):
            origin = RowOrigin.TABLE if is_data_frame(samples) else RowOrigin.OBJECTS
            yield write_rows(items, split, folder, origin)
        elif all(isinstance(item, Mapping) and isinstance(item.get(TEXT), str) for item in items) and kind == "text":
            yield write_texts([item[TEXT] for item in items], split, folder)
        elif kind == "text" and (wrong := _first_without_text(items)) is not None:
            raise InputError(
                f"sample {wrong + 1} has no text", expected=_expected(kind), got=_shown(items[wrong]),
            )  # fmt: skip
        else:
            raise InputError(
                "the samples are not of the kind that the net was trained on", expected=_expected(kind),
                got=f"{type(samples).__name__} of {type(items[0]).__name__}",
            )  # fmt: skip


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a temporary folder, whose path is removed from error messages. Raises `RunError` if its disk is full."""
    with TemporaryDirectory(prefix="netspec-") as name:
        try:
            yield Path(name)
        except InputError as error:
            raise InputError([_without_folder(problem, f"{name}/") for problem in error.problems]) from None
        except OSError as error:
            if error.errno not in (ENOSPC, EDQUOT) or not str(error.filename or name).startswith(name):
                raise
            raise RunError(
                f"cannot write temporary files to {Path(name).parent}", got=error.strerror,
                hint="set the environment variable TMPDIR to a folder on another disk",
            ) from None  # fmt: skip


def _without_folder(problem: Problem, folder: str) -> Problem:
    location = problem.location
    if location is not None:
        location = replace(location, file=location.file.removeprefix(folder))
    return replace(problem, message=problem.message.replace(folder, ""), location=location)


def _frame_rows(frame: Any) -> list[Mapping[str, Any]]:
    """Return the rows of a table of pandas, polars or Arrow; missing values are None."""
    for method in ("to_dicts", "to_pylist"):  # polars, Arrow
        if hasattr(frame, method):
            return list(getattr(frame, method)())
    return list(frame.astype(object).where(frame.notna(), None).to_dict("records"))


def _first_without_text(items: Sequence[Any]) -> int | None:
    """Return the index of the first of several mappings that has no text; None if some are not mappings."""
    if not all(isinstance(item, Mapping) for item in items):
        return None
    return next((index for index, item in enumerate(items) if not isinstance(item.get(TEXT), str)), None)


def _shown(item: Mapping[str, Any]) -> str:
    return f"`{TEXT}`: {item[TEXT]!r}" if TEXT in item else f"the key {listing([repr(key) for key in item], 5)}"


def _expected(kind: str) -> str:
    return {
        "image": "paths or Pillow images",
        "table": "paths, rows by column, or a data frame",
        "text": 'paths, or texts as [{"text": "…"}]',
    }.get(kind, "paths of files, or arrays by the names of the inputs")


def _write_images(images: Sequence[Any], folder: Path) -> Iterator[Path]:
    for number, image in enumerate(images):
        path = folder / f"image{number:06d}.png"
        try:
            image.save(path)
        except OSError as error:
            if error.errno is not None:  # only errors of the system have it; Pillow's are about the mode of the image
                raise
            message = f"image {number + 1} cannot be written as PNG: {error}"
            raise InputError(message, hint='`image.convert("RGB")`') from None
        yield path


def write_texts(texts: Sequence[str], split: Source, folder: Path) -> tuple[list[Path], Source]:
    """Write each text to a separate file, or all texts to a table if the training reads tables."""
    if isinstance(split, TableSource):
        return write_rows([{TEXT: text} for text in texts], split, folder)
    paths = [folder / f"{TEXT_FILE}{number:06d}.txt" for number in range(len(texts))]
    with _encoded():
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
    return paths, split


@contextmanager
def _encoded() -> Iterator[None]:
    """Raise `InputError` if a text that the block writes cannot be encoded as UTF-8."""
    try:
        yield
    except UnicodeEncodeError as error:
        got = ascii(error.object[error.start : error.end])
        raise InputError("a text has half of a surrogate pair", expected="Unicode characters", got=got) from None


def is_text_file(path: Path, split: Source) -> bool:
    """Return whether a file is a single text: not a table that has the column of texts."""
    column = split.text_column() if isinstance(split, TableSource) else None
    if not isinstance(split, TableSource) or column is None:
        return sample_kind(split) == "text"
    try:
        return index_of(column, split.other_file(path).names) is None
    except InputError:  # for example a text with an unbalanced quotation mark
        return True


def is_single_line(path: Path) -> bool:
    """Return whether a file has one line, unlike a table, which has rows below its header."""
    with path.open("rb") as file:
        return bool(file.readline()) and not file.read(1)


def write_rows(
    rows: Sequence[Row], split: TableSource, folder: Path, origin: RowOrigin = RowOrigin.OBJECTS
) -> tuple[list[Path], Source]:
    """Write rows as a CSV file, or as a Parquet file if that is what the training reads.

    Rows that are lists have the origin `TABLE`. Raises `InputError` if a row is a list of the wrong length, or a value
    cannot be written to a cell.
    """
    header = split.header if isinstance(split, Csv) else True
    keys = None
    names = [str(name) for name in header] if isinstance(header, list) else []
    if any(isinstance(row, list) for row in rows):
        origin = RowOrigin.TABLE
        _check_lists(rows, header, len(names))
    else:
        column = split.text_column() or TEXT
        mappings = [
            {column if name == TEXT and column not in row else str(name): value for name, value in row.items()}
            for row in rows
            if isinstance(row, Mapping)
        ]
        names = list(dict.fromkeys(name for row in mappings for name in row))
        if header is False:  # the columns have numbers
            names = [str(number + 1) for number in range(_largest_number(names))]
        absent = {name: [index for index, row in enumerate(mappings) if name not in row] for name in names}
        unread = split.unread_columns(names)
        keys = RowKeys(absent, unread)
        rows = [[None if name in unread else row.get(name) for name in names] for row in mappings]
    _check_values(rows, names)
    by_index = split.number_formats(names or [str(number + 1) for number in range(len(rows[0]))])
    formats = [by_index.get(index, split.number_format) for index in range(len(names or rows[0]))]
    if not isinstance(split, Csv):
        with _encoded():
            _write_parquet(folder / "rows.parquet", names, rows, formats)
        return [folder / "rows.parquet"], split.of_rows_in_memory(origin, keys)
    path = folder / "rows.csv"
    with _encoded(), path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([names] if names and header is not False else [])
        writer.writerows(map(_cell, row, formats) for row in rows)
    changes = {
        "header": header is not False, "delimiter": ",", "quotes": True, "comment": None, "skip_lines": 0,
        "encoding": "utf-8",
    }  # fmt: skip
    return [path], split.model_copy(update=changes).of_rows_in_memory(origin, keys)


def _check_lists(rows: Sequence[Row], header: bool | list[str], length: int) -> None:
    if header is True:
        raise InputError("a row must be an object with the names of the columns as keys, got a list")
    length = length or len(rows[0])
    for number, row in enumerate(rows, 1):
        if len(row) != length:
            got = f"{len(row)} in row {number}"
            raise InputError("a row has a different number of values", expected=counted(length, "value"), got=got)


def _check_values(rows: Sequence[Row], names: Sequence[str]) -> None:
    """Raise `InputError` with the values that do not fit into a cell."""
    problems = [
        Problem(
            f"row {number}: `{name}` is not a single value", expected="a number, a text, true, false or null",
            got="a list" if isinstance(value, (list, tuple)) else "an object",
        )
        for number, row in enumerate(rows, 1)
        for name, value in zip(names or map(str, range(1, len(row) + 1)), row, strict=True)
        if isinstance(value, (Mapping, list, tuple))
    ]  # fmt: skip
    if problems:
        raise InputError(problems[:MAX_PROBLEMS])


def _largest_number(names: Sequence[str]) -> int:
    """Return the largest column number among the keys of a row."""
    wrong = [name for name in names if not (name.isascii() and name.isdigit() and 0 < int(name[:9]) <= 100_000)]
    if wrong:
        raise InputError(f"the table has no header: keys must be column numbers, counted from 1, got {wrong[0]!r}")
    return max(map(int, names))


def _cell(value: Any, format: NumberFormat) -> str:
    """Return a value as the text of a cell in the notation of its column; None and NaN are an empty cell."""
    value = _python_value(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return format.written(json.dumps(value))
    return format.written(str(value)) if isinstance(value, Decimal) else str(value)


def _python_value(value: Any) -> Any:
    """Convert a NumPy scalar to a Python value, and a decimal NaN to None."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, Decimal) and value.is_nan() else value


def _write_parquet(path: Path, names: Sequence[str], rows: Sequence[Row], formats: Sequence[NumberFormat]) -> None:
    from netspec.data.tabular.parquet import write_parquet

    columns: dict[str, list[Any]] = {}
    for index, name in enumerate(names):
        values = [_python_value([*row][index]) for row in rows]
        if any(isinstance(value, Decimal) for value in values) and any(isinstance(value, float) for value in values):
            values = [float(value) if isinstance(value, Decimal) else value for value in values]  # for Arrow
        if any(isinstance(value, str) for value in values):
            values = [None if value is None else _cell(value, formats[index]) for value in values]
        columns[name] = values
    write_parquet(path, [columns])
