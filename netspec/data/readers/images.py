"""Image files as samples, decoded batch by batch: those of class folders, or those of a list."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import DamagedSamples, Dataset, FieldType
from netspec.data.files import existing, fingerprint
from netspec.data.readers.decode import Decoder, upright_size
from netspec.errors import InputError, Problem, did_you_mean, listing

if TYPE_CHECKING:
    from netspec.data.base import Array, Samples

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})


@dataclass
class Listing:
    """Image files and their labels, in the order of the samples."""

    files: list[Path]
    labels: list[int] | None
    classes: tuple[str, ...] = ()
    places: list[str] = field(default_factory=list)
    """Where each file was named, of a list."""
    skipped: int = 0
    """How many were named that are not there."""

    def name(self, index: int) -> str:
        """What messages call a sample."""
        return f"{self.files[index]} ({self.places[index]})" if self.places else str(self.files[index])


class ImageFiles(Dataset):
    """The images of a listing: `image` (channels, H, W) of uint8, and `label`, if there are labels.

    Without `size` the images have the one that all their headers tell, or if these differ, each its own. With `skip`,
    damaged ones are left for `read` to tell. Raises InputError with every header that cannot be read.
    """

    def __init__(
        self, found: Listing, *, size: tuple[int, int] | None, channels: int, interpolation: str, skip: bool = False
    ) -> None:
        self._found = found
        self._labels = None if found.labels is None else np.array(found.labels, np.int32)
        self._marks = _marks(found)
        self._channels = channels
        self._size = size or _common_size(found, skip=skip)
        self._decoder = Decoder(channels, size, interpolation)
        self.classes = {"label": found.classes} if found.classes else {}
        self.fields = {"image": FieldType((channels, *(self._size or (None, None))), "uint8")}
        if found.labels is not None:
            self.fields["label"] = FieldType((), "int32")
        self.skipped = found.skipped
        # Names, sizes and labels, not contents: reading every file would take longer than many a training step.
        root = Path(os.path.commonpath([file.parent for file in found.files]))
        listed = [
            f"{file.relative_to(root).as_posix()}:{mark}"
            for file, mark in zip(found.files, self._marks[:, 0], strict=True)
        ]
        numbers = b"" if self._labels is None else self._labels.astype("<i4").tobytes()
        self.digest = fingerprint(*found.classes, numbers, *listed)

    def __len__(self) -> int:
        return len(self._found.files)

    def read(self, indices: Array) -> dict[str, Samples]:
        """The images at `indices`, decoded. Raises DamagedSamples with every one that is damaged."""
        images: list[Array] = []
        damaged: dict[int, Sequence[Problem]] = {}
        for row, index in enumerate(indices.tolist()):
            try:
                images.append(self._read(index))
            except InputError as error:
                damaged[row] = error.problems
        if damaged:
            raise DamagedSamples(damaged)
        samples: dict[str, Samples] = {"image": self._batch(images)}
        if self._labels is not None:
            samples["label"] = self._labels[indices]
        return samples

    def _read(self, index: int) -> Array:
        file, name = self._found.files[index], self._found.name(index)
        image = self._decoder.read(file, name)
        if self._size is not None and image.shape[:2] != self._size:
            expected, got = (" × ".join(map(str, size)) for size in (self._size, image.shape[:2]))
            raise InputError(f"image {name} is not of the size that its header told", expected=expected, got=got)
        mark = file.stat()
        if (mark.st_size, mark.st_mtime_ns) != tuple(self._marks[index].tolist()):
            raise InputError(f"image {name} changed while it is read", hint="start again once nothing writes to it")
        return image

    def _batch(self, images: list[Array]) -> Samples:
        """Images (H, W, C) as (N, C, H, W) in memory of (N, H, W, C), or each as (C, H, W)."""
        if self._size is None:
            return [image.transpose(2, 0, 1) for image in images]
        batch = np.empty((len(images), *self._size, self._channels), np.uint8)
        for row, image in enumerate(images):
            batch[row] = image
        return batch.transpose(0, 3, 1, 2)

    def describe(self, index: int) -> str:
        """The path of a sample's file, and where it was named."""
        return self._found.name(index)


def _marks(found: Listing) -> Array:
    """Size and time of change of each file, (files, 2). Raises InputError with those that are not there."""
    marks, problems = np.zeros((len(found.files), 2), np.int64), []
    for index, file in enumerate(found.files):
        try:
            mark = file.stat()
        except OSError as error:
            problems.append(Problem(f"cannot read image {found.name(index)}", got=error.strerror or str(error)))
        else:
            marks[index] = mark.st_size, mark.st_mtime_ns
    if problems:
        raise InputError(problems)
    return marks


def _common_size(found: Listing, *, skip: bool) -> tuple[int, int] | None:
    """Height and width of all the files, from their headers; None if they differ."""
    sizes: set[tuple[int, int]] = set()
    problems: list[Problem] = []
    for index, file in enumerate(found.files):
        try:
            sizes.add(upright_size(file, found.name(index)))
        except InputError as error:
            problems += error.problems
    if problems and (not skip or not sizes):
        raise InputError(problems)
    return sizes.pop() if len(sizes) == 1 else None


def class_folders(root: Path, classes: Sequence[str] | None) -> Listing:
    """The images below `root`, one folder a class: by class, then by path. Raises InputError."""
    names = _class_names(existing(root, folder=True), classes)
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        found = _image_files(root / name)
        files += found
        labels += [label] * len(found)
    _check_not_empty(root, names, labels, declared=classes is not None)
    return Listing(files, labels, tuple(names))


def _class_names(root: Path, declared: Sequence[str] | None) -> list[str]:
    try:
        found = sorted(item.name for item in root.iterdir() if item.is_dir() and not item.name.startswith("."))
    except OSError as error:
        raise InputError(f"cannot read folder {root}", got=error.strerror or str(error)) from None
    if declared is None:
        if not found:
            raise InputError(f"{root} holds no class folders", expected="one folder of images for each class")
        return found
    unknown = [
        Problem(
            f"folder `{name}` of {root} is not among the declared classes",
            expected=f"one of {listing(declared)}",
            hint=did_you_mean(name, declared),
        )
        for name in found
        if name not in declared
    ]
    if unknown:
        raise InputError(unknown)
    return list(declared)


def _image_files(folder: Path) -> list[Path]:
    """All image files below a class folder, sorted by path."""
    files: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=_unlisted):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [
            Path(parent, name) for name in names if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
        ]
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())


def _unlisted(error: OSError) -> None:
    # A class that is declared needs no folder; what is there must be readable.
    if not isinstance(error, FileNotFoundError):
        raise InputError(f"cannot read folder {error.filename}", got=error.strerror or str(error))


def _check_not_empty(root: Path, names: Sequence[str], labels: Sequence[int], *, declared: bool) -> None:
    """A class folder without an image is most likely a mistake, unless the class was declared."""
    present = set(labels)
    empty = [name for label, name in enumerate(names) if label not in present]
    if present and (declared or not empty):
        return
    raise InputError(
        [
            Problem(
                f"class folder {root / name} holds no image",
                expected=f"files that end in {listing(sorted(SUFFIXES))}",
                hint="declare `classes` if a class may be without images" if present else None,
            )
            for name in empty
        ]
    )
