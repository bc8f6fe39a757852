"""Images and their boxes as annotation files state them, and the checks that all formats share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np

from netspec.data.base import Array
from netspec.data.readers.decode import upright_size
from netspec.errors import InputError, Problem, and_more, did_you_mean, listing

CATEGORY_IDS = "category_ids"
"""Key of the ids of the classes that the training split learns from COCO's annotations."""
EXAMPLES = 10
"""Number of locations that a message names; the others are counted."""
TOLERANCE = 1.0
"""Number of pixels by which a box may extend beyond its image, since programs round differently. It is clipped."""
RELATIVE_TOLERANCE = 1e-3
"""The same for coordinates that are fractions of the image."""


class AnnotatedBox(NamedTuple):
    """A box as an annotation file states it."""

    name: str
    """Name of the class."""
    corners: tuple[float, float, float, float]
    """Left, top, right and bottom edge."""
    location: str
    """Location in the annotation file."""
    crowd: bool = False
    """Whether it encloses several objects, or one too difficult to count."""


@dataclass
class AnnotatedImage:
    """An image and its boxes."""

    file: Path
    location: str
    """Location of the image in the annotation file."""
    boxes: list[AnnotatedBox] = field(default_factory=list)


@dataclass
class AnnotationSet:
    """All images of an annotation file or folder."""

    images: list[AnnotatedImage]
    classes: tuple[str, ...] | None = None
    """The classes that the files declare, in their order; None if they only occur with boxes."""
    category_ids: Mapping[str, int] = field(default_factory=dict)
    """Ids of the classes in the files, by name, if they have any."""
    relative: bool = False
    """Whether coordinates are fractions of the image's size; otherwise pixels."""


class Findings:
    """Problems of annotations, grouped by kind, with the locations of the first few."""

    def __init__(self) -> None:
        self._by_kind: dict[tuple[str, str, str | None, str], list[str]] = {}
        self._of_files = False
        self.images: dict[int, str] = {}
        """The first problem of each image, by its index."""

    def add(
        self, kind: str, expected: str, example: str, *, image: int | None = None, hint: str | None = None,
        field: str = "",
    ) -> None:  # fmt: skip
        """Add a problem of a kind; `example` is its location and the invalid value.

        `field` is the field of the source to blame, by default the one that names the annotations.
        """
        self._by_kind.setdefault((kind, expected, hint, field), []).append(example)
        if image is None:
            self._of_files = True
        else:
            self.images.setdefault(image, f"{kind}: {example}")

    def problems(self) -> list[Problem]:
        """Return one problem for each kind."""
        return [
            Problem(
                kind if len(examples) == 1 else f"{kind} ({len(examples):,} times)",
                path=field,
                expected=expected,
                got=examples[0],
                hint=hint,
                notes=tuple(f"also {example}" for example in examples[1:EXAMPLES])
                + ((f"…{and_more(len(examples) - EXAMPLES)}",) if len(examples) > EXAMPLES else ()),
            )
            for (kind, expected, hint, field), examples in self._by_kind.items()
        ]

    def refuse(self, *, skip: bool) -> None:
        """Raise `InputError` if there are problems; with `skip`, only if one of them is not about a single image."""
        if self._by_kind and (self._of_files or not skip):
            raise InputError(self.problems())


@dataclass
class BoxArrays:
    """The boxes of all images, padded with boxes without area."""

    boxes: Array
    """(images, max_boxes, 4) of float32: left, top, right, bottom, as fractions of the image's width and height."""
    labels: Array
    """(images, max_boxes) of int32: class numbers; -1 for padding."""
    crowd: Array
    """(images, max_boxes) of int32: 1 for boxes that enclose several objects."""


