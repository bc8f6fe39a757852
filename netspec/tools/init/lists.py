"""Lists of labeled images or sounds: the lists in a folder, and the files that a list names."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from netspec.data.file_kinds import FileKind
from netspec.data.readers.file_lists import list_lines, listed_files
from netspec.data.readers.list_labels import Line
from netspec.errors import InputError, listing
from netspec.tools.init.class_folders import PARTS, ClassFiles

SUFFIXES = (".csv", ".txt")
MAX_CLASSES = 10_000
"""Number of classes without names that are accepted; a larger label is not that of a class."""

GROUPS = ("patient", "subject", "participant", "person", "speaker", "animal", "site", "session", "scene", "camera")
"""Words in the names of columns whose equal values mean that files belong together."""
LEAST_GROUPS = 5
"""Number of different values of such a column from which on files can be divided by it."""


def list_parts(path: Path, kind: FileKind) -> dict[str, Path]:
    """Return the lists of files of a kind by part: `path` itself, or those in a folder; empty without any.

    Raises `InputError` if several lists in a folder may be the training data.
    """
    if path.is_file():
        return {"train": path} if is_list(path, kind) else {}
    lists = [file for file in sorted(path.iterdir()) if is_list(file, kind)]
    by_part = {part: next((file for file in lists if file.stem.lower() in names), None)
               for part, names in PARTS.items()}  # fmt: skip
    others = [file for file in lists if file not in by_part.values()]
    train = [file for file in others if file.stem.lower() == "train"] or others
    if not train:
        return {}
    if len(train) > 1:
        raise InputError(
            f"{path} has several lists of {kind.name}s", expected="one for training, or the path of one of them",
            got=listing([file.name for file in train], 5),
        )  # fmt: skip
    return {"train": train[0], **{part: file for part, file in by_part.items() if file is not None}}


def is_list(file: Path, kind: FileKind) -> bool:
    """Return whether the first line of a file is the path of a file of a kind, relative to its folder, and a label."""
    first = _first_line(file, kind)
    return (
        first is not None
        and bool(first.label)
        and Path(first.path).suffix.lower() in kind.suffixes
        and (file.parent / first.path).is_file()
    )


def _first_line(file: Path, kind: FileKind) -> Line | None:
    if file.suffix.lower() not in SUFFIXES or not file.is_file():
        return None
    try:
        return next(islice(list_lines(file, kind), 1), None)
    except InputError:  # a table, or a text
        return None


def listed_class_files(lists: Mapping[str, Path], kind: FileKind) -> ClassFiles:
    """Return the files of each class in the list `train`. Raises `InputError` if there are fewer than two classes."""
    file = lists["train"]
    listed = listed_files(file, file.parent, None, kind, skip=True)
    labels = listed.labels or []
    if not listed.classes and max(labels) >= MAX_CLASSES:
        raise InputError(f"{file} has labels up to {max(labels):,}", expected="numbers of classes from 0, or names")
    names = listed.classes or tuple(map(str, range(max(labels) + 1)))
    by_class: dict[str, list[Path]] = {name: [] for name in names}
    for path, label in zip(listed.files, labels, strict=True):
        by_class[names[label]].append(path)
    used = [name for name, files in by_class.items() if files]
    if len(used) < 2:
        raise InputError(f"{file} has labels of one class", expected="two classes or more", got=listing(used))
    return ClassFiles(
        file.parent, kind, by_class, lists=lists, left_out=listed.left_out, has_names=bool(listed.classes),
        groups=_group_columns(file),
    )  # fmt: skip


def _group_columns(file: Path) -> list[str]:
    """Return the columns of a list whose equal values most likely mean that files belong together."""
    if file.suffix.lower() != ".csv":
        return []
    with file.open(encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.reader(lines))
    columns = dict(zip((name.strip() for name in rows[0]), zip(*filter(None, rows[1:]), strict=True), strict=True))
    return [
        name
        for name, cells in columns.items()
        if any(word in name.lower() for word in GROUPS) and LEAST_GROUPS <= len({*cells}) < len(cells)
    ]
