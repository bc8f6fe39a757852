"""AnchorFreeDetection: the loss of a detector whose cells predict boxes and classes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from netspec.graph.ops.elementwise import Greater, LessOrEqual, Maximum, Minimum, Where, call_elementwise, cast
from netspec.graph.ops.linear import BatchRowIndices, Gather
from netspec.graph.ops.logic import And, Not, Or
from netspec.graph.ops.reduce import ArgMin, ReduceMax, ReduceSum, reshape_to
from netspec.graph.ops.shape import OneHot, Slice
from netspec.graph.ops.unary import Abs, Sigmoid, Softplus
from netspec.graph.types import DType, batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import require
from netspec.layers.losses.probabilistic import Focal
from netspec.layers.losses_and_metrics import ElementLosses, LossSpec, PredictionKind, safe_ratio
from netspec.layers.vision.anchor_free import CellPredictions, cell_centers
from netspec.schema.specs.kinds import LOSSES
from netspec.schema.specs.spec import problem

BOX_RANGE = (0.0, 1.0)
FAR = 1e9
"""Cost of assigning a box to a cell that it does not belong to."""


@LOSSES.register
class AnchorFreeDetection(Focal, LossSpec):
    """Loss of an anchor-free detector: focal loss of all cells' classes, and GIoU loss of the positive cells' boxes.

    Inputs: the grid (N, 4 + classes, H, W) that AnchorFreeBoxes decodes, `boxes` (N, M, 4) as left, top, right and
    bottom in fractions of the image, and their `labels` (N, M); boxes without area are padding. A fourth input, `crowd`
    (N, M), is 1 for boxes that are not targets: cells in them are ignored unless they are positive. A cell is positive
    for the smallest box whose center it contains, or that contains the center of the cell, at most `radius` cells from
    its own center (FCOS, arXiv:1904.01355, with center sampling). The loss of a sample is (Σ focal loss + `box_weight`
    · Σ (1 - GIoU)) / max(1, number of positive cells). Focal loss: arXiv:1708.02002; GIoU: arXiv:1902.09630.
    """

    type: Literal["AnchorFreeDetection"] = "AnchorFreeDetection"
    prediction_kind: ClassVar[PredictionKind] = "boxes"
    radius: Annotated[float, Field(ge=0)] = 1.5
    """Largest distance, in cells along each axis, between the centers of a box and of its positive cells."""
    box_weight: Annotated[float, Field(ge=0)] = 2.0
    """Weight of the GIoU loss of the boxes."""
    size_range: Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=2, max_length=2)] | None = None
    """`[low, high]`: boxes that this grid of a feature pyramid learns, by their longer side in fractions of the image:
    low < side ≤ high. Default: all."""

    samples: ClassVar = (
        Sample.of((2, 6, 3, 4), (2, 3, 4), (2, 3), dtypes=("float32", "float32", "int32"), high=2,
                  ranges=(None, BOX_RANGE)),
        Sample.of((2, 7, 4, 3), (2, 2, 4), (2, 2), (2, 2), dtypes=("float32", "float32", "int32", "int32"), high=2,
                  ranges=(None, BOX_RANGE), radius=0.5, box_weight=1.0, size_range=[0.1, 0.9], gamma=1.5, weight=(2,)),
    )  # fmt: skip

    @model_validator(mode="after")
    def _range_is_ordered(self) -> AnchorFreeDetection:
        if self.size_range is not None and self.size_range[0] >= self.size_range[1]:
            raise problem("`size_range` is empty", field="size_range", expected="[low, high] with low < high",
                          got=str(self.size_range))  # fmt: skip
        return self

    def build(self, builder: Builder, head: Value, boxes: Value, labels: Value, crowd: Value | None = None) -> Value:
        """head: (N, 4 + C, H, W), boxes: (N, M, 4), labels and crowd: (N, M) → scalar."""
        cells = CellPredictions.of(builder, head)
        classes = cells.logits.shape[2]
        boxes = check_boxes(builder, boxes, labels, crowd, head.shape[0], classes)
        positive, ignored, best = self._assign(cells, boxes, crowd)
        target = boxes_at(boxes, best)
        label = reshape_to(boxes_at(reshape_to(labels, (*labels.shape, 1)), best), best.shape)
        mask = cast(positive, cells.logits.dtype)
        target_classes = OneHot(classes, cells.logits.dtype)(label) * reshape_to(mask, (*mask.shape, 1))
        losses = ReduceSum((2,))(self._class_losses(cells.logits, target_classes))
        if ignored is not None:
            losses = losses * cast(Not()(ignored), losses.dtype)
        losses = losses + (1.0 - generalized_iou(cells.boxes, target)) * mask * self.box_weight
        number = call_elementwise(Maximum(), ReduceSum((1,))(mask), 1.0)
        return self.reduce(builder, ElementLosses(ReduceSum((1,))(losses) / number))

    def _class_losses(self, logits: Value, target: Value) -> Value:
        """Focal loss with balanced classes: (N, G, C)."""
        probability = Sigmoid()(logits)
        cross_entropy = Softplus()(logits) - logits * target
        focused = self.times_focus(cross_entropy, target * probability + (1.0 - target) * (1.0 - probability))
        return focused * (target * self.alpha + (1.0 - target) * (1 - self.alpha))

    def _assign(self, cells: CellPredictions, boxes: Value, crowd: Value | None) -> tuple[Value, Value | None, Value]:
        """Return whether each cell is positive, whether it is ignored, and the index of its box, (N, G) each."""
        count, number, _ = boxes.shape
        grid = cells.rows * cells.columns
        column, row = (
            reshape_to(center, (1, 1, grid)) * (1 / along)
            for center, along in zip(
                cell_centers(cells.rows, cells.columns, str(boxes.dtype)), (cells.columns, cells.rows), strict=True
            )
        )
        left, top, right, bottom = (reshape_to(Slice(2, k, k + 1)(boxes), (count, number, 1)) for k in range(4))
        width, height = right - left, bottom - top
        area = width * height
        margin = _least(column - left, right - column, row - top, bottom - row)
        inside = call_elementwise(Greater(), margin, 0.0)
        distance = call_elementwise(
            Maximum(),
            Abs()(column - (left + right) * 0.5) * float(cells.columns),
            Abs()(row - (top + bottom) * 0.5) * float(cells.rows),
        )
        near = And()(inside, call_elementwise(LessOrEqual(), distance, self.radius))
        belongs = Or()(near, call_elementwise(LessOrEqual(), distance, 0.5))
        is_target = call_elementwise(Greater(), _least(width, height), 0.0)
        if self.size_range is not None:
            is_target = And()(is_target, self._in_range(call_elementwise(Maximum(), width, height)))
        ignored = None
        if crowd is not None:
            is_crowd = call_elementwise(Greater(), reshape_to(crowd, (count, number, 1)), 0)
            is_target = And()(is_target, Not()(is_crowd))
            ignored = _any(And()(is_crowd, inside), boxes.dtype)
        belongs = And()(belongs, is_target)
        cost = call_elementwise(Where(), belongs, area, FAR)
        positive = _any(belongs, boxes.dtype)
        if ignored is not None:
            ignored = And()(ignored, Not()(positive))
        return positive, ignored, ArgMin(1)(cost)

    def _in_range(self, side: Value) -> Value:
        """Return whether boxes of this longer side belong to the grid."""
        assert self.size_range is not None
        low, high = self.size_range
        return And()(call_elementwise(Greater(), side, low), call_elementwise(LessOrEqual(), side, high))


def check_boxes(
    builder: Builder, boxes: Value, labels: Value, crowd: Value | None, samples: int, classes: int
) -> Value:
    """Return boxes as floats. Raises a located error if boxes, labels and crowd do not fit together."""
    require(
        boxes.dtype.is_float and len(boxes.shape) == 3 and boxes.shape[0] == samples and boxes.shape[2] == 4,
        "the second input does not hold boxes",
        expected="floats (batch, boxes, 4)",
        got=boxes.type,
    )
    for name, value in (("labels", labels), ("crowd", crowd)):
        require(
            value is None
            or (not value.dtype.is_float and value.dtype != DType.BOOL and value.shape == boxes.shape[:2]),
            f"`{name}` does not hold one integer per box",
            expected=f"integers {batch_shape(boxes.shape[:2])}",
            got=None if value is None else value.type,
        )
    builder.require_range(labels, 0, classes, f"there are {classes} classes; -1 is padding", also=(-1,))
    return builder.floating(boxes)


def boxes_at(values: Value, index: Value) -> Value:
    """Rows of each sample by index: (N, M, K), (N, G) → (N, G, K)."""
    samples, rows, width = values.shape
    return Gather()(reshape_to(values, (samples * rows, width)), BatchRowIndices(rows)(index))


def generalized_iou(first: Value, second: Value) -> Value:
    """GIoU of pairs of boxes, -1 to 1: (N, G, 4), (N, G, 4) → (N, G). Rezatofighi et al. 2019, arXiv:1902.09630."""
    (left, top, right, bottom), (other_left, other_top, other_right, other_bottom) = (
        tuple(reshape_to(Slice(2, k, k + 1)(boxes), boxes.shape[:2]) for k in range(4)) for boxes in (first, second)
    )
    zero = 0.0
    width = _least(right, other_right) - _greatest(left, other_left)
    height = _least(bottom, other_bottom) - _greatest(top, other_top)
    both = call_elementwise(Maximum(), width, zero) * call_elementwise(Maximum(), height, zero)
    areas = (right - left) * (bottom - top) + (other_right - other_left) * (other_bottom - other_top)
    union = areas - both
    around = (_greatest(right, other_right) - _least(left, other_left)) * (
        _greatest(bottom, other_bottom) - _least(top, other_top)
    )
    return safe_ratio(both, union) - safe_ratio(around - union, around)


def _least(first: Value, *others: Value) -> Value:
    for other in others:
        first = call_elementwise(Minimum(), first, other)
    return first


def _greatest(first: Value, second: Value) -> Value:
    return call_elementwise(Maximum(), first, second)


def _any(flags: Value, dtype: DType) -> Value:
    """Whether any flag along axis 1 is set: (N, M, G) → (N, G)."""
    return call_elementwise(Greater(), ReduceMax((1,))(cast(flags, dtype)), 0.5)