def class_names(
    annotations: AnnotationSet, declared: Sequence[str] | None, trained: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the classes by number: as declared in the spec, of the training split, or as the files list them."""
    if declared is not None or trained:
        return tuple(declared or trained or ())
    if annotations.classes is not None:
        return annotations.classes
    return tuple(sorted({box.name for image in annotations.images for box in image.boxes}))


def box_arrays(annotations: AnnotationSet, classes: Sequence[str], max_boxes: int, findings: Findings) -> BoxArrays:
    """Return the boxes of all images as arrays. Adds the boxes and images that cannot be used to `findings`."""
    count = len(annotations.images)
    arrays = BoxArrays(
        np.zeros((count, max_boxes, 4), np.float32),
        np.full((count, max_boxes), -1, np.int32),
        np.zeros((count, max_boxes), np.int32),
    )
    numbers = {name: number for number, name in enumerate(classes)}
    for index, image in enumerate(annotations.images):
        size = _size(image, index, annotations, findings)
        if size is None:
            continue
        if len(image.boxes) > max_boxes:
            findings.add(
                "an image has more than `max_boxes` boxes", f"at most {max_boxes}",
                f"{len(image.boxes)} boxes in {image.location}", image=index, hint="raise `max_boxes`",
                field="max_boxes",
            )  # fmt: skip
            continue
        for row, box in enumerate(image.boxes):
            corners = _checked(box, size, index, numbers, annotations, findings)
            if corners is not None:
                arrays.boxes[index, row] = corners
                arrays.labels[index, row] = numbers[box.name]
                arrays.crowd[index, row] = box.crowd
    return arrays


def _size(image: AnnotatedImage, index: int, annotations: AnnotationSet, findings: Findings) -> tuple[int, int] | None:
    """Return width and height of an image in the unit of its boxes; None if it cannot be read."""
    if not image.file.is_file():
        example = f"{image.file}, of {image.location}"
        findings.add("an image is missing", "all images that annotations name", example, image=index, field="path")
        return None
    if annotations.relative:
        return 1, 1
    try:
        height, width = upright_size(image.file, str(image.file))
    except InputError as error:
        damage = error.problems[0]
        expected = damage.expected or "an intact image"
        findings.add("an image cannot be read", expected, damage.brief, image=index, field="path")
        return None
    return width, height


def _checked(
    box: AnnotatedBox, size: tuple[int, int], index: int, numbers: Mapping[str, int], annotations: AnnotationSet,
    findings: Findings,
) -> tuple[float, float, float, float] | None:  # fmt: skip
    """Return the corners as fractions of the image, clipped to it. For an invalid box, add a finding; return None."""
    width, height = size
    left, top, right, bottom = box.corners
    unit = "fractions of the image" if annotations.relative else f"an image of {width} × {height} pixels"
    text = f"[{left:g}, {top:g}, {right:g}, {bottom:g}]"
    if box.name not in numbers:
        findings.add(
            "a box has an unknown class", f"one of {listing(list(numbers), EXAMPLES)}",
            f"`{box.name}` at {box.location}", image=index, hint=did_you_mean(box.name, numbers),
        )  # fmt: skip
        return None
    if not all(map(isfinite, box.corners)) or right <= left or bottom <= top:
        findings.add("a box has no area", "left < right and top < bottom", f"{text} at {box.location}", image=index)
        return None
    slack = RELATIVE_TOLERANCE if annotations.relative else TOLERANCE
    if left < -slack or top < -slack or right > width + slack or bottom > height + slack:
        expected = "0 to 1" if annotations.relative else "left and top ≥ 0, right ≤ width, bottom ≤ height"
        inside = "" if annotations.relative else f" in {unit}"
        findings.add("a box extends beyond its image", expected, f"{text}{inside} at {box.location}", image=index)
        return None
    x1, y1, x2, y2 = max(left, 0) / width, max(top, 0) / height, min(right / width, 1), min(bottom / height, 1)
    if x2 <= x1 or y2 <= y1:
        findings.add("a box has no area", "an area inside the image", f"{text} at {box.location}", image=index)
        return None
    return x1, y1, x2, y2


def checked_text(value: object) -> str | None:
    """Return a non-empty text, or None for other values."""
    return value if isinstance(value, str) and value else None


def checked_box(values: object) -> tuple[float, ...] | None:
    """Return the four numbers of a box, or None for other values."""
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != 4:
        return None
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in values):
        return None
    return tuple(float(value) for value in values)
