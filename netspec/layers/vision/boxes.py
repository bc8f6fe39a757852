"""Boxes around objects in NumPy: overlap, and the selection of detections by non-maximum suppression.

A box is left, top, right, bottom. This module does not import NumPy, so that specs are checked without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from netspec.schema.specs.spec import Spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Share = Annotated[float, Field(ge=0, le=1)]
MAX_CANDIDATES = 2000
"""Number of boxes per sample, the most probable ones, that non-maximum suppression compares."""


class BoxSelection(Spec):
    """Fields of the selection of detections from the boxes and class probabilities of all cells of a grid."""

    score_threshold: Share = 0.3
    """Minimum class probability of a detection."""
    nms_threshold: Share = 0.5
    """Non-maximum suppression: a box is dropped if its intersection over union with a more probable box of the same
    class exceeds this, as in ONNX's NonMaxSuppression."""
    max_detections: Annotated[int, Field(ge=1)] = 100
    """Maximum number of detections per sample; the most probable ones are kept."""

    def select(self, prediction: Array) -> Array:
        """Return the detections of a sample, the most probable first.

        prediction: (cells, 4 + classes), boxes and class probabilities → (K, 6): box, probability, class.
        """
        import numpy as np

        boxes, scores = np.asarray(prediction[:, :4], np.float64), np.asarray(prediction[:, 4:], np.float64)
        cells, classes = np.nonzero(scores >= self.score_threshold)
        detected = scores[cells, classes]
        order = np.argsort(-detected, kind="stable")[:MAX_CANDIDATES]
        boxes, classes, detected = boxes[cells[order]].clip(0, 1), classes[order], detected[order]
        indices = non_maximum_suppression(boxes, classes, self.nms_threshold, self.max_detections)
        return np.column_stack([boxes[indices], detected[indices], classes[indices]])


def box_selection(fields: object) -> BoxSelection | None:
    """Return the fields of a detector's output layer, which select boxes; None for other layers."""
    return fields if isinstance(fields, BoxSelection) else None


def non_maximum_suppression(boxes: Array, classes: Array, threshold: float, max_boxes: int) -> list[int]:
    """Return the indices of the boxes that remain after non-maximum suppression within each class, at most `max_boxes`.

    boxes: (K, 4) in descending order of their scores, classes: (K).
    """
    import numpy as np

    selected: list[int] = []
    remaining = np.arange(len(boxes))
    while len(remaining) and len(selected) < max_boxes:
        first, remaining = remaining[0], remaining[1:]
        selected.append(int(first))
        overlap = box_overlaps(boxes[first : first + 1], boxes[remaining])[0]
        remaining = remaining[(overlap <= threshold) | (classes[remaining] != classes[first])]
    return selected


def box_areas(boxes: Array) -> Array:
    """Return the areas of boxes: (K, 4) → (K)."""
    areas: Array = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return areas


def have_area(boxes: Array) -> Array:
    """Return whether boxes have an area; others are padding: (K, 4) → (K) of bool."""
    is_positive: Array = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    return is_positive


def box_overlaps(first: Array, second: Array, crowd: Array | None = None) -> Array:
    """Return the intersection over union of each pair of boxes: (A, 4), (B, 4) → (A, B) of float64.

    For boxes of `second` that are a crowd (B) of bool, the intersection is divided by the area of the first box.
    """
    import numpy as np

    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    both = np.maximum(high - low, 0).prod(axis=2)
    areas = box_areas(first)[:, None]
    union = areas + box_areas(second)[None] - both
    if crowd is not None:
        union = np.where(crowd[None], areas, union)
    overlaps: Array = np.divide(both, union, out=np.zeros_like(both), where=union > 0)
    return overlaps
