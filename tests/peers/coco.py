"""Random detections and boxes, and the average precisions that COCO's evaluation (pycocotools) computes for them."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

IMAGES, CLASSES, BOXES, DETECTIONS = 12, 3, 8, 30
SEEDS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Case:
    """Boxes of images, and detections for them."""

    boxes: np.ndarray
    """(images, boxes, 4) of float32 in fractions of the image; without area if there are fewer."""
    labels: np.ndarray
    """(images, boxes) of int32; -1 for padding."""
    crowd: np.ndarray
    """(images, boxes) of int32."""
    found: np.ndarray
    """(images, detections, 4) of float32."""
    scores: np.ndarray
    """(images, detections) of float32."""
    classes: np.ndarray
    """(images, detections)."""

    @property
    def prediction(self) -> np.ndarray:
        """Return the detections as the output of a net, (images, detections, 4 + classes)."""
        probabilities = self.scores[..., None] * (self.classes[..., None] == np.arange(CLASSES))
        return np.concatenate([self.found, probabilities], axis=2).astype(np.float32)


def case(seed: int) -> Case:
    """Random boxes, some of them crowds, and detections near them, some with equal scores; class 2 is rare."""
    random = np.random.default_rng(seed)
    low = random.uniform(0, 0.7, (IMAGES, BOXES, 2))
    boxes = np.concatenate([low, low + random.uniform(0.05, 0.3, (IMAGES, BOXES, 2))], axis=2).astype(np.float32)
    labels = random.choice(CLASSES if seed != 4 else CLASSES - 1, (IMAGES, BOXES)).astype(np.int32)
    padding = np.arange(BOXES)[None] >= random.integers(0, BOXES + 1, (IMAGES, 1))
    boxes[padding], labels[padding] = 0, -1
    crowd = ((random.uniform(size=labels.shape) < 0.15) & ~padding).astype(np.int32)
    near = random.integers(0, BOXES, (IMAGES, DETECTIONS))
    image = np.arange(IMAGES)[:, None]
    boxes_found = boxes[image, near] + random.normal(0, 0.02, (IMAGES, DETECTIONS, 4))
    anywhere = random.uniform(0, 0.8, (IMAGES, DETECTIONS, 2))
    stray = np.concatenate([anywhere, anywhere + random.uniform(0.02, 0.2, (IMAGES, DETECTIONS, 2))], axis=2)
    boxes_found = np.where((labels[image, near] < 0)[..., None], stray, boxes_found).clip(0, 1).astype(np.float32)
    boxes_found[..., 2:] = np.maximum(boxes_found[..., 2:], boxes_found[..., :2] + np.float32(0.01)).clip(0, 1)
    classes = np.where(random.uniform(size=near.shape) < 0.8, labels[image, near].clip(0), random.choice(CLASSES))
    scores = (random.integers(1, 50, near.shape) / 50).astype(np.float32)
    return Case(boxes, labels, crowd, boxes_found, scores, classes)


def record() -> dict[str, np.ndarray]:
    """Return COCO's results: AP, AP50, AP75 and AR of all classes, and the AP of each class (-1 without boxes)."""
    return {str(seed): np.array(_evaluated(case(seed))) for seed in SEEDS}


def _evaluated(drawn: Case) -> list[float]:
    coco, cocoeval = import_module("pycocotools.coco"), import_module("pycocotools.cocoeval")
    truth = coco.COCO()
    truth.dataset = {
        "info": {},
        "images": [{"id": image + 1} for image in range(IMAGES)],
        "categories": [{"id": label + 1, "name": str(label)} for label in range(CLASSES)],
        "annotations": [
            {"id": 1 + image * BOXES + row, "image_id": image + 1, "category_id": int(drawn.labels[image, row]) + 1,
             **_box(drawn.boxes[image, row]), "iscrowd": int(drawn.crowd[image, row])}
            for image in range(IMAGES) for row in range(BOXES) if drawn.labels[image, row] >= 0
        ],
    }  # fmt: skip
    results = [
        {"image_id": image + 1, "category_id": int(drawn.classes[image, row]) + 1,
         "score": float(drawn.scores[image, row]), **_box(drawn.found[image, row])}
        for image in range(IMAGES) for row in range(DETECTIONS)
    ]  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        evaluation = cocoeval.COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    precision = evaluation.eval["precision"][:, :, :, 0, -1]  # thresholds, recalls, classes
    by_class = [float(precision[:, :, label].mean()) for label in range(CLASSES)]
    ap, ap50, ap75, recall = (float(evaluation.stats[index]) for index in (0, 1, 2, 8))
    return [ap, ap50, ap75, recall, *by_class]


def _box(corners: np.ndarray) -> dict[str, Any]:
    left, top, right, bottom = map(float, corners)
    return {"bbox": [left, top, right - left, bottom - top], "area": (right - left) * (bottom - top)}
