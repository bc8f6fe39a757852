"""The selection of a detector's boxes as operators of an exported model, with ONNX's NonMaxSuppression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.exchange.formats.onnx.wrapper import NodeWriter, RawTensor, Wrapper
from netspec.layers.vision.boxes import MAX_CANDIDATES, BoxSelection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

ABSENT = -1
"""Class of the rows after the last detection of a sample."""


@dataclass(frozen=True)
class SelectedBoxes:
    """The detections in an output (N, cells, 4 + classes) of the net, as three outputs, the most probable first.

    `boxes` (N, D, 4) are left, top, right and bottom edge in fractions of the image that the net sees, `scores` (N, D)
    probabilities, and `classes` (N, D) indices, -1 behind the last detection.
    """

    source: str
    """The output of the net."""
    shape: tuple[int, int]
    """Shape of a sample of that output."""
    selection: BoxSelection
    names: tuple[str, str, str]
    """Names of the outputs for boxes, scores and classes."""

    @property
    def count(self) -> int:
        """Number of rows of the outputs."""
        cells, channels = self.shape
        return min(self.selection.max_detections, cells * (channels - 4), MAX_CANDIDATES)

    def select(self, output: Array) -> dict[str, Array]:
        """Return the outputs for an output of the net, computed as `netspec predict` does."""
        rows = np.zeros((len(output), self.count, 6))
        rows[:, :, 5] = ABSENT
        for sample, prediction in enumerate(output):
            selected = self.selection.select(prediction)
            rows[sample, : len(selected)] = selected
        values = rows[..., :4].astype(np.float32), rows[..., 4].astype(np.float32), rows[..., 5].astype(np.int64)
        return dict(zip(self.names, values, strict=True))

    def add_to(self, wrapper: Wrapper) -> None:
        """Add the operators."""
        shapes: Sequence[tuple[int, ...]] = ((self.count, 4), (self.count,), (self.count,))
        for name, shape, dtype in zip(self.names, shapes, ("float32", "float32", "int64"), strict=True):
            wrapper.outputs[name] = RawTensor(dtype, shape)
        wrapper.consumed.append(self.source)
        writer = NodeWriter(wrapper, wrapper.after, f"boxes/{self.source}")
        node, constant = writer.node, writer.constant
        cells, channels = self.shape
        classes = channels - 4
        axis = constant([2])
        edges = node("Slice", self.source, constant([0]), constant([4]), axis)
        edges = node("Clip", edges, constant(0, "float32"), constant(1, "float32"))
        scores = node("Slice", self.source, constant([4]), constant([channels]), axis)
        scores = node("Reshape", scores, constant([0, cells * classes]))
        if cells * classes > MAX_CANDIDATES:
            largest, indices = writer.top(scores, MAX_CANDIDATES)
            nothing = node("Sub", node("Mul", scores, constant(0, "float32")), constant(1, "float32"))
            scores = node("ScatterElements", nothing, indices, largest, axis=1)
        too_low = node("Less", scores, constant(self._threshold(), "float32"))
        scores = node("Where", too_low, constant(-1, "float32"), scores)
        scores = node("Reshape", scores, constant([0, cells, classes]))
        scores = node("Transpose", scores, perm=[0, 2, 1])
        selected = node(
            "NonMaxSuppression", edges, scores, constant([self.count]),
            constant([self.selection.nms_threshold], "float32"), constant([-0.5], "float32"),
        )  # fmt: skip
        nothing = node("Sub", node("Mul", scores, constant(0, "float32")), constant(1, "float32"))
        kept = node("ScatterND", nothing, selected, node("GatherND", scores, selected))
        kept = node("Reshape", node("Transpose", kept, perm=[0, 2, 1]), constant([0, cells * classes]))
        values, indices = writer.top(kept, self.count)
        is_absent = node("Less", values, constant(0, "float32"))
        boxes, probabilities, labels = self.names
        node("Where", is_absent, constant(0, "float32"), values, output=probabilities)
        node("Where", is_absent, constant(ABSENT), node("Mod", indices, constant(classes)), output=labels)
        cell = node("Reshape", node("Div", indices, constant(classes)), constant([0, self.count, 1]))
        edges = node("GatherElements", edges, node("Concat", cell, cell, cell, cell, axis=2), axis=1)
        absent = node("Reshape", is_absent, constant([0, self.count, 1]))
        node("Where", absent, constant(0, "float32"), edges, output=boxes)

    def _threshold(self) -> np.float32:
        """Return the smallest float32 that is at least the threshold."""
        threshold = np.float32(self.selection.score_threshold)
        return threshold if threshold >= self.selection.score_threshold else np.nextafter(threshold, np.float32(2))
