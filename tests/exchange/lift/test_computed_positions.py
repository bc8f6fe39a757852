"""Operators with computed sampling positions, or that return positions: each small model against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.exchange.lift.models.generic import floats, ints, node
from tests.exchange.lift.models.operators import case, computes_as_onnxruntime

THETA = np.array([[[0.9, 0.2, 0.1], [-0.3, 1.1, -0.2]]] * 2, "float32")
PARTS = np.array([[0, 0.4, 0.7, 5, 3.6], [1, -1.5, 1, 2.5, 7], [1, 1, 1, 0.5, 0.5], [0, 9, 9, 12, 12]], "float32")
"""Parts of images, each with its image's index first: several pixels each, beyond the border, empty, and outside."""
LARGE = np.array([[0, -40, 2, 1e3, 8], [1, 1, -300, 7.3, 500], [1, 5, 3, 2, 1], [0, 2, 2, 8, 8]], "float32")
CASES: dict[str, Any] = {
    "places of several images": case(
        node("GridSample", "x z"), "{name: y, type: GridSample, from: [x, z]}", opset=20, x="f 2 3 4 5", z="f 2 3 2 2"
    ),
    "an image turned": case(
        [node("AffineGrid", "t s", "g"), node("GridSample", "x g")],
        "{name: y, type: GridSample, from: [x, g]}", opset=20, x="f 2 3 4 5", t=THETA, s=ints(2, 3, 4, 5),
    ),
    "parts of as many places as pixels": case(
        node("RoiAlign", "x r i", output_height=2, output_width=3, sampling_ratio=0),
        "{name: y, type: RoiAlign, from: [x, r, i], height: 2, width: 3, sampling_ratio: 0}",
        x="f 2 3 6 5", r=PARTS[:, 1:], i=PARTS[:, 0].astype("int64"),
    ),
    "the greatest of parts of as many places as pixels": case(
        node("RoiAlign", "x r i", output_height=2, output_width=3, mode="max"),
        "{name: y, type: RoiAlign, from: [x, r, i], height: 2, width: 3, sampling_ratio: 0, mode: max}",
        x="f 2 3 6 5", r=PARTS[:, 1:], i=PARTS[:, 0].astype("int64"),
    ),
    "the greatest of large parts": case(
        node("RoiAlign", "x r i", output_height=2, mode="max", coordinate_transformation_mode="output_half_pixel"),
        "{name: y, type: RoiAlign, from: [x, r, i], height: 2, sampling_ratio: 0, mode: max, aligned: false}",
        x="f 2 3 6 5", r=LARGE[:, 1:], i=LARGE[:, 0].astype("int64"),
    ),
    "the greatest of parts": case(
        node("MaxRoiPool", "x r", pooled_shape=[2, 3], spatial_scale=0.75),
        "{name: y, type: MaxRoiPooling2D, from: [x, r_1, r_4], height: 2, width: 3, spatial_scale: 0.75}",
        x="f 2 3 6 5", r=PARTS,
    ),
    "bits": case(
        node("BitCast", "x", to=6), "{name: y, type: BitCast, dtype: int32}", opset=26, result="s", x="f N 3"
    ),
    "windows that look beside": case(
        node("DeformConv", "x w o b m", pads=[1, 1, 1, 1], offset_group=2),
        "{name: y, type: DeformConv2D, from: [x, o, m], filters: 2, kernel_size: 3, padding: 1, "
        "offset_groups: 2}",
        opset=19, x="f N 4 5 4", w=floats(2, 4, 3, 3), o="f N 36 5 4", b=floats(2), m="f N 18 5 4",
    ),
    "places of maxima": case(
        helper.make_node("MaxPool", ["x"], ["p", "y"], kernel_shape=[2, 2]),
        '{name: y, type: Expression, from: [y_1, y_2], expr: "x + y", keep_types: true}', result="i", x="f 2 3 4 5",
    ),
    "places of maxima by columns": case(
        helper.make_node("MaxPool", ["x"], ["p", "y"], kernel_shape=[2, 2], storage_order=1),
        '{name: y, type: Expression, from: [y_1, y_2], expr: "quotient(x, 5) + x % 5 * 4 + y", keep_types: true}',
        result="i", x="f 2 3 4 5",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_operator_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    computes_as_onnxruntime(CASES[name], tmp_path)
