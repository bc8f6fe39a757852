"""Images with masks, which hold the class of every pixel."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from netspec.data.base import Array, DamagedSamples, Dataset, Raw, Samples
from netspec.data.files import fingerprint
from netspec.data.imaging.annotations import MaskAnnotation
from netspec.data.readers.decode import read_mask
from netspec.data.readers.file_samples import ListedFiles, Listing
from netspec.data.readers.images import ImageFiles
from netspec.data.readers.mask_pairs import MAX_LISTED
from netspec.errors import InputError, Problem, counted, listing

_PEEKED = 32
"""Number of masks that are read to find out whether their values are black and white instead of class indices."""
_BLACK_AND_WHITE = {0, 255}


@dataclass(frozen=True)
class MaskValues:
    """The meaning of the pixels of masks."""

    ignored: int
    """Pixels of this value belong to no class."""
    values: Sequence[int] | None = None
    """Pixel values of the classes, in order; by default 0, 1, 2, …"""
    classes: tuple[str, ...] = ()
    """Names of the classes; empty if they are unknown."""

    def table(self) -> Array | None:
        """Return the class of each pixel value, (256,) of int16, -1 for none; None if the classes are unknown."""
        values = self.values if self.values is not None else range(len(self.classes))
        if not values:
            return None
        table = np.full(256, -1, np.int16)
        table[self.ignored] = self.ignored
        table[list(values)] = np.arange(len(values))
        return table

    def __str__(self) -> str:
        values = ", ".join(map(str, self.values)) if self.values is not None else f"0 to {len(self.classes) - 1}"
        return f"{values}, the classes, or {self.ignored}, to ignore"


class MaskFiles(ListedFiles[Any]):
    """The masks of a listing: `mask` (H, W) of uint8, class indices or the ignored value."""

    def __init__(
        self, files: Listing, shape: tuple[int | None, ...], size: tuple[int, int] | None, values: MaskValues,
        *, skip: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(files, "mask", shape, "uint8", skip=skip)
        self._size, self._values, self._table = size, values, values.table()
        self._ragged = None in shape

    def read_one(self, file: Path, name: str) -> Array:
        """Return the mask, (H, W). Raises `InputError` if it has pixels of no class."""
        pixels = read_mask(file, name)
        mask = pixels if self._table is None else self._table[pixels]
        if self._table is not None and mask.min(initial=0) < 0:
            odd, counts = np.unique(pixels[mask < 0], return_counts=True)
            counted_values = [
                f"{counted(number, 'pixel')} of {value}" for value, number in zip(odd, counts, strict=True)
            ]
            raise InputError(
                f"mask {name} has pixels of no class", expected=str(self._values), got=", ".join(counted_values[:5])
            )
        mask = mask.astype(np.uint8, copy=False)
        if self._size is None or mask.shape == self._size:
            return mask
        return np.asarray(Image.fromarray(mask).resize(self._size[::-1], Image.Resampling.NEAREST))

    def batch_of(self, values: list[Array]) -> Samples:
        """Return masks as (N, H, W), or a list of (H, W)."""
        return values if self._ragged else np.stack(values)


class SegmentationFiles(Dataset):
    """Images and their masks: the fields of both."""

    def __init__(self, images: ImageFiles, masks: MaskFiles, values: MaskValues) -> None:
        self._images, self._masks = images, masks
        self.fields = {**images.fields, **masks.fields}
        self.classes = {"mask": values.classes} if values.classes else {}
        self.annotations = {"mask": MaskAnnotation("image", values.ignored)}
        self.digest = fingerprint(images.digest, masks.digest, str(values.values), *values.classes)
        self.skipped = images.skipped + masks.skipped
        self.damaged = [*images.damaged, *masks.damaged]
        self.ragged_examples = {name: sizes for sizes in images.ragged_examples.values() for name in self.fields}

    def __len__(self) -> int:
        return len(self._images)

    def read(self, indices: Array) -> dict[str, Samples]:
        """Read images and masks. Raises `DamagedSamples` with those that cannot be used."""
        return self._read(indices, ())

    def read_raw(self, indices: Array, pillow_fields: Collection[str]) -> dict[str, Raw]:
        """Read like `read`, but keep Pillow's images for the fields in `pillow_fields`."""
        return self._read(indices, pillow_fields)

    def _read(self, indices: Array, pillow_fields: Collection[str]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        damaged: dict[int, list[Problem]] = {}
        for read in (lambda: self._images.read_raw(indices, pillow_fields), lambda: self._masks.read(indices)):
            try:
                fields |= read()
            except DamagedSamples as error:
                for row, problems in error.rows.items():
                    damaged.setdefault(row, []).extend(problems)
        if damaged:
            raise DamagedSamples(_shortened(damaged, len(indices)))
        return fields

    def read_field(self, name: str, indices: Array) -> Samples:
        """Return the images or the masks alone."""
        return (self._masks if name == "mask" else self._images).read(indices)[name]

    def reads_alone(self, name: str) -> bool:
        """Return whether these are the masks, which are files of their own."""
        return name == "mask"

    def describe(self, index: int) -> str:
        """Return the path of a sample's image."""
        return self._images.describe(index)

    def identify(self, index: int) -> tuple[str, str | int]:
        """Return the path of a sample's image."""
        return self._images.identify(index)


def _shortened(damaged: dict[int, list[Problem]], samples: int) -> dict[int, list[Problem]]:
    """Keep the problems of the first samples, and count the others."""
    rows = sorted(damaged)
    shortened = {row: damaged[row] if number < MAX_LISTED else [] for number, row in enumerate(rows)}
    if len(rows) > MAX_LISTED:
        more = counted(len(rows) - MAX_LISTED, "more sample")
        shortened[rows[-1]] = [Problem(f"{more} of this batch of {samples:,} cannot be used")]
    return shortened


def check_values(masks: Listing, values: MaskValues) -> None:
    """Raise `InputError` if masks are black and white, and white would be ignored. Reads some of the masks."""
    if values.values is not None or values.ignored not in _BLACK_AND_WHITE:
        return
    stored: set[int] = set()
    for index in np.linspace(0, len(masks.files) - 1, min(_PEEKED, len(masks.files))).astype(int).tolist():
        try:
            stored |= set(np.unique(read_mask(masks.files[index], masks.name(index))).tolist())
        except InputError:
            continue  # reported when the sample is read
        if not stored <= _BLACK_AND_WHITE:
            return
    if values.ignored in stored:
        raise InputError(
            f"masks in {masks.files[0].parent} hold only the values {listing(list(map(str, sorted(stored))))}",
            expected=f"class indices 0, 1, 2, …; {values.ignored} is for pixels to ignore",
            hint="if black and white are the two classes, set `mask_values: [0, 255]`",
        )
