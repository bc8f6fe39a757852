"""Images with boxes as samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from netspec.data.base import Array, FieldType, Samples
from netspec.data.file_kinds import IMAGES
from netspec.data.files import fingerprint
from netspec.data.imaging.annotations import BoxAnnotation
from netspec.data.imaging.arrays import PillowImage
from netspec.data.readers.boxes.annotated import (
    CATEGORY_IDS,
    AnnotationSet,
    BoxArrays,
    Findings,
    box_arrays,
    class_names,
)
from netspec.data.readers.file_samples import Listing
from netspec.data.readers.images import ImageFiles
from netspec.data.readers.list_labels import CLASSES
from netspec.errors import InputError, counted

Batch = TypeVar("Batch")


class BoxedImages(ImageFiles):
    """Images with boxes: `image` (channels, H, W), `boxes` (max_boxes, 4), `labels` and `crowd` (max_boxes)."""

    def __init__(
        self, listing: Listing, arrays: BoxArrays, category_ids: Mapping[str, int], *, size: tuple[int, int] | None,
        channels: int, interpolation: str, skip: bool,
    ) -> None:  # fmt: skip
        super().__init__(listing, size=size, channels=channels, interpolation=interpolation, skip=skip)
        self._arrays = {"boxes": arrays.boxes, "labels": arrays.labels, "crowd": arrays.crowd}
        self.fields = {
            **self.fields,
            **{name: FieldType(array.shape[1:], str(array.dtype)) for name, array in self._arrays.items()},
        }
        self.classes = {"labels": listing.classes}
        self.annotations = {"boxes": BoxAnnotation("image", {"labels": -1, "crowd": 0})}
        ids = [category_ids.get(name, 0) for name in listing.classes] if category_ids else []
        self.learned = {CLASSES: list(listing.classes), **({CATEGORY_IDS: ids} if ids else {})}
        self.digest = fingerprint(self.digest, *(array.tobytes() for array in self._arrays.values()))

    def read_field(self, name: str, indices: Array) -> Samples:
        """Return one field of the samples at `indices`; of boxes, without their images."""
        return self._arrays[name][indices] if name in self._arrays else super().read_field(name, indices)

    def samples_at(self, indices: Array, batch_of: Callable[[list[PillowImage]], Batch]) -> dict[str, Batch | Array]:
        """Return the samples with files combined by `batch_of`."""
        samples = super().samples_at(indices, batch_of)
        return {**samples, **{name: array[indices] for name, array in self._arrays.items()}}


def boxed_images(
    annotations: AnnotationSet, findings: Findings, declared: Sequence[str] | None, trained: Sequence[str] | None,
    max_boxes: int, *, skip: bool,
) -> tuple[Listing, BoxArrays]:  # fmt: skip
    """Return the images and their boxes.

    Raises `InputError` with all boxes and images that cannot be used; with `skip`, these images are left out.
    """
    classes = class_names(annotations, declared, trained)
    arrays = box_arrays(annotations, classes, max_boxes, findings)
    findings.refuse(skip=skip)
    intact = [index for index in range(len(annotations.images)) if index not in findings.images]
    images = [annotations.images[index] for index in intact]
    if not images:
        raise InputError(
            "the annotations have no image", expected="annotations of one or more images",
            got=f"{counted(len(findings.images), 'image')} with problems, the first: "
            f"{next(iter(findings.images.values()))}" if findings.images else "none",
        )  # fmt: skip
    listing = Listing(
        IMAGES, [image.file for image in images], None, classes, [image.location for image in images],
        list(findings.images.values()),
    )  # fmt: skip
    rows = np.array(intact)
    return listing, BoxArrays(arrays.boxes[rows], arrays.labels[rows], arrays.crowd[rows])
