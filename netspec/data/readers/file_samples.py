"""Files in class folders or in a list as samples: finding them, and reading them one by one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar, cast
from unicodedata import normalize

import numpy as np

from netspec.data.base import Array, DamagedSamples, Dataset, FieldType, Samples
from netspec.data.file_kinds import FileKind
from netspec.data.files import existing, fingerprint
from netspec.data.readers.list_labels import CLASSES
from netspec.errors import InputError, Problem, did_you_mean, listing

Item = TypeVar("Item")
Batch = TypeVar("Batch")


@dataclass
class Listing:
    """Files of one kind and their labels, in the order of the samples."""

    kind: FileKind
    files: list[Path]
    labels: list[int] | None
    classes: tuple[str, ...] = ()
    locations: list[str] = field(default_factory=list)
    """Location of each file's entry in the list, if the files come from a list."""
    left_out: list[str] = field(default_factory=list)
    """Messages about lines left out because the file is missing or the label is wrong."""
    unusable: dict[int, str] = field(default_factory=dict)
    """Messages about unusable lines that are not left out yet, by index."""
    columns: dict[str, list[str]] = field(default_factory=dict)
    """For files of a list: the cells of the columns by which `split` divides them, by name."""

    def only(self, indices: Sequence[int]) -> Listing:
        """Return the files at `indices`, in this order, with the same classes."""
        labels = None if self.labels is None else [self.labels[index] for index in indices]
        locations = [self.locations[index] for index in indices] if self.locations else []
        columns = {name: [cells[index] for index in indices] for name, cells in self.columns.items()}
        files = [self.files[index] for index in indices]
        return replace(self, files=files, labels=labels, locations=locations, columns=columns)

    def usable(self) -> Listing:
        """Return the listing without the files that cannot be used, which are left out."""
        usable = self.only([index for index in range(len(self.files)) if index not in self.unusable])
        return replace(usable, left_out=[*self.left_out, *self.unusable.values()], unusable={})

    def name(self, index: int) -> str:
        """Return the name of a sample in messages."""
        return f"{self.files[index]} ({self.locations[index]})" if self.locations else str(self.files[index])


