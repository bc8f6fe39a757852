"""Average precision of detections, as COCO's evaluation computes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from netspec.graph.ops.reduce import reshape_to
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import require
from netspec.layers.losses.detection import BOX_RANGE, check_boxes
from netspec.layers.losses_and_metrics import MetricResult, MetricSpec
from netspec.layers.vision.boxes import BoxSelection, Share, box_overlaps, have_area
from netspec.schema.specs.kinds import METRICS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

COCO_THRESHOLDS = tuple(round(0.5 + 0.05 * index, 2) for index in range(10))
RECALLS = 101
"""Number of recalls, from 0 to 1, at which the precision is sampled."""
FIXED_COLUMNS = 2
"""Number of columns of a row before the states: class and score."""
HIT, MISS, IGNORED = 1, 0, -1


class DetectionMetric(BoxSelection, MetricSpec):
    """Base of metrics that compare detected boxes with the boxes of the data.

    `build` returns predictions and boxes as they are; `collect` matches them, image by image.
    """

    collects: ClassVar[bool] = True
    score_threshold: Share = 0.01
    iou_thresholds: list[Share] = Field(default=list(COCO_THRESHOLDS), min_length=1)
    """Minimum intersections over union for which a detection matches a box; the result is the mean over these. Default:
    0.5, 0.55, …, 0.95."""
    class_names: list[str] | None = None
    """Names of the classes; default: those of the data, or their indices."""

    samples: ClassVar[tuple[Sample, ...]] = (
        Sample.of((2, 8, 6), (2, 3, 4), (2, 3), dtypes=("float32", "float32", "int32"), high=2,
                  ranges=(BOX_RANGE, BOX_RANGE)),
        Sample.of((2, 8, 6), (2, 3, 4), (2, 3), (2, 3), dtypes=("float32", "float32", "int32", "int32"), high=2,
                  ranges=(BOX_RANGE, BOX_RANGE), iou_thresholds=[0.1, 0.5], max_detections=5, score_threshold=0.3),
    )  # fmt: skip

    def build(
        self, builder: Builder, prediction: Value, boxes: Value, labels: Value, crowd: Value | None = None
    ) -> tuple[Value, ...]:
        """prediction: (N, cells, 4 + classes), boxes: (N, M, 4), labels and crowd: (N, M) → the same."""
        require(
            len(prediction.shape) == 3 and prediction.shape[2] > 4,
            "the prediction does not hold boxes and class probabilities",
            expected="(batch, cells, 4 + classes), the output of AnchorFreeBoxes",
            got=prediction.type,
        )
        classes = prediction.shape[2] - 4
        floats = check_boxes(builder, boxes, labels, crowd, prediction.shape[0], classes)
        names = self.class_names or []
        require(
            not names or len(names) == classes, "`class_names` must have one name per class",
            expected=f"{classes} names", got=f"{len(names)} names",
        )  # fmt: skip
        values = (builder.floating(prediction), floats, labels, *(() if crowd is None else (crowd,)))
        return tuple(reshape_to(value, value.shape) for value in values)

    def collect(self, *values: Any) -> tuple[Any, ...]:
        """Match the detections of a batch with its boxes.

        Returns a row for each detection, (D, 2 + thresholds): its class, its score, and for each threshold 1 (hit), 0
        (miss) or -1 (matches a crowd); and the number of boxes of each class in each image, (N, classes).
        """
        import numpy as np

        prediction, boxes, labels, *more = values
        crowd = more[0] if more else np.zeros_like(labels)
        classes = prediction.shape[2] - 4
        rows, counts = [], []
        for sample in range(len(prediction)):
            used = have_area(boxes[sample])
            detections = self.select(prediction[sample])
            arguments = boxes[sample][used], labels[sample][used], crowd[sample][used] > 0
            rows.append(match_detections(detections, *arguments, self.iou_thresholds))
            counts.append(np.bincount(arguments[1][~arguments[2]], minlength=classes)[:classes])
        return np.concatenate(rows), np.stack(counts)

    def with_class_names(self, names: Sequence[str]) -> Self:
        """Return the metric with these names, unless it declares its own."""
        return self if self.class_names is not None else self.model_copy(update={"class_names": list(names)})

    def curves(self, rows: Any, counts: Any) -> tuple[Array, Array, Array]:
        """Return average precision and greatest recall, (classes, thresholds) each, and each class's number of boxes.

        Precision and recall are NaN for classes without boxes.
        """
        import numpy as np

        objects = counts.sum(axis=0)
        precision = np.full((len(objects), len(self.iou_thresholds)), np.nan)
        recall = precision.copy()
        for label in np.flatnonzero(objects):
            of_class = rows[rows[:, 0] == label]
            of_class = of_class[np.argsort(-of_class[:, 1], kind="stable")]
            for column in range(len(self.iou_thresholds)):
                states = of_class[:, FIXED_COLUMNS + column]
                precision[label, column], recall[label, column] = average_precision(states, int(objects[label]))
        return precision, recall, objects


def match_detections(
    detections: Array, boxes: Array, labels: Array, crowd: Array, thresholds: Sequence[float]
) -> Array:
    """Match each detection of an image with the best unmatched box of its class.

    detections: (D, 6), the most probable first, boxes: (K, 4), labels: (K), crowd: (K) of bool → (D, 2 + thresholds).
    As COCOeval.evaluateImg: a detection prefers boxes to crowds, and a crowd matches any number of detections.
    """
    import numpy as np

    rows = np.zeros((len(detections), FIXED_COLUMNS + len(thresholds)))
    rows[:, 0], rows[:, 1] = detections[:, 5], detections[:, 4]
    for label in np.unique(detections[:, 5]):
        indices, targets = np.flatnonzero(detections[:, 5] == label), np.flatnonzero(labels == label)
        targets = targets[np.argsort(crowd[targets], kind="stable")]
        overlaps = box_overlaps(detections[indices, :4], boxes[targets], crowd[targets])
        for column, threshold in enumerate(thresholds):
            rows[indices, FIXED_COLUMNS + column] = _greedy(overlaps, crowd[targets], threshold)
    return rows


def _greedy(overlaps: Array, crowd: Array, threshold: float) -> list[int]:
    """Return HIT, MISS or IGNORED for each detection of a class; overlaps: (D, K), with crowds as the last boxes."""
    free = [True] * len(crowd)
    states = []
    for row in overlaps.tolist():
        best, least = -1, min(threshold, 1 - 1e-10)
        for index, overlap in enumerate(row):
            if not (free[index] or crowd[index]) or overlap < least:
                continue
            if best >= 0 and not crowd[best] and crowd[index]:
                break
            best, least = index, overlap
        if best >= 0:
            free[best] = False
        states.append(MISS if best < 0 else IGNORED if crowd[best] else HIT)
    return states


def average_precision(states: Array, objects: int) -> tuple[float, float]:
    """Return the mean precision at 101 recalls, and the greatest recall.

    states: states of the detections of a class, in descending order of their scores. As COCOeval.accumulate: the
    precision at a recall is the greatest one at this recall or a higher one; 0 if that recall is not reached.
    """
    import numpy as np

    states = states[states != IGNORED]
    hits = np.cumsum(states == HIT)
    if not len(hits):
        return 0.0, 0.0
    recall, precision = hits / objects, hits / (np.arange(len(hits)) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    reached = np.searchsorted(recall, np.linspace(0, 1, RECALLS), side="left")
    return float(np.append(precision, 0.0)[reached].mean()), float(recall[-1])


@METRICS.register
class MeanAveragePrecision(DetectionMetric):
    """COCO's mean average precision (AP) of detections: the mean over classes and over IoU thresholds.

    Prediction (N, cells, 4 + classes): boxes and class probabilities, the output of AnchorFreeBoxes. Targets: `boxes`
    (N, M, 4), `labels` (N, M) and possibly `crowd` (N, M), as in the source detection_folder. As pycocotools computes
    it: detections are matched greedily in the order of their scores, each with the unmatched box of its class that it
    overlaps most; precision is interpolated at 101 recalls; crowds are ignored. For AP50 set `iou_thresholds: [0.5]`.
    https://cocodataset.org/#detection-eval
    """

    type: Literal["MeanAveragePrecision"] = "MeanAveragePrecision"
    monitor_mode: ClassVar[Literal["max"]] = "max"

    def result(self, *totals: Any) -> MetricResult:
        """The mean; 0 if there are no boxes."""
        import numpy as np

        precision, _, objects = self.curves(*totals)
        return float(np.nanmean(precision)) if objects.any() else 0.0


@METRICS.register
class DetectionReport(DetectionMetric):
    """Average precision of each class (AP, AP50, AP75), average recall (AR), and the number of boxes, as a table.

    Inputs are those of MeanAveragePrecision. AP and AR are means over `iou_thresholds`, AP50 and AP75 the average
    precisions at IoU thresholds of 0.5 and 0.75, if these are among the thresholds. The last row is the mean of the
    classes.
    """

    type: Literal["DetectionReport"] = "DetectionReport"

    def result(self, *totals: Any) -> MetricResult:
        import numpy as np

        precision, recall, objects = self.curves(*totals)
        columns = {"AP": precision.mean(axis=1)}
        for name, threshold in (("AP50", 0.5), ("AP75", 0.75)):
            if threshold in self.iou_thresholds:
                columns[name] = precision[:, self.iou_thresholds.index(threshold)]
        columns["AR"] = recall.mean(axis=1)
        names = self.class_names or []
        names = names if len(names) == len(objects) else [str(number) for number in range(len(objects))]
        table: dict[str, dict[str, float]] = {}
        for index, name in enumerate(names):
            row = {column: float(values[index]) for column, values in columns.items() if objects[index]}
            table[name] = {**row, "boxes": int(objects[index])}
        if objects.any():
            means = {column: float(np.nanmean(values)) for column, values in columns.items()}
            table["mean"] = {**means, "boxes": int(objects.sum())}
        return table
