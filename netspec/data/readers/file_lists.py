"""Lists of files: `.csv` with a header, or Caffe's `path label` in each line."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from netspec.data.files import existing
from netspec.data.readers.listings import FileKind, Listing
from netspec.errors import InputError, Problem, counted, did_you_mean, listing

_PATHS, _LABELS = ("path", "file", "filename"), ("label", "class")
"""What the columns of a CSV file may be called. Beside a `label` in numbers, `class` has their names."""

_MOST = 2**31


class _Line(NamedTuple):
    number: int
    path: str
    label: str | None
    name: str | None = None
    """The name of the class, where the label is its number."""


def listed_files(
    path: Path, root: Path, classes: Sequence[str] | None, kind: FileKind, *, skip: bool = False
) -> Listing:
    """The files that a list names, relative to the folder `root`, in its order.

    Labels are whole numbers, or names: of `classes`, by default of all that there are, sorted. With `skip`, lines whose
    file is not there are left out and counted. Raises InputError with every line that is wrong.
    """
    lines = list(_lines(existing(path), kind))
    problems: list[Problem] = []
    labels, names = _labels(path, lines, classes, problems)
    found = Listing(kind, [], None if labels is None else [], names)
    for place, line in enumerate(lines):
        file = root / line.path
        where = f"{path.name}, line {line.number}"
        if not file.is_file():
            problem = Problem(f"there is no file {file}", expected=f"the {kind.name} named in {where}")
            if skip:
                found.absent.append(f"there is no file {file} ({where})")
            else:
                problems.append(problem)
            continue
        found.files.append(file)
        found.places.append(where)
        if found.labels is not None and labels is not None:
            found.labels.append(labels[place])
    if problems:
        raise InputError(problems)
    if found.absent and not found.files:
        raise InputError(
            f"none of the {kind.name}s that {path} names is there", expected=f"one or more below {root}",
            got=f"{counted(len(found.absent), 'line')}, the first of {lines[0].path}",
        )  # fmt: skip
    if not found.files:
        raise InputError(f"{path} names no {kind.name}", expected="a path and a label in each line")
    return found


def _lines(path: Path, kind: FileKind) -> Iterator[_Line]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _of_csv(path, file, kind) if path.suffix.lower() == ".csv" else _of_text(path, file)
    except OSError as error:
        raise InputError(f"cannot read {path}", got=error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a list of {kind.name}s", expected="text in UTF-8", got=str(error)) from None
    except csv.Error as error:
        raise InputError(f"{path} is damaged", expected="comma-separated values", got=str(error)) from None


def _of_text(path: Path, file: TextIO) -> Iterator[_Line]:
    """Caffe's form: what stands behind the last blank of a line is its label."""
    problems = []
    for number, text in enumerate(file, 1):
        name, _, label = text.strip().rpartition(" ")
        if name and label:
            yield _Line(number, name.strip(), label)
        elif text.strip():
            problems.append(
                Problem(f"{path.name}, line {number} has no label", expected="`path label`", got=text.strip()[:80])
            )
    if problems:
        raise InputError(problems)


def _of_csv(path: Path, file: TextIO, kind: FileKind) -> Iterator[_Line]:
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
            hint="a list without a header has a path, a blank and a label in each line, and ends in .txt",
        )
    problems = []
    for row in rows:
        if len(row) == len(header):
            label_cell, name_cell = (None if cell is None else row[cell].strip() for cell in (label, named))
            yield _Line(rows.line_num, row[where].strip(), label_cell, name_cell)
        elif row:
            got = f"{counted(len(row), 'cell')}: {','.join(row)[:80]}"
            problems.append(
                Problem(f"{path.name}, line {rows.line_num} is ragged", expected=f"{len(header)} cells", got=got)
            )
    if problems:
        raise InputError(problems)


def _labels(
    path: Path, lines: Sequence[_Line], classes: Sequence[str] | None, problems: list[Problem]
) -> tuple[list[int] | None, tuple[str, ...]]:
    """The label of each line, and what the labels mean."""
    texts = [line.label for line in lines if line.label is not None]
    if len(texts) < len(lines) or not lines:
        return None, ()
    whole = all(text.isascii() and text.isdigit() for text in texts)
    if whole:
        numbers = _numbers(path, lines, texts, classes, problems)
        return numbers, tuple(classes) if classes is not None else _named(path, lines, numbers, problems)
    names = tuple(classes) if classes is not None else _names(texts)
    index = {name: number for number, name in enumerate(names)}
    for line, text in zip(lines, texts, strict=True):
        if text not in index:
            problems.append(
                Problem(
                    f"{path.name}, line {line.number}: there is no class `{text}`",
                    expected=f"one of {listing(names)}",
                    hint=did_you_mean(text, names),
                )
            )
    return [index.get(text, 0) for text in texts], names


def _named(path: Path, lines: Sequence[_Line], numbers: Sequence[int], problems: list[Problem]) -> tuple[str, ...]:
    """The names beside the numbers, where every number from 0 on has one."""
    names: dict[int, str] = {}
    for line, number in zip(lines, numbers, strict=True):
        if line.name is None:
            return ()
        if names.setdefault(number, line.name) != line.name:
            expected = f"`{names[number]}`, as in the lines before"
            where = f"{path.name}, line {line.number}"
            problems.append(Problem(f"{where}: label {number} has two names", expected=expected, got=f"`{line.name}`"))
    complete = sorted(names) == list(range(len(names)))
    return tuple(names[number] for number in range(len(names))) if complete else ()


def _names(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(texts)))


def _numbers(
    path: Path, lines: Sequence[_Line], texts: Sequence[str], classes: Sequence[str] | None, problems: list[Problem]
) -> list[int]:
    most = len(classes) if classes is not None else _MOST
    numbers = [int(text) for text in texts]
    for line, number in zip(lines, numbers, strict=True):
        if number >= most:
            expected = f"0 to {most - 1}" + (f", since there are {most} `classes`" if classes is not None else "")
            problems.append(
                Problem(f"{path.name}, line {line.number}: label {number} is out of range", expected=expected)
            )
    return numbers
