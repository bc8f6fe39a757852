"""Annotations: fields of a sample that belong to positions in its image, and move with it. Does not import NumPy.

A source names them in `Dataset.annotations`. After each transform of the image, the pipeline moves them by the same
random numbers: masks by `ImageTransform.for_masks`, boxes by `ImageTransform.move_points`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netspec.data.base import Array, FieldType, Raw, SampleKeys, Samples, Transform
from netspec.data.imaging.base import Draw, ImageShape, ImageTransform
from netspec.errors import InputError, listing

MIN_VISIBLE = 0.2
"""Share of a moved box that must remain in the image, so that the box is kept."""


@dataclass(frozen=True)
class Annotation:
    """Base of annotations: the image that the field follows."""

    image: str
    """The field of the image, (C, H, W)."""

    def dependents(self, name: str) -> tuple[str, ...]:
        """Return the fields that `moved` changes if the annotation is of the field `name`."""
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
        raise NotImplementedError(f"{type(self).__name__} does not implement `moved`")


@dataclass(frozen=True)
class MaskAnnotation(Annotation):
    """A class number for each pixel: [H, W] of integers, of the size of the image.

    Class numbers are taken from the nearest pixel and never mixed.
    """

    fill: int
    """Class number of pixels from outside the image, if the transform fills them with a constant."""

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
    """Boxes around objects: [M, 4] of floats, left, top, right and bottom in fractions of the image's width and height.

    A moved box is the smallest one around the moved corners, clipped to the image. Boxes of which less than
    `MIN_VISIBLE` is left are dropped, and boxes without area follow the others as padding.
    """

    padding: Mapping[str, int]
    """Padding values of the other fields with an element for each box, [M], such as class numbers."""

    def dependents(self, name: str) -> tuple[str, ...]:
        """Return the boxes and the fields with an element for each."""
        return (name, *self.padding)

    def moved(
        self,
        name: str,
        fields: Mapping[str, Samples],
        transform: ImageTransform,
        sizes: Sequence[tuple[int, int]],
        draws: Sequence[Draw],
    ) -> dict[str, Samples]:
        """Return the remaining boxes of each sample, (N, M, 4), and their elements of the other fields, (N, M)."""
        import numpy as np

        boxes = np.asarray(fields[name])
        moved = {name: np.zeros_like(boxes)}
        moved |= {field: np.full_like(fields[field], value) for field, value in self.padding.items()}
        for row, (size, draw) in enumerate(zip(sizes, draws, strict=True)):
            used = np.flatnonzero(_areas(boxes[row]) > 0)
            height, width = transform.result(ImageShape(1, *size))[1:]
            assert height is not None
            assert width is not None
            around = _moved_boxes(boxes[row, used] * _corner_scale(*size), transform, size, draw)
            clipped = np.clip(around, 0, _corner_scale(height, width))
            visible = _areas(clipped) > MIN_VISIBLE * _areas(around)  # false for NaN
            count = int(visible.sum())
            moved[name][row, :count] = clipped[visible] / _corner_scale(height, width)
            for field in self.padding:
                moved[field][row, :count] = np.asarray(fields[field])[row, used[visible]]
        return dict(moved)


class ImageAnnotations:
    """The annotations of a dataset, which follow each transform of their image."""

    def __init__(self, annotations: Mapping[str, Annotation]) -> None:
        self._annotations = annotations
        self._detached: dict[str, str] = {}
        """Type of the transform that changed an annotation directly, by field; the annotation can no longer follow."""

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

        sizes = [(image.shape[0], image.shape[1]) for image in images_of(before)]
        draws = transform.drawn(keys)
        moved: dict[str, Samples] = {}
        for name, annotation in annotations.items():
            moved |= annotation.moved(name, fields, transform, sizes, draws)
        return moved


def _moved_boxes(boxes: Array, transform: ImageTransform, size: tuple[int, int], draw: Draw) -> Array:
    """Return the smallest boxes around the moved corners of `boxes`, (K, 4) of float64 in pixels."""
    import numpy as np

    corners = np.asarray(boxes, np.float64)[:, [0, 1, 2, 1, 0, 3, 2, 3]].reshape(-1, 2)
    moved = transform.move_points(corners, size, draw).reshape(-1, 4, 2)
    return np.concatenate([moved.min(axis=1), moved.max(axis=1)], axis=1)


def _areas(boxes: Array) -> Array:
    """Return the areas of boxes, (K,)."""
    areas: Array = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return areas


def _corner_scale(height: int, width: int) -> Array:
    """Return the factors from fractions of an image to pixels, for the edges of a box."""
    import numpy as np

    return np.array([width, height, width, height], np.float64)