class ListedFiles(Dataset, Generic[Item]):
    """The files of a listing as samples of one field, and `label`, if there are labels.

    Raises InputError with the missing files; with `skip`, `read` reports them instead.
    """

    def __init__(
        self, listing: Listing, field: str, shape: tuple[int | None, ...], dtype: str, *, skip: bool = False
    ) -> None:
        self._listing, self.field = listing, field
        self._labels = None if listing.labels is None else np.array(listing.labels, np.int32)
        self._marks = _marks(listing, skip=skip)
        self.classes = {"label": listing.classes} if listing.classes else {}
        self.fields = {field: FieldType(shape, dtype)}
        if listing.labels is not None:
            self.fields["label"] = FieldType((), "int32")
        self.columns = {name: np.array(cells, str) for name, cells in listing.columns.items()}
        self.skipped, self.damaged, self.unusable = len(listing.left_out), listing.left_out, listing.unusable
        self.learned = {} if listing.labels is None else {CLASSES: list(listing.classes)}
        # Names, sizes and labels, not contents: reading every file would take longer than many a training step.
        files = [file.absolute() for file in listing.files]
        root = Path(os.path.commonpath([file.parent for file in files]))
        listed = [
            f"{file.relative_to(root).as_posix()}:{mark}" for file, mark in zip(files, self._marks[:, 0], strict=True)
        ]
        numbers = b"" if self._labels is None else self._labels.astype("<i4").tobytes()
        self.digest = fingerprint(*listing.classes, numbers, *listed)

    def __len__(self) -> int:
        return len(self._listing.files)

    def read(self, indices: Array) -> dict[str, Samples]:
        """Read the files at `indices`. Raises DamagedSamples with those that cannot be used."""
        return self.samples_at(indices, self.batch_of)

    def samples_at(self, indices: Array, batch_of: Callable[[list[Item]], Batch]) -> dict[str, Batch | Array]:
        """Return the samples with files combined by `batch_of`. Raises DamagedSamples as `read` does."""
        values: list[Item] = []
        damaged: dict[int, Sequence[Problem]] = {}
        for row, index in enumerate(indices.tolist()):
            try:
                values.append(self.read_one(self._listing.files[index], self._listing.name(index)))
                self._check(index)
            except InputError as error:
                damaged[row] = error.problems
        if damaged:
            raise DamagedSamples(damaged)
        samples: dict[str, Batch | Array] = {self.field: batch_of(values)}
        if self._labels is not None:
            samples["label"] = self._labels[indices]
        return samples

    def values_of(self, name: str) -> Array:
        """Return the labels without reading the files."""
        return self._labels if name == "label" and self._labels is not None else super().values_of(name)

    def reads_alone(self, name: str) -> bool:
        """Return whether this is the label, for which no file is read."""
        return name == "label"

    def read_one(self, file: Path, name: str) -> Item:
        """Read one file, named `name` in messages. Raises InputError if it cannot be used."""
        raise NotImplementedError(f"{type(self).__name__} does not say how a file is read")

    def batch_of(self, values: list[Item]) -> Samples:
        """Combine the values read from several files into a batch; arrays by default."""
        return cast("Samples", values)

    def _check(self, index: int) -> None:
        name = f"{self._listing.kind.name} {self._listing.name(index)}"
        try:
            mark = self._listing.files[index].stat()
        except OSError as error:
            raise InputError(f"{name} was removed while it was read", got=error.strerror) from None
        if (mark.st_size, mark.st_mtime_ns) != tuple(self._marks[index].tolist()):
            raise InputError(f"{name} changed while it was read", hint="start again once nothing writes to it")

    def describe(self, index: int) -> str:
        """Return the path of a sample's file, and its location in the list."""
        return self._listing.name(index)

    def identify(self, index: int) -> tuple[str, str | int]:
        """Return the path of a sample's file."""
        return "file", str(self._listing.files[index])


def _marks(listing: Listing, *, skip: bool) -> Array:
    """Return size and modification time of each file, (files, 2); -1 for missing files, which need `skip`."""
    marks, problems = np.full((len(listing.files), 2), -1, np.int64), []
    for index, file in enumerate(listing.files):
        try:
            mark = file.stat()
        except OSError as error:
            problems.append(
                Problem(f"cannot read {listing.kind.name} {listing.name(index)}", got=error.strerror or str(error))
            )
        else:
            marks[index] = mark.st_size, mark.st_mtime_ns
    if problems and not skip:
        raise InputError(problems)
    return marks


def class_folders(root: Path, classes: Sequence[str] | None, kind: FileKind, most: int | None = None) -> Listing:
    """List the files of a kind below `root`, in one folder per class, by class, then by path. Raises `InputError`.

    With `most`, lists at most that many files of each class, in any order.
    """
    folders = _folders_of_classes(existing(root, folder=True), classes, kind)
    names = list(folders)
    files: list[Path] = []
    labels: list[int] = []
    for label, folder in enumerate(folders.values()):
        class_files = files_below(folder, kind) if most is None else list(islice(_unsorted(folder, kind), most))
        files += class_files
        labels += [label] * len(class_files)
    _check_not_empty(root, names, labels, kind, declared=classes is not None)
    return Listing(kind, files, labels, tuple(names))


def unlabeled(paths: Sequence[Path], kind: FileKind) -> Listing:
    """Return files, and all files of the kind below folders, sorted by path within each; no labels.

    Raises `InputError` if a file does not exist, or a folder has no such file.
    """
    files: list[Path] = []
    for path in paths:
        below = files_below(path, kind) if path.is_dir() else [existing(path)]
        if not below:
            expected = f"files whose names end in {listing(sorted(kind.suffixes))}"
            unread = unread_files_below(path, kind)
            hint = kind.describe_unread(unread) if unread else None
            raise InputError(f"{path} holds no {kind.name}s", expected=expected, hint=hint)
        files += below
    return Listing(kind, files, None)


