"""The fast pooling that computes expected results of ONNX's cases equals ONNX's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference.ops.op_pool_common import pool as pool_of_onnx

from tests.exchange.backend.fast_cases import pool


@pytest.mark.parametrize("kind", ["MAX", "AVG", "LPPOOL"])
@pytest.mark.parametrize("counts_padding", [0, 1])
@pytest.mark.parametrize(
    ("padding", "needed", "strides", "dilations"),
    [
        ([0, 0, 0, 0], None, None, None),
        ([1, 0, 1, 2], [1, 0, 1, 2], [2, 3], [1, 1]),
        ([0, 0, 0, 0], [0, 0, 1, 0], [2, 2], [1, 1]),  # rounded up: one row of windows reaches beyond the data
        ([1, 1, 1, 1], [1, 1, 1, 1], [1, 2], [2, 2]),
    ],
)
def test_pools_as_onnx_does(
    kind: str,
    counts_padding: int,
    padding: list[int],
    needed: list[int] | None,
    strides: list[int] | None,
    dilations: list[int] | None,
) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 6, 7))
    (top, left, bottom, right), outside = padding, np.nan if kind == "MAX" or not counts_padding else 0
    sides = ((0, 0), (0, 0), (top, bottom if needed is None else needed[2]), (left, right))
    padded = np.pad(x, sides, constant_values=outside)
    kernel, spacing, total = (2, 3), dilations or [1, 1], needed or padding
    shape = [
        (size + total[i] + total[i + 2] - (kernel[i] - 1) * spacing[i] - 1) // (strides or [1, 1])[i] + 1
        for i, size in enumerate(x.shape[2:])
    ]
    arguments: Any = (padded, x.shape, kernel, strides, shape, kind, needed, padding, dilations, counts_padding, 3)
    np.testing.assert_allclose(pool(*arguments), pool_of_onnx(*arguments), rtol=1e-12)
