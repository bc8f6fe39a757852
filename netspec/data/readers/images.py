"""Image files as samples, decoded batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from netspec.data.base import Array, Raw, Samples
from netspec.data.file_kinds import MASKS
from netspec.data.imaging.arrays import PillowImage, pixels
from netspec.data.readers.decode import ImageDecoder, damage_of, upright_size
from netspec.data.readers.file_samples import ListedFiles, Listing
from netspec.errors import InputError, Problem, counted

MAX_DAMAGED = 10
"""Number of damaged images that are listed; the others are counted."""
CACHED_BYTES = 2**28
"""Bytes of resized images that a dataset keeps in memory: decoding a photo takes longer than a step of a small net."""

OVERHEAD = 1024
"""Bytes of an image in memory in addition to its pixels."""


def check_images(*listings: Listing, skip: bool) -> list[Listing]:
    """Look for damage that headers and ends of image files show. Raises `InputError` with the damaged images.

    With `skip`, return the listings with messages about them in `left_out` instead. Missing files are not reported.
    """
    checked, problems = [], []
    for listing in listings:
        named = [(file, listing.name(index)) for index, file in enumerate(listing.files) if file.is_file()]
        is_mask = listing.kind is MASKS
        damage = [problem for file, name in named for problem in damage_of(file, name, is_mask=is_mask)]
        checked.append(replace(listing, left_out=[*listing.left_out, *(problem.brief for problem in damage)]))
        problems += damage
    if problems and not skip:
        more = len(problems) - MAX_DAMAGED
        others = [Problem(f"{counted(more, 'more image')} cannot be read")] if more > 0 else []
        in_order = sorted(problems, key=lambda problem: problem.message)
        raise InputError([*in_order[:MAX_DAMAGED], *others])
    return checked


class ImageFiles(ListedFiles[PillowImage]):
    """The images of a listing: `image` (channels, H, W) of uint8, and `label`, if there are labels.

    Images are resized to `size`; without it, they keep their sizes, which may differ. Resized images are cached in
    memory, up to `CACHED_BYTES`. With `skip`, `read` reports damaged images. Raises `InputError` with every header that
    cannot be read.
    """

    def __init__(
        self, listing: Listing, *, size: tuple[int, int] | None, channels: int, interpolation: str, skip: bool = False
    ) -> None:
        firsts = {size: 0} if size else _sizes(listing, skip=skip)
        self._size = next(iter(firsts)) if len(firsts) == 1 else None
        super().__init__(listing, "image", (channels, *(self._size or (None, None))), "uint8", skip=skip)
        if self._size is None:
            examples = [f"{listing.name(index)} is {high} × {wide}" for (high, wide), index in firsts.items()]
            self.ragged_examples = {"image": f"{examples[0]}, {examples[-1]}"}
        self._channels = channels
        self._decoder = ImageDecoder(channels, size, interpolation)
        pixel = 4 if channels == 3 else channels  # as Pillow stores it
        self._most_cached = CACHED_BYTES // (size[0] * size[1] * pixel + OVERHEAD) if size else 0
        self._cached: dict[Path, PillowImage] = {}

    def read_raw(self, indices: Array, pillow_fields: Collection[str]) -> dict[str, Raw]:
        """Read like `read`, but keep Pillow's images for the fields in `pillow_fields`."""
        return self.samples_at(indices, list if self.field in pillow_fields else self.batch_of)

    def read_one(self, file: Path, name: str) -> PillowImage:
        """Decode an image, (H, W, C)."""
        if (cached := self._cached.get(file)) is not None:
            return cached
        image = self._decoder.read_pillow(file, name)
        if self._size is not None and image.shape[:2] != self._size:
            expected, got = (" × ".join(map(str, size)) for size in (self._size, image.shape[:2]))
            raise InputError(f"image {name} does not have the size that its header states", expected=expected, got=got)
        if len(self._cached) < self._most_cached:
            self._cached[file] = image
        return image

    def batch_of(self, values: list[PillowImage]) -> Samples:
        """Return images (H, W, C) as a view (N, C, H, W) of an array (N, H, W, C), or as a list of (C, H, W)."""
        if self._size is None:
            return [pixels(image).transpose(2, 0, 1) for image in values]
        batch = np.empty((len(values), *self._size, self._channels), np.uint8)
        for row, image in enumerate(values):
            batch[row] = pixels(image)
        return batch.transpose(0, 3, 1, 2)


def _sizes(listing: Listing, *, skip: bool) -> dict[tuple[int, int], int]:
    """Return the index of the first file of each height and width, from the headers; the most frequent size first."""
    sizes: Counter[tuple[int, int]] = Counter()
    firsts: dict[tuple[int, int], int] = {}
    problems: list[Problem] = []
    for index, file in enumerate(listing.files):
        try:
            size = upright_size(file, listing.name(index))
        except InputError as error:
            problems += error.problems
        else:
            sizes[size] += 1
            firsts.setdefault(size, index)
    if problems and (not skip or not sizes):
        raise InputError(problems)
    return {size: firsts[size] for size, _ in sizes.most_common()}
