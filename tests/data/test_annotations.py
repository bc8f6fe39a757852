"""Masks and boxes follow the transforms of their image; which transforms are refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import pytest

import netspec.data  # noqa: F401  # the transforms are found through it
from netspec.data.base import Dataset, FieldType, SampleKeys, Transform
from netspec.data.imaging.annotations import MIN_VISIBLE, BoxAnnotation, ImageAnnotations, MaskAnnotation
from netspec.data.imaging.base import ColorTransform, ImageTransform
from netspec.data.pipeline import TransformPipeline
from netspec.errors import InputError
from netspec.schema.specs.data import SOURCES, TRANSFORMS

Array: TypeAlias = np.ndarray

TYPES = [cls for cls in TRANSFORMS if issubclass(cls, ImageTransform)]
MOVING = [
    pytest.param(cls, sample, id=f"{cls.__name__}-{number}")
    for cls in TYPES
    if cls.positions == "moved"
    for number, sample in enumerate(cls.samples)
]
IGNORED = 255
HEIGHT, WIDTH, SAMPLES = 40, 48, 40
OBJECT = (18, 14, 30, 28)
"""A bright rectangle: left, top, and the first column and row behind it."""
TURNING = ("RandomRotation", "RandomShear", "RandomPerspective")
AUGMENTATION: tuple[dict[str, Any], ...] = (
    {"type": "RandomRotation", "factor": 0.1, "fill_mode": "constant"},
    {"type": "RandomResizedCrop", "height": 24, "width": 32, "scale": [0.3, 1]},
    {"type": "RandomFlip"},
    {"type": "RandomBrightness", "factor": 0.1},
    {"type": "Rescaling", "scale": 0.00390625},
)


def build(cls: type[Any], sample: dict[str, Any]) -> ImageTransform:
    extra = {"value_range": [0, 255]} if issubclass(cls, ColorTransform) else {}
    transform = TRANSFORMS.parse({"type": cls.__name__, **sample, **extra})
    assert isinstance(transform, ImageTransform)
    return transform


def image_and_mask() -> tuple[Array, Array]:
    """A dark image (3, H, W) with a bright object, and its mask (H, W): 1 at the object."""
    left, top, right, bottom = OBJECT
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[top:bottom, left:right] = 1
    return np.broadcast_to(mask * 200, (3, HEIGHT, WIDTH)).copy(), mask


def moved_together(transform: ImageTransform) -> dict[str, Any]:
    image, mask = image_and_mask()
    keys = SampleKeys(3, 1, np.arange(SAMPLES), 0)
    images = np.stack([image] * SAMPLES)
    boxes = np.array([OBJECT, [0, 0, 0, 0], [0, 0, WIDTH, HEIGHT]]) / ([WIDTH, HEIGHT] * 2)
    fields: dict[str, Any] = {
        "mask": np.stack([mask] * SAMPLES),
        "boxes": np.stack([boxes.astype(np.float32)] * SAMPLES),
        "kind": np.array([[5, -1, 6]] * SAMPLES),
    }
    annotations = ImageAnnotations(
        {"mask": MaskAnnotation("image", IGNORED), "boxes": BoxAnnotation("image", {"kind": -1})}
    )
    result = {"image": transform.apply(images, keys)}
    return result | annotations.moved(transform, "image", images, fields, keys)


@pytest.mark.parametrize(("cls", "sample"), MOVING)
def test_mask_follows_the_object_in_the_moved_image(cls, sample):
    result = moved_together(build(cls, {**sample, "fill_value": 0} if "fill_value" in sample else sample))
    masks = result["mask"]
    assert masks.shape == (SAMPLES, *result["image"].shape[2:])
    assert set(np.unique(masks)) <= {0, 1, IGNORED}
    if cls.__name__ == "RandAugment":
        return  # its colors are inverted too: compared below
    bright = result["image"].mean(axis=1) > 100
    assert np.mean(bright == (masks == 1)) > 0.98


@pytest.mark.parametrize(("cls", "sample"), MOVING)
def test_moved_boxes_enclose_the_moved_mask(cls, sample):
    constant = {"fill_mode": "constant"} if "fill_mode" in cls.model_fields else {}
    result = moved_together(build(cls, {**sample, **constant}))
    masks, count, mask_area = result["mask"], 0, image_and_mask()[1].sum()
    for mask, boxes, kinds in zip(masks, result["boxes"], result["kind"], strict=True):
        assert boxes.dtype == np.float32
        assert not boxes[kinds == -1].any()
        boxes, kinds = boxes[kinds != -1] * (mask.shape[::-1] * 2), kinds[kinds != -1]
        assert (boxes[:, :2] >= 0).all()
        assert (boxes[:, 2:] <= mask.shape[::-1]).all()
        assert (boxes[:, 2:] > boxes[:, :2]).all()
        rows, columns = np.nonzero(mask == 1)
        if 5 not in kinds:  # dropped, since the transform has left hardly any of the object
            assert rows.size < MIN_VISIBLE * mask_area + max(np.shape(mask))
            continue
        if rows.size < 4:
            continue
        box = boxes[kinds.tolist().index(5)]
        around = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        cut = box.min() <= 0 or (box[2:] >= mask.shape[::-1]).any()
        if cls.__name__ == "RandAugment" or (cut and cls.__name__ in TURNING):
            # RandAugment mirrors beyond the edges; the box of a rotated object is larger than what is left of it.
            continue
        np.testing.assert_allclose(box, around, atol=1.6)  # a sharp corner may cover no pixel center
        count += 1
    assert count or cls.__name__ in ("RandAugment", "CenterCrop")


def test_every_image_transform_declares_its_effect_on_positions():
    silent = [cls.__name__ for cls in TYPES if cls.positions is None]
    assert silent == ["AugMix"]
    for cls in TYPES:
        if cls.positions == "kept":
            transform = build(cls, cls.samples[0])
            assert transform.infer(FieldType((3, 28, 30), "uint8")).shape[1:] == (28, 30)


def test_randaugment_moves_the_mask_by_the_transforms_that_it_draws():
    transform = build(TRANSFORMS["RandAugment"], {"num_ops": 3, "factor": 0.4})
    result, compared = moved_together(transform), 0
    for image, mask in zip(result["image"].mean(axis=1), result["mask"], strict=True):
        inside, outside = np.median(image[mask == 1]), np.median(image[mask == 0])
        if abs(inside - outside) < 20:  # the drawn colors make the object invisible
            continue
        is_inside = abs(image - inside) < abs(image - outside)
        assert np.mean(is_inside == (mask == 1)) > 0.95
        compared += 1
    assert compared > SAMPLES / 2


class Annotated(Dataset):
    """Images with a mask and boxes for each, all different; of one size, or of two."""

    def __init__(self, *, ragged: bool = False) -> None:
        self._ragged = ragged
        size = (None, None) if ragged else (HEIGHT, WIDTH)
        self.fields = {
            "image": FieldType((3, *size), "uint8"), "mask": FieldType(size, "uint8"),
            "boxes": FieldType((3, 4), "float32"), "label": FieldType((3,), "int32"),
        }  # fmt: skip
        self.annotations = {"mask": MaskAnnotation("image", IGNORED), "boxes": BoxAnnotation("image", {"label": 0})}
        self.digest = "annotated"

    def __len__(self) -> int:
        return SAMPLES

    def read(self, indices: Array) -> dict[str, Any]:
        samples = [self._sample(int(index)) for index in indices]
        fields: dict[str, Any] = {name: [sample[name] for sample in samples] for name in self.fields}
        return fields if self._ragged else {**fields, **{name: np.stack(fields[name]) for name in ("image", "mask")}}

    def _sample(self, index: int) -> dict[str, Array]:
        rng = np.random.default_rng(index)
        tall = HEIGHT + (8 if self._ragged and index % 2 else 0)
        mask = np.zeros((tall, WIDTH), np.uint8)
        boxes = rng.integers(0, (20, 16), (2, 2))
        boxes = np.concatenate([boxes, boxes + rng.integers(4, 20, (2, 2))], axis=1).astype(np.float32)
        for label, (left, top, right, bottom) in enumerate(boxes.astype(int), 1):
            mask[top:bottom, left:right] = label
        image = np.broadcast_to(mask * 100, (3, tall, WIDTH)).copy()
        padded = np.concatenate([boxes, np.zeros((1, 4))]) / [WIDTH, tall, WIDTH, tall]
        return {"image": image, "mask": mask, "boxes": padded.astype(np.float32), "label": np.array([1, 2, 0])}

    def describe(self, index: int) -> str:
        return f"sample {index}"


def pipeline(transforms: tuple[dict[str, Any], ...], *, ragged: bool = False) -> TransformPipeline:
    fields = {"image": {"shape": [1]}, "label": {"classes": 2}}
    split = SOURCES.parse(
        {"source": "synthetic", "samples": 1, "fields": fields, "batch_size": 4, "transforms": list(transforms)}
    )
    return TransformPipeline(Annotated(ragged=ragged), split, seed=7)


def flattened(fields: Any) -> list[bytes]:
    return [np.ascontiguousarray(value).tobytes() for name in sorted(fields) for value in fields[name]]


@pytest.mark.parametrize("ragged", [False, True])
def test_pipeline_moves_masks_and_boxes_with_images(ragged):
    lines = pipeline(AUGMENTATION, ragged=ragged)
    assert lines.fields["mask"] == FieldType((24, 32), "uint8")
    assert lines.fields["boxes"] == FieldType((3, 4), "float32")
    for epoch in (0, 1):
        batch = lines.read(np.arange(SAMPLES), epoch)
        masks, images = np.asarray(batch["mask"]), np.asarray(batch["image"])
        assert set(np.unique(masks)) <= {0, 1, 2, IGNORED}
        assert IGNORED in masks
        inside = masks != IGNORED
        level = np.rint(images.mean(axis=1) * 256 / 100)
        assert np.mean((level == masks)[inside]) > 0.9  # except at blended borders, and for the changed brightness


def test_results_depend_only_on_sample_and_epoch():
    lines = pipeline(AUGMENTATION)
    together = lines.read(np.arange(SAMPLES), 1)
    assert flattened(lines.read(np.arange(SAMPLES), 1)) == flattened(together)
    assert flattened(lines.read(np.arange(SAMPLES), 0)) != flattened(together)
    with ThreadPoolExecutor(3) as threads:
        rows = list(threads.map(lambda index: lines.read(np.array([index]), 1), range(SAMPLES)))
    for name in ("image", "mask", "boxes", "label"):
        for row, value in zip(rows, together[name], strict=True):
            np.testing.assert_array_equal(np.asarray(row[name][0]), np.asarray(value))


def test_crops_of_annotated_images_are_not_left_to_the_device():
    transforms = ({"type": "RandomCrop", "height": 32, "width": 32}, {"type": "Rescaling", "scale": 0.00390625})
    lines = pipeline(transforms)
    expected = lines.read(np.arange(6), 0)
    deferred = pipeline(transforms)
    decode = deferred.defer_decode("image")
    assert decode is not None
    assert not decode.position_fields
    np.testing.assert_array_equal(np.asarray(deferred.read(np.arange(6), 0)["mask"]), np.asarray(expected["mask"]))


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ([{"type": "AugMix"}], "boxes, mask cannot follow AugMix"),
        (
            [{"type": "Resizing", "height": 8, "width": 8, "apply_to": "mask"}],
            "`mask` follows the transforms of `image`",
        ),
        ([{"type": "MixUp", "num_classes": 2}], "MixUp mixes samples"),
        (
            [
                {"type": "Padding", "length": 3, "axis": 0, "apply_to": "boxes"},
                {"type": "RandomFlip", "apply_to": "image"},
            ],
            "RandomFlip moves `boxes`, which Padding has changed already",
        ),
    ],
)
def test_transforms_that_would_separate_image_and_annotations_are_refused(transforms, message):
    with pytest.raises(InputError, match=message) as caught:
        pipeline(tuple(transforms))
    assert caught.value.problems[0].expected


def test_transform_of_another_package_must_declare_how_it_moves_positions():
    class Swirl(ImageTransform):
        def change(self, image, draw):
            return image

    annotations = ImageAnnotations({"mask": MaskAnnotation("image", IGNORED)})
    with pytest.raises(InputError, match="mask cannot follow Swirl"):
        annotations.check(Swirl(), "image")
    other: Transform = TRANSFORMS.parse({"type": "Rescaling", "scale": 2})  # type: ignore[assignment]  # a transform
    annotations.check(other, "image")
