"""AnchorFreeBoxes: boxes and class probabilities from the output of a detector's last convolution."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import ClassVar, Literal

from netspec.graph.ops.elementwise import Minimum, call_elementwise
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Concat, Slice, Transpose
from netspec.graph.ops.source import constant
from netspec.graph.ops.unary import Exp, Sigmoid
from netspec.graph.value import Value, require_precomputable
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require
from netspec.layers.losses_and_metrics import PredictionKind
from netspec.layers.vision.boxes import BoxSelection
from netspec.schema.specs.kinds import LAYERS

PRIOR = 0.01
"""Probability of each class in an untrained net, whose outputs are near 0. Lin et al. 2017, arXiv:1708.02002."""
MAX_LOG_SIZE = 6.0
"""Bound on the logarithm of a box's width and height in cells."""


@dataclass(frozen=True)
class CellPredictions:
    """Predictions of each cell of a grid; G cells in total, in the order of rows."""

    boxes: Value
    """(N, G, 4): left, top, right, bottom in fractions of the image."""
    logits: Value
    """(N, G, classes): scores before the sigmoid."""
    rows: int
    columns: int

    @classmethod
    def of(cls, builder: Builder, head: Value) -> CellPredictions:
        """Decode a convolution's output (N, 4 + classes, rows, columns). Raises a located error for other shapes."""
        require(
            len(head.shape) == 4 and head.shape[1] > 4,
            "the input is not the grid of a detector",
            expected="(batch, 4 + classes, rows, columns)",
            got=head.type,
        )
        count, channels, rows, columns = head.shape
        cells = Transpose((0, 2, 1))(reshape_to(builder.floating(head), (count, channels, rows * columns)))
        x, y, width, height = (Slice(2, index, index + 1)(cells) for index in range(4))
        column, row = cell_centers(rows, columns, str(cells.dtype))
        x, y = (column + x) * (1 / columns), (row + y) * (1 / rows)
        half_width, half_height = (
            Exp()(call_elementwise(Minimum(), size, MAX_LOG_SIZE)) * (0.5 / cells_along)
            for size, cells_along in ((width, columns), (height, rows))
        )
        boxes = Concat(2)(x - half_width, y - half_height, x + half_width, y + half_height)
        logits = Slice(2, 4, channels)(cells) - log((1 - PRIOR) / PRIOR)
        return cls(boxes, logits, rows, columns)


def cell_centers(rows: int, columns: int, dtype: str) -> tuple[Value, Value]:
    """Return the column and the row of each cell's center, counted in cells: (1, G, 1) each."""
    import numpy as np

    require_precomputable(rows * columns, "cells of a detector")
    row, column = (np.indices((rows, columns)) + 0.5).reshape(2, 1, rows * columns, 1).astype(dtype)
    return constant(column), constant(row)


@LAYERS.register
class AnchorFreeBoxes(BoxSelection, LayerSpec):
    """Boxes and class probabilities of an anchor-free detector, from the output of its last convolution.

    Input (N, 4 + classes, H, W): for each cell x, y, w, h and a score of each class. Output (N, H · W, 4 + classes):
    left, top, right and bottom in fractions of the image, and the probabilities. For the cell in column i and row j,
    the center of the box is (i + ½ + x) / W, (j + ½ + y) / H, its size exp(w) / W, exp(h) / H, and a probability is
    sigmoid(score - ln 99), 1 % in a new net. Several inputs, from a feature pyramid, are concatenated. Ge et al. 2021,
    "YOLOX", arXiv:2107.08430.

    `score_threshold`, `nms_threshold` and `max_detections` select the boxes that `netspec predict` shows. They do not
    change the output. Train the input of the layer with the loss AnchorFreeDetection.
    """

    type: Literal["AnchorFreeBoxes"] = "AnchorFreeBoxes"
    prediction_kind: ClassVar[PredictionKind] = "boxes"
    onnx_roundtrip_blocker: ClassVar = "it is written as the operations that it consists of"

    samples: ClassVar = (
        Sample.of((2, 6, 3, 4)),
        Sample.of((1, 5, 4, 4), (1, 5, 2, 2), score_threshold=0.05, nms_threshold=0.6, max_detections=10),
    )

    def build(self, builder: Builder, *heads: Value) -> Value:
        """heads: (N, 4 + classes, H, W) each → (N, sum of H · W, 4 + classes)."""
        require(bool(heads), "there is no input", expected="(batch, 4 + classes, rows, columns)")
        levels = []
        for head in heads:
            cells = CellPredictions.of(builder, head)
            levels.append(Concat(2)(cells.boxes, Sigmoid()(cells.logits)))
        channels = {level.shape[2] for level in levels}
        require(
            len(channels) == 1, "the inputs have different numbers of classes", expected="as many channels in each",
            got=", ".join(str(head.shape[1]) for head in heads),
        )  # fmt: skip
        return levels[0] if len(levels) == 1 else Concat(1)(*levels)
