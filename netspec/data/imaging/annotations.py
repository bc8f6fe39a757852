"""Annotations: fields of a sample that belong to positions in its image, and move with it. No NumPy at import.

A source names them in `Dataset.annotations`. After each transform of the image, the pipeline moves them by the same
random numbers: masks by `ImageTransform.for_masks`, boxes by `ImageTransform.move_points`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from netspec.data.base import FieldType, SampleKeys, Transform
from netspec.data.imaging.base import Draw, ImageShape, ImageTransform
from netspec.errors import InputError, listing

if TYPE_CHECKING:
    from netspec.data.base import Array, Raw, Samples


@dataclass(frozen=True)
class Annotation:
    """Base of annotations: the image that the field follows."""

    image: str
    """The field of the image, (C, H, W)."""

    def dependents(self, name: str) -> tuple[str, ...]:
        """Return the fields that `moved` changes, for the annotation of the field `name`."""
        return (name,)

    def infer(self, field: FieldType, image: FieldType) -> FieldType:
        """Return the type of the field after a transform that made the image one of type `image`."""
        return field

    def moved(
        self,
        name: str,
        fields: Mapping[str, Samples],
        transform: ImageTransform,
        sizes: Sequence[tuple[int, int]],
        draws: Sequence[Draw],
    ) -> dict[str, Samples]:
        """Return the changed fields of a batch; `sizes` (H, W) are those of the images before the transform."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it moves")


@dataclass(frozen=True)
class MaskAnnotation(Annotation):
    """A class number for each pixel: [H, W] of integers, of the size of the image.

    Class numbers are taken from the nearest pixel and never mixed.
    """

    fill: int
    """The value beyond the edges of an image that is continued by a constant."""

    def infer(self, field: FieldType, image: FieldType) -> FieldType:
        """Return the type of a mask of the size of the image."""
        return FieldType(image.shape[1:], field.dtype)

    def moved(
        self,
        name: str,
        fields: Mapping[str, Samples],
        transform: ImageTransform,
        sizes: Sequence[tuple[int, int]],
        draws: Sequence[Draw],
    ) -> dict[str, Samples]:
        """Return the masks: (N, H, W), or a list of (H, W) if they differ in size."""
        import numpy as np

        masks, nearest = fields[name], transform.for_masks(self.fill)
        moved = [nearest.change(mask[:, :, None], draw)[:, :, 0] for mask, draw in zip(masks, draws, strict=True)]
        differ = isinstance(masks, list) and None in transform.result(ImageShape(1, None, None))
        return {name: moved if differ else np.stack(moved)}


@dataclass(frozen=True)
class BoxAnnotation(Annotation):
    """Boxes around objects: [?, 4] of floats, x_min, y_min, x_max, y_max in pixels from the upper left edge.

    A moved box is the smallest one around the moved corners, clipped to the image. Boxes that are empty then are
    dropped.
    """

    rows: tuple[str, ...] = ()
    """Other fields with a row for each box, [?, …], such as class numbers: the rows of dropped boxes are dropped."""

    def dependents(self, name: str) -> tuple[str, ...]:
        """Return the boxes and the fields with a row for each."""
        return (name, *self.rows)

    def moved(
        self,
        name: str,
        fields: Mapping[str, Samples],
        transform: ImageTransform,
        sizes: Sequence[tuple[int, int]],
        draws: Sequence[Draw],
    ) -> dict[str, Samples]:
        """Return the remaining boxes of each sample, a list of (K, 4), and their rows of the other fields."""
        result: dict[str, Any] = {field: [] for field in self.dependents(name)}
        for row, (boxes, size, draw) in enumerate(zip(fields[name], sizes, draws, strict=True)):
            height, width = transform.result(ImageShape(1, *size))[1:]
            assert height is not None
            assert width is not None
            clipped = _clipped(_moved_boxes(boxes, transform, size, draw), height, width)
            kept = (clipped[:, 2] > clipped[:, 0]) & (clipped[:, 3] > clipped[:, 1])  # false for NaN
            result[name].append(clipped[kept].astype(boxes.dtype))
            for field in self.rows:
                result[field].append(fields[field][row][kept])
        return result


