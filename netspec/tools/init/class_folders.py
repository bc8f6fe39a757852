"""Files of classes, mostly in a folder for each: their paths, a sample of them, and findings about the classes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

from netspec.data.file_kinds import FileKind
from netspec.errors import InputError, command, counted, listing
from netspec.tools.init.files import comment, entry, hold_out, relative
from netspec.training.run_directory import LOG

PARTS = {"validation": ("validation", "val", "valid"), "test": ("test",)}
"""Names of folders and files that hold a split of their own, next to `train`."""
NO_LISTS: Mapping[str, Path] = MappingProxyType({})


@dataclass(frozen=True)
class ClassFiles:
    """The files of each class: those in its folder, or those that a list names."""

    root: Path
    """The folder of the class folders, or of the list."""
    kind: FileKind
    by_class: dict[str, list[Path]]
    others: list[Path] = field(default_factory=list)
    """Files of other kinds in the class folders."""
    unread: dict[str, list[Path]] = field(default_factory=dict)
    """Files of formats that are not read, in folders that are not used as classes for this reason."""
    empty: list[str] = field(default_factory=list)
    """Names of folders without files, which are not used as classes either."""
    lists: Mapping[str, Path] = field(default_factory=dict)
    """The list of each part of the data, if lists name the files and their classes."""
    left_out: list[str] = field(default_factory=list)
    """Lines of the list that are left out, since their file is missing or has no label."""
    has_names: bool = True
    """Whether classes have names; otherwise, those of `by_class` are the numbers in the list."""
    groups: list[str] = field(default_factory=list)
    """Columns of the list whose equal values most likely mean that files belong together."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of files of each class."""
        return {name: len(files) for name, files in self.by_class.items()}

    @property
    def total(self) -> int:
        """Number of files in all classes."""
        return sum(map(len, self.by_class.values()))

    @property
    def summary(self) -> str:
        """The number of files and classes, as a finding."""
        return f"{self.total:,} {self.kind.name}s of {class_listing(self.counts)}"

    def sample(self, most: int) -> list[Path]:
        """Return about `most` files, spread over all classes and over the files of each: in turn one of each class."""
        per_class = max(1, most // len(self.by_class))
        chosen = [files[:: max(1, len(files) // per_class)][:per_class] for files in self.by_class.values()]
        return [file for files in zip_longest(*chosen) for file in files if file is not None]

    def class_of(self, file: Path) -> str:
        """Return the class of one of the files."""
        return self._listed_classes[file] if self.lists else file.relative_to(self.root).parts[0]

    @cached_property
    def _listed_classes(self) -> dict[Path, str]:
        return {file: name for name, files in self.by_class.items() for file in files}

    def location(self, folder: Path) -> list[tuple[str, Any, str]]:
        """Return the fields of the source that locate the files, for a training file in `folder`, with reasons."""
        path, file = relative(self.root, folder), self.lists.get("train")
        fields = [("path", path, "a folder for each class" if file is None else "paths in the list begin here")]
        if file is not None:
            fields.append(("list", relative(file, folder), "the path and the label of each file"))
        names = [("classes", list(self.by_class), "labels 0, 1, … in this order")] if self.has_names else []
        return [*fields, *names]

    def other_warnings(self) -> list[str]:
        """Return warnings about files of other kinds in the class folders, and about folders without other files."""
        count = len(self.others)
        are = "file of another kind is" if count == 1 else "files of other kinds are"
        left_out = f"{count:,} {are} left out: {listing([str(path) for path in self.others], 3)}"
        warnings = [left_out] if count else []
        for name, files in self.unread.items():
            warnings.append(f"the folder {self.root / name} is not used as a class: {self.kind.describe_unread(files)}")
        if self.empty:
            folders = listing([str(self.root / name) for name in self.empty], 3)
            warnings.append(f"folders without files are not used as classes: {folders}")
        if self.left_out:
            warnings.append(f"{counted(len(self.left_out), 'line')} of the list left out: {listing(self.left_out, 3)}")
        return warnings

    def on_error_field(self, unreadable: Sequence[Any]) -> list[tuple[str, Any, str]]:
        """Return the field of the source that leaves out unreadable files and unusable lines, if there are any."""
        reasons = [f"some {self.kind.name}s cannot be read"] * bool(unreadable)
        reasons += ["some lines of the list are unusable"] * bool(self.left_out)
        left_out = f"{' and '.join(reasons)}: they are left out, and counted in the log"
        return [("on_error", "skip", left_out)] if reasons else []

    def nested_warnings(self) -> list[str]:
        """Return a warning if all class folders hold the same folders, which may be the classes instead."""
        if self.lists:
            return []
        root, files = self.root, self.by_class
        inner = [{file.relative_to(root / name).parts[0] for file in class_files if file.parent != root / name}
                 for name, class_files in files.items()]  # fmt: skip
        direct = any(file.parent == root / name for name, class_files in files.items() for file in class_files)
        if direct or len(inner[0]) < 2 or any(names != inner[0] for names in inner):
            return []
        outer = command("init", root / next(iter(files)))
        text = (
            f"each of the class folders {listing(list(files), 3)} contains the folders {listing(sorted(inner[0]), 5)}; "
            f"if those are the classes, name one of the outer folders: `{outer}`"
        )
        return [text]


def class_files(root: Path, kind: FileKind) -> ClassFiles:
    """Return the files of each class folder. Raises `InputError` if there are fewer than two classes."""
    all_files = {child.name: list(files_below(child)) for child in _subfolders(root)}
    by_class: dict[str, list[Path]] = {}
    others: list[Path] = []
    unread: dict[str, list[Path]] = {}
    for name, files in all_files.items():
        if matching := [file for file in files if file.suffix.lower() in kind.suffixes]:
            by_class[name] = matching
            others += [file for file in files if file.suffix.lower() not in kind.suffixes]
        elif of_kind := [file for file in files if kind.is_unread(file)]:
            unread[name] = of_kind
    if len(by_class) < 2:
        raise InputError(
            f"{root} has {counted(len(by_class), 'class folder')} with {kind.name}s",
            expected="two folders or more, one for each class", got=listing(list(by_class)) or "none",
            hint=_hint_at_classes(root, list(by_class), kind) if not unread else "; ".join(
                f"in the folder {name}, {kind.describe_unread(files)}" for name, files in unread.items()
            ),
        )  # fmt: skip
    return ClassFiles(root, kind, by_class, others, unread, [name for name, files in all_files.items() if not files])


def has_class_files(root: Path, kind: FileKind) -> bool:
    """Return whether a folder has class folders with such files."""
    return any(has_files(child, kind) for child in _subfolders(root))


def has_files(folder: Path, kind: FileKind) -> bool:
    """Return whether a folder has such files below it."""
    return next(files_below(folder, kind.suffixes), None) is not None


def files_below(folder: Path, suffixes: Collection[str] | None = None) -> Iterator[Path]:
    """Yield the files below a folder, or those with these suffixes (in lower case), sorted by path.

    Raises `OSError`.
    """
    for path, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and (suffixes is None or Path(name).suffix.lower() in suffixes):
                yield Path(path, name)


def training_folder(path: Path) -> Path:
    """Return the folder `train` with folders in a folder of data, or the folder itself if it is not divided."""
    train = path / "train"
    return train if train.is_dir() and any(child.is_dir() for child in train.iterdir()) else path


def stored_parts(path: Path, lists: Mapping[str, Path] = NO_LISTS) -> dict[str, dict[str, Path]]:
    """Return the paths of the validation and test data that are stored, as fields of their sources.

    They are folders next to `train`, or the `lists` of these parts.
    """
    if lists:
        return {part: {"path": lists[part].parent, "list": lists[part]} for part in PARTS if part in lists}
    if training_folder(path) == path:
        return {}
    folders = {
        part: next((path / name for name in names if (path / name).is_dir()), None) for part, names in PARTS.items()
    }
    return {part: {"path": folder} for part, folder in folders.items() if folder is not None}


def split_entry(path: Path, samples: int, *, stratify: str | None = None, files: ClassFiles | None = None) -> list[str]:
    """Return the field `split` of N training samples: it holds out the parts that are not stored.

    A comment names the columns of the list of `files` by which they can be divided instead.
    """
    missing = [part for part in PARTS if part not in stored_parts(path, NO_LISTS if files is None else files.lists)]
    if not missing:
        return []
    hints = []
    for column in () if files is None else files.groups:
        reason = f"the test is more realistic if no {column} is also in the training data"
        hints += comment(f"In place of `stratify`, consider `group: {column}`: {reason}.", 4)
    return [*hints, *entry("split", *hold_out(samples, stratify=stratify, parts=missing), 4)]


def class_listing(counts: Mapping[str, int]) -> str:
    """Return the number of classes, and the names and counts of some."""
    return f"{len(counts)} classes: {listing([f'{name} ({count:,})' for name, count in counts.items()], 10)}"


def rare_class_warnings(counts: Mapping[str, int], least: int, kind: str) -> list[str]:
    """Return a warning about classes with fewer than `least` samples; `kind` is their name, such as `images`."""
    rare = [name for name, count in counts.items() if count < least]
    return [f"classes of fewer than {least} {kind}: {listing(rare, 5)}"] if rare else []


def _subfolders(root: Path) -> list[Path]:
    """Return the folders in a folder, sorted; hidden ones and those of run directories are not listed."""
    folders = (child for child in root.iterdir() if child.is_dir() and not child.name.startswith("."))
    return sorted(child for child in folders if not any(child.glob(f"*/{LOG}")))


def _raise(error: OSError) -> None:
    raise error


def _hint_at_classes(root: Path, names: Sequence[str], kind: FileKind) -> str | None:
    """Return a hint if a single class folder contains several folders with files, which may be the classes."""
    while len(names) == 1:
        root /= names[0]
        names = [child.name for child in _subfolders(root) if has_files(child, kind)]
    if not names:
        return None
    return f"if the classes are the folders {listing(names, 5)} in {root}: `{command('init', root)}`"
