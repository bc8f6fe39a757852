"""Average precision against results of pycocotools, recorded by `tests.peers.record_coco`."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.layers.metrics.detection import DetectionReport, MeanAveragePrecision
from tests.peers.coco import CLASSES, SEEDS, case
from tests.peers.recordings import load_answers


def totals(metric: MeanAveragePrecision | DetectionReport, seed: int) -> list[np.ndarray]:
    """Return the totals of the metric over batches of 5 images."""
    drawn_case = case(seed)
    arrays = drawn_case.prediction, drawn_case.boxes, drawn_case.labels, drawn_case.crowd
    parts = [slice(start, start + 5) for start in range(0, len(drawn_case.boxes), 5)]
    batches = [metric.collect(*(values[part] for values in arrays)) for part in parts]
    return [np.concatenate(parts) for parts in zip(*batches, strict=True)]


@pytest.mark.parametrize("seed", SEEDS)
def test_average_precision_equals_pycocotools(seed: int) -> None:
    ap, ap50, ap75, recall, *by_class = load_answers("coco")[str(seed)].tolist()
    # COCO's evaluation has no non-maximum suppression.
    mean = MeanAveragePrecision(nms_threshold=1.0, score_threshold=0.0001)
    report = DetectionReport(nms_threshold=1.0, score_threshold=0.0001)
    # Sums of at most 30 terms in float64, in another order.
    assert mean.result(*totals(mean, seed)) == pytest.approx(ap, abs=1e-12)
    table = report.result(*totals(report, seed))
    assert isinstance(table, dict)
    expected = {"AP": ap, "AP50": ap50, "AP75": ap75, "AR": recall}
    assert {name: table["mean"][name] for name in expected} == pytest.approx(expected, abs=1e-12)
    for label in range(CLASSES):
        assert table[str(label)].get("AP", -1.0) == pytest.approx(by_class[label], abs=1e-12)
