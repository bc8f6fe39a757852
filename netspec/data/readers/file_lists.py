"""Lists of files: `.csv` with a header, or Caffe's `path label` in each line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from netspec.data.file_kinds import FileKind
from netspec.data.files import existing, explain_read_errors
from netspec.data.readers.file_samples import Listing
from netspec.data.readers.list_labels import Line, list_labels
from netspec.errors import InputError, Problem, counted, listing
from netspec.schema.specs.data import LABEL
from netspec.schema.specs.hold_out import HoldOut

_PATHS, _LABELS = ("path", "file", "filename"), ("label", "class")
"""Accepted column names of a CSV file. If `label` is numeric, `class` may contain the names."""


def listed_files(
    path: Path,
    root: Path,
    classes: Sequence[str] | None,
    kind: FileKind,
    *,
    skip: bool = False,
    learned: Mapping[str, Any] | None = None,
    most: int | None = None,
    hold_out: HoldOut | None = None,
) -> Listing:
    """Return the files in a list, whose paths are relative to the folder `root`, in the order of the list.

    Labels are integers or names of `classes`; by default the classes that the training split has `learned`, or else all
    names, sorted. At most `most` lines are read. With `skip`, lines with a missing file or an invalid label are left
    out and counted; if `hold_out` divides all files, they are only marked as `unusable`, so that each counts in its
    part. The listing contains the columns by which `hold_out` divides the files. Raises `InputError` with all wrong
    lines.
    """
    lines = list(list_lines(existing(path), kind, hold_out, most))
    labels = list_labels(path, lines, classes, learned)
    listing = Listing(kind, [], None if labels.numbers is None else [], labels.classes)
    problems: list[Problem] = []
    for index, line in enumerate(lines):
        file = root / line.path
        where = f"{path.name}, line {line.number}"
        wrong = labels.wrong.get(index)
        if not file.is_file():
            listing.unusable[index] = f"file {file} does not exist ({where})"
            problems.append(Problem(f"file {file} does not exist", expected=f"the {kind.name} named in {where}"))
        if wrong is not None:
            listing.unusable.setdefault(index, wrong.brief)
            problems.append(wrong)
        listing.files.append(file)
        listing.locations.append(where)
        if listing.labels is not None and labels.numbers is not None:
            listing.labels.append(labels.numbers[index])
        for column, value in line.values.items():
            listing.columns.setdefault(column, []).append(value)
    if problems and not skip:
        raise InputError(problems)
    if not listing.files:
        raise InputError(f"{path} names no {kind.name}", expected="a path and a label in each line")
    if len(listing.unusable) == len(listing.files):
        raise InputError(
            f"none of the {kind.name}s that {path} names can be used",
            expected=f"one or more below {root}, with labels that fit",
            got=f"{counted(len(listing.files), 'line')}, the first: {listing.unusable[0]}",
        )
    return listing if hold_out is not None and most is None else listing.usable()


def list_lines(path: Path, kind: FileKind, hold_out: HoldOut | None = None, most: int | None = None) -> Iterator[Line]:
    """Yield the lines of a list, at most the first `most`; `kind` is the kind of its files.

    Raises `InputError` if it is damaged, or has no column by which `hold_out` can divide the files.
    """
    try:
        with explain_read_errors(path), path.open(encoding="utf-8-sig", newline="") as file:
            is_csv = path.suffix.lower() == ".csv"
            yield from _csv_lines(path, file, kind, hold_out, most) if is_csv else islice(_text_lines(file), most)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a list of {kind.name}s", expected="text in UTF-8", got=str(error)) from None
    except csv.Error as error:
        raise InputError(f"{path} is damaged", expected="comma-separated values", got=str(error)) from None


def _text_lines(file: TextIO) -> Iterator[Line]:
    """Read Caffe's form: the text after the last blank of a line is its label."""
    for number, text in enumerate(file, 1):
        name, blank, label = text.strip().rpartition(" ")
        if text.strip():
            yield Line(number, *((name.strip(), label) if blank else (label, "")))


def _csv_lines(path: Path, file: TextIO, kind: FileKind, hold_out: HoldOut | None, most: int | None) -> Iterator[Line]:
    rows = csv.reader(file, strict=True)
    header = [cell.strip() for cell in next(rows, [])]
    where = next((header.index(name) for name in (*_PATHS, kind.name) if name in header), None)
    label = next((header.index(name) for name in _LABELS if name in header), None)
    named = header.index("class") if label is not None and "class" in header[label + 1 :] else None
    if where is None:
        raise InputError(
            f"{path} has no column of paths",
            expected=f"a header with {listing((*_PATHS, kind.name))}, and for labels {listing(_LABELS)}",
            got=", ".join(header) or "an empty file",
            hint="a list without a header ends in .txt, and has a path, a space and a label in each line",
        )
    division = {} if hold_out is None else _division_columns(header, hold_out, has_labels=label is not None)
    problems = []
    for row in islice(rows, most):
        if len(row) == len(header):
            number, name = (None if cell is None else row[cell].strip() for cell in (label, named))
            values = {column: row[cell].strip() for column, cell in division.items()}
            yield Line(rows.line_num, row[where].strip(), number, name, values)
        elif row:
            got = f"{counted(len(row), 'cell')}: {','.join(row)[:80]}"
            problems.append(
                Problem(f"{path.name}, line {rows.line_num} is ragged", expected=f"{len(header)} cells", got=got)
            )
    if problems:
        raise InputError(problems)


def _division_columns(header: Sequence[str], hold_out: HoldOut, *, has_labels: bool) -> dict[str, int]:
    """Return the indices of the columns by which files are divided, by name, without the column of the labels."""
    labels = [LABEL] if has_labels else []
    hold_out.check_columns([*header, *labels])
    return {column: header.index(column) for column in hold_out.columns.values() if column not in labels}