class Annotations:
    """The annotations of a dataset, which follow each transform of their image."""

    def __init__(self, annotations: Mapping[str, Annotation]) -> None:
        self._annotations = annotations
        self._detached: dict[str, str] = {}
        """By field that a transform of its own has changed, so that it can no longer follow: that transform's type."""

    def of(self, image: str) -> dict[str, Annotation]:
        """Return the annotations of an image, by field."""
        return {name: annotation for name, annotation in self._annotations.items() if annotation.image == image}

    def check(self, transform: Transform, name: str) -> None:
        """Raise `InputError` if a transform of the field `name` would separate an image from its annotations."""
        kind, followers = type(transform).__name__, self.of(name)
        if transform.mixes and self._annotations:
            raise InputError(
                f"{kind} mixes samples, and {listing(list(self._annotations))} cannot be mixed",
                expected="transforms that change each image by itself",
            )
        if name in self._annotations and isinstance(transform, ImageTransform):
            image = self._annotations[name].image
            raise InputError(
                f"`{name}` follows the transforms of `{image}`",
                location=transform.where("apply_to"),
                path="apply_to",
                expected=f"`apply_to: {image}`: {kind} then moves `{name}` too",
            )
        if followers and transform.positions is None:
            raise InputError(
                f"{listing(list(followers))} cannot follow {kind}, which does not say where it moves positions",
                expected="transforms that keep positions, or move them in a known way",
            )
        if any(name in annotation.dependents(field) for field, annotation in self._annotations.items()):
            self._detached[name] = kind
        if transform.positions == "moved":
            self._check_attached(kind, followers)

    def _check_attached(self, kind: str, followers: Mapping[str, Annotation]) -> None:
        fields = [field for name, annotation in followers.items() for field in annotation.dependents(name)]
        for field in fields:
            if field in self._detached:
                raise InputError(
                    f"{kind} moves `{field}`, which {self._detached[field]} has changed already",
                    expected=f"{kind} before {self._detached[field]}",
                )

    def inferred(self, transform: Transform, image: str, fields: Mapping[str, FieldType]) -> dict[str, FieldType]:
        """Return the types of the annotations of `image` after a transform, which `fields` has for the image."""
        if transform.positions != "moved":
            return {}
        return {name: annotation.infer(fields[name], fields[image]) for name, annotation in self.of(image).items()}

    def moved(
        self, transform: Transform, image: str, before: Raw, fields: Mapping[str, Samples], keys: SampleKeys
    ) -> dict[str, Samples]:
        """Return the annotations of a batch of images, `before` the transform, after it."""
        annotations = self.of(image)
        if not annotations or not isinstance(transform, ImageTransform) or transform.positions != "moved":
            return {}
        from netspec.data.imaging.arrays import images_of

        sizes = [(picture.shape[0], picture.shape[1]) for picture in images_of(before)]
        draws = transform.drawn(keys)
        moved: dict[str, Samples] = {}
        for name, annotation in annotations.items():
            moved |= annotation.moved(name, fields, transform, sizes, draws)
        return moved


def _moved_boxes(boxes: Array, transform: ImageTransform, size: tuple[int, int], draw: Draw) -> Array:
    """Return the smallest boxes around the moved corners of `boxes`, (K, 4) of float64."""
    import numpy as np

    corners = np.asarray(boxes, np.float64)[:, [0, 1, 2, 1, 0, 3, 2, 3]].reshape(-1, 2)
    moved = transform.move_points(corners, size, draw).reshape(-1, 4, 2)
    return np.concatenate([moved.min(axis=1), moved.max(axis=1)], axis=1)


def _clipped(boxes: Array, height: int, width: int) -> Array:
    """Return the parts of boxes (K, 4) within an image of this size."""
    import numpy as np

    clipped: Array = np.clip(boxes, 0, [width, height, width, height])
    return clipped