def _folders_of_classes(root: Path, declared: Sequence[str] | None, kind: FileKind) -> dict[str, Path]:
    """Return the folder of each class. Names are compared in NFC: macOS decomposes letters such as `ü`."""
    try:
        names = sorted(item.name for item in root.iterdir() if item.is_dir() and not item.name.startswith("."))
    except OSError as error:
        raise InputError(f"cannot read folder {root}", got=error.strerror or str(error)) from None
    twice = [name for name, count in Counter(normalize("NFC", name) for name in names).items() if count > 1]
    if twice:
        raise InputError(
            f"{root} has two folders called `{twice[0]}`, in different Unicode forms",
            expected="one folder for each class", hint="move the files of one folder into the other",
        )  # fmt: skip
    if declared is None:
        if not names:
            raise InputError(f"{root} holds no class folders", expected=f"one folder of {kind.name}s for each class")
        odd = [name for name in names if not name.isascii() and name.encode("utf-8", "replace") != os.fsencode(name)]
        if odd:
            raise InputError(
                f"the name of a class folder in {root} is not text", expected="UTF-8", got=repr(os.fsencode(odd[0])),
                hint="rename it: the names of the classes are saved with the weights",
            )  # fmt: skip
        return dict(sorted((normalize("NFC", name), root / name) for name in names))
    known = {normalize("NFC", name) for name in declared}
    # A folder without such files, such as `runs`, does not count as a class.
    unknown = [
        Problem(
            f"folder `{name}` of {root} is not among the declared classes",
            expected=f"one of {listing(declared)}",
            hint=did_you_mean(name, declared),
        )
        for name in names
        if normalize("NFC", name) not in known and any(_unsorted(root / name, kind))
    ]
    if unknown:
        raise InputError(unknown)
    present = {normalize("NFC", name): root / name for name in names}
    return {name: present.get(normalize("NFC", name), root / name) for name in declared}


def files_below(folder: Path, kind: FileKind) -> list[Path]:
    """Return all files of a kind below a folder, sorted by path."""
    return _sorted(folder, _unsorted(folder, kind))


def count_files(folder: Path, kind: FileKind, most: int) -> int:
    """Return the number of files of a kind below a folder, up to `most`."""
    return sum(1 for _ in islice(_unsorted(folder, kind), most))


def unread_files_below(folder: Path, kind: FileKind) -> list[Path]:
    """Return the files of a kind below a folder that are in formats that are not read, sorted by path."""
    return _sorted(folder, filter(kind.is_unread, _all_below(folder)))


def _sorted(folder: Path, files: Iterable[Path]) -> list[Path]:
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())


def _unsorted(folder: Path, kind: FileKind) -> Iterator[Path]:
    """Yield the files of a kind below a class folder, as the file system lists them."""
    return (file for file in _all_below(folder) if file.suffix.lower() in kind.suffixes)


def _all_below(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder, as the file system lists them."""
    try:
        with os.scandir(folder) as entries:
            inner = []
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    inner.append(entry)
                else:
                    yield Path(entry.path)
    except OSError as error:
        _raise_unless_missing(error)
        return
    for entry in inner:
        if not entry.is_symlink():
            yield from _all_below(Path(entry.path))


def _raise_unless_missing(error: OSError) -> None:
    # A declared class need not have a folder; existing folders must be readable.
    if not isinstance(error, FileNotFoundError):
        raise InputError(f"cannot read folder {error.filename}", got=error.strerror or str(error))


def _check_not_empty(
    root: Path, names: Sequence[str], labels: Sequence[int], kind: FileKind, *, declared: bool
) -> None:
    """Raise `InputError` if there are no files, or if a class that was not declared has none."""
    present = set(labels)
    empty = [name for label, name in enumerate(names) if label not in present]
    if present and (declared or not empty):
        return
    raise InputError(
        [
            Problem(
                f"class folder {root / name} holds no {kind.name}",
                expected=f"files that end in {listing(sorted(kind.suffixes))}",
                hint=f"declare `classes` if a class may be without {kind.name}s" if present else None,
            )
            for name in empty
        ]
    )
