"""Anchor-free detection: decoding, the loss and its assignment of boxes to cells, selection, average precision."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from netspec.graph.value import ShapeMismatch
from netspec.layers.metrics.detection import average_precision, match_detections
from netspec.layers.vision.boxes import BoxSelection, box_overlaps, non_maximum_suppression
from tests.layers.apply import layer, loss, metric

LOG_ODDS = log(99)


def grid(classes: int = 2, rows: int = 4, columns: int = 4) -> np.ndarray:
    """A grid without detections: boxes of the size of a cell, and probabilities near 0."""
    head = np.zeros((1, 4 + classes, rows, columns))
    head[:, 4:] = -20
    return head


def test_cells_are_decoded_to_boxes_in_fractions_of_the_image():
    head = np.zeros((1, 6, 2, 4))
    head[0, :, 1, 2] = [0.25, -0.5, log(2), log(0.5), LOG_ODDS, 0]
    decoded = layer("AnchorFreeBoxes", head).y
    assert decoded.shape == (1, 8, 6)
    # Column 2 of 4 and row 1 of 2: the center is (2.75 / 4, 1 / 2), the size 2 / 4 and 0.5 / 2.
    np.testing.assert_allclose(decoded[0, 6], [0.4375, 0.375, 0.9375, 0.625, 0.5, 0.01], rtol=1e-12)
    np.testing.assert_allclose(decoded[0, 0], [0, 0, 0.25, 0.5, 0.01, 0.01], atol=1e-15)


def test_levels_of_a_pyramid_are_concatenated():
    fine, coarse = np.random.default_rng(0).normal(size=(2, 5, 4, 4)), np.zeros((2, 5, 2, 2))
    combined = layer("AnchorFreeBoxes", fine, coarse).y
    assert np.array_equal(
        combined, np.concatenate([layer("AnchorFreeBoxes", fine).y, layer("AnchorFreeBoxes", coarse).y], 1)
    )
    with pytest.raises(ShapeMismatch, match="different numbers of classes"):
        layer("AnchorFreeBoxes", fine, np.zeros((2, 6, 2, 2)))
    with pytest.raises(ShapeMismatch, match="not the grid of a detector"):
        layer("AnchorFreeBoxes", np.zeros((2, 4, 2, 2)))


def detection_loss(head, boxes, labels, *crowd, **fields) -> float:
    arrays = [np.asarray(values, np.int32)[None] for values in (labels, *crowd)]
    spec = {"type": "AnchorFreeDetection", "gamma": 0, "alpha": 0.5, **fields}
    return float(loss(spec, head, np.asarray(boxes, float)[None], *arrays).y)


def cross_entropy(logits: list[float], target: list[float]) -> float:
    return sum(0.5 * (float(np.logaddexp(0, z)) - z * t) for z, t in zip(logits, target, strict=True))


def test_loss_of_a_single_box_by_hand():
    """A box of the size of cell (1, 2) of a 4 × 4 grid, and a prediction that is half a cell to the right."""
    head = grid()
    head[0, :, 1, 2] = [0.5, 0, 0, 0, 0.5 + LOG_ODDS, -1 + LOG_ODDS]
    # Boxes are apart by half their width: intersection 1 / 2, union and hull 3 / 2 of a cell.
    giou_loss = 1 - 1 / 3
    others = 15 * cross_entropy([-20 - LOG_ODDS] * 2, [0, 0])
    expected = cross_entropy([0.5, -1], [1, 0]) + others + 2 * giou_loss
    box, padding = [0.5, 0.25, 0.75, 0.5], [0, 0, 0, 0]
    # A radius of 0.9 leaves the neighbors out, whose centers lie outside the box anyway.
    actual = detection_loss(head, [box, padding], [0, -1], radius=0.9)
    assert actual == pytest.approx(expected, rel=1e-6)


def test_boxes_that_do_not_overlap_have_a_negative_giou():
    head = grid(1)
    head[0, :, 0, 0] = [2, 0, 0, 0, LOG_ODDS]  # two cells to the right of its target
    others = 15 * cross_entropy([-20 - LOG_ODDS], [0])
    # The hull is 3 cells wide, 2 of them filled: GIoU = 0 - 1 / 3.
    expected = cross_entropy([0.0], [1]) + others + 2 * (1 + 1 / 3)
    assert detection_loss(head, [[0, 0, 0.25, 0.25]], [0], radius=0.5) == pytest.approx(expected, rel=1e-6)


def positives(boxes, labels, *crowd, size: int = 4, classes: int = 2, **fields) -> list[list[list[int]]]:
    """Cells (row, column) that are positive for each class: there a rising score lowers the loss."""
    head = np.zeros((1, 4 + classes, size, size))
    arrays = [np.asarray(values, np.int32)[None] for values in (labels, *crowd)]
    applied = loss({"type": "AnchorFreeDetection", **fields}, head, np.asarray(boxes, float)[None], *arrays)
    gradient = applied.gradient(np.ones(()))[0]
    return [np.argwhere(gradient[0, 4 + label] < 0).tolist() for label in range(classes)]


def test_cells_near_the_center_of_a_box_are_positive():
    box = [0, 0, 0.75, 0.75]  # three cells wide, centered in cell (1, 1)
    assert positives([box], [1], radius=0.4) == [[], [[1, 1]]]
    assert positives([box], [1], radius=1)[1] == [[row, column] for row in range(3) for column in range(3)]
    # The center of the box is on the edge of four cells.
    assert positives([[0, 0, 1, 1]], [0], radius=0)[0] == [[1, 1], [1, 2], [2, 1], [2, 2]]


def test_a_box_smaller_than_a_cell_is_assigned_to_the_cell_of_its_center():
    assert positives([[0.26, 0.51, 0.28, 0.53]], [0])[0] == [[2, 1]]


def test_the_smaller_of_two_boxes_wins_a_cell():
    boxes = [[0, 0, 1, 1], [0.25, 0.25, 0.5, 0.5]]
    first, second = positives(boxes, [0, 1], radius=1)
    assert second == [[1, 1]]
    assert [1, 1] not in first
    assert [2, 2] in first


def test_boxes_outside_the_size_range_belong_to_another_level():
    boxes = [[0, 0, 1, 1], [0.25, 0.25, 0.5, 0.5]]
    assert positives(boxes, [0, 1], size_range=[0, 0.5]) == [[], [[1, 1]]]
    assert positives(boxes, [0, 1], size_range=[0.5, 1])[1] == []


def test_cells_in_crowds_count_neither_as_positive_nor_as_negative():
    head = np.zeros((1, 5, 4, 4))
    boxes, labels = np.array([[[0, 0, 0.5, 0.5]]]), np.array([[0]], np.int32)
    applied = loss("AnchorFreeDetection", head, boxes, labels, np.array([[1]], np.int32))
    gradient = applied.gradient(np.ones(()))[0][0, 4]
    assert not gradient[:2, :2].any()
    assert (gradient[2:] > 0).all()


def test_samples_without_boxes_have_only_negative_cells():
    head = np.zeros((1, 5, 2, 2))
    expected = 4 * cross_entropy([-LOG_ODDS], [0])
    assert detection_loss(head, [[0, 0, 0, 0]], [-1]) == pytest.approx(expected)


def test_shapes_of_targets_are_checked():
    with pytest.raises(ShapeMismatch, match="the second input does not hold boxes"):
        loss("AnchorFreeDetection", grid(), np.zeros((1, 4)), np.zeros((1, 1), np.int32))
    with pytest.raises(ShapeMismatch, match="`labels` does not hold one integer per box"):
        loss("AnchorFreeDetection", grid(), np.zeros((1, 2, 4)), np.zeros((1, 3), np.int32))


def test_overlaps():
    boxes = np.array([[0, 0, 2, 2], [1, 1, 3, 3], [5, 5, 6, 6], [0, 0, 0, 0]], float)
    expected = np.array([[1, 1 / 7, 0, 0], [1 / 7, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(box_overlaps(boxes, boxes), expected)
    crowd = box_overlaps(boxes[:1], boxes[1:2], np.array([True]))
    assert crowd.tolist() == [[1 / 4]]  # of the area of the first box


def test_non_maximum_suppression_keeps_other_classes_and_boxes_that_overlap_little():
    boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 1.9], [0, 0, 2, 1.9], [1, 1, 3, 3]], float)
    assert non_maximum_suppression(boxes, np.array([0, 0, 1, 0]), 0.5, 10) == [0, 2, 3]
    assert non_maximum_suppression(boxes, np.array([0, 0, 1, 0]), 0.1, 10) == [0, 2]
    assert non_maximum_suppression(boxes, np.array([0, 0, 1, 0]), 0.5, 2) == [0, 2]


def test_suppression_equals_onnx():
    import onnxruntime as ort
    from onnx import TensorProto, helper

    random = np.random.default_rng(1)
    low = random.uniform(0, 0.8, (60, 2))
    boxes = np.concatenate([low, low + random.uniform(0.1, 0.3, (60, 2))], 1).clip(0, 1).astype(np.float32)
    scores = random.uniform(size=(60, 3)).astype(np.float32)
    constants: dict[str, np.ndarray] = {
        "most": np.array([60], np.int64), "overlap": np.array([0.4], np.float32), "least": np.array([0.3], np.float32)
    }  # fmt: skip
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("NonMaxSuppression", ["boxes", "scores", *constants], ["selected"])], "g",
            [helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 60, 4]),
             helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 3, 60])],
            [helper.make_tensor_value_info("selected", TensorProto.INT64, None)],
            [helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape, value)
             for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=9,
    )  # fmt: skip
    session = ort.InferenceSession(model.SerializeToString())
    (selected,) = session.run(None, {"boxes": boxes[None, :, [1, 0, 3, 2]], "scores": scores.T[None]})
    expected = {(int(label), *boxes[index].tolist()) for _, label, index in selected}
    select = BoxSelection(score_threshold=0.3, nms_threshold=0.4, max_detections=180).select
    actual = select(np.concatenate([boxes, scores], axis=1))
    assert {(int(row[5]), *row[:4].tolist()) for row in actual} == expected
    assert (np.diff(actual[:, 4]) <= 0).all()


def test_average_precision_by_hand():
    # Precision 1, 1/2, 2/3 at the recalls 1/2, 1/2, 1: 51 recalls up to 1/2, and 50 beyond it.
    assert average_precision(np.array([1, 0, 1]), 2) == pytest.approx(((51 + 50 * 2 / 3) / 101, 1.0))
    assert average_precision(np.array([0, -1, 1]), 4) == pytest.approx((26 * 0.5 / 101, 0.25))
    assert average_precision(np.zeros(0), 3) == (0.0, 0.0)


def test_detections_match_the_free_box_that_they_overlap_most():
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 8]], float)
    actual = np.array([[0, 0, 10, 9, 0.9, 0], [0, 0, 10, 8, 0.8, 0], [0, 0, 10, 8, 0.7, 0], [0, 0, 10, 8, 0.6, 1]])
    states = match_detections(actual, boxes, np.array([0, 0]), np.array([False, False]), [0.5, 0.85])[:, 2:]
    # The first overlaps 0.9 and 8/9: it takes the first box. The second takes the other one, the third finds none.
    assert states.tolist() == [[1, 1], [1, 1], [0, 0], [0, 0]]
    states = match_detections(actual, boxes, np.array([0, 0]), np.array([False, True]), [0.5])[:, 2]
    assert states.tolist() == [1, -1, -1, 0]


def test_mean_average_precision_of_classes_that_occur():
    prediction = np.zeros((1, 3, 4 + 3))
    prediction[0, 0] = [0, 0, 0.5, 0.5, 0.9, 0, 0]
    prediction[0, 1] = [0.5, 0.5, 1, 1, 0, 0.8, 0]
    prediction[0, 2] = [0, 0.6, 0.2, 1, 0, 0, 0.7]  # no box has this class
    boxes = np.array([[[0, 0, 0.5, 0.5], [0, 0.5, 0.4, 1], [0, 0, 0, 0]]])
    labels = np.array([[0, 1, -1]], np.int32)
    assert metric("MeanAveragePrecision", prediction, boxes, labels).result() == 0.5
    table = metric({"type": "DetectionReport", "class_names": ["a", "b", "c"]}, prediction, boxes, labels).figure()
    assert table == {
        "a": {"AP": 1.0, "AP50": 1.0, "AP75": 1.0, "AR": 1.0, "boxes": 1},
        "b": {"AP": 0.0, "AP50": 0.0, "AP75": 0.0, "AR": 0.0, "boxes": 1},
        "c": {"boxes": 0},
        "mean": {"AP": 0.5, "AP50": 0.5, "AP75": 0.5, "AR": 0.5, "boxes": 2},
    }
    nothing = metric("MeanAveragePrecision", prediction, np.zeros_like(boxes), np.full_like(labels, -1))
    assert nothing.result() == 0.0


def test_large_logarithms_of_sizes_are_bounded():
    head = grid()
    head[0, 2:4] = 1000
    decoded = layer("AnchorFreeBoxes", head).y
    assert decoded[0, 0, 2] - decoded[0, 0, 0] == pytest.approx(exp(6) / 4)
