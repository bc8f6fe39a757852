"""Load the cases of ONNX's test suite in a second: at import, ONNX computes expected results with slow array code."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.backend.test.case.base as snippets
import onnx.reference.ops.op_pool_common as pooling
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx.backend.test.loader import load_model_tests


def load_node_cases() -> None:
    """Import the cases of single nodes, with `pool` in place of ONNX's function, and without their source code."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 1/0, log(0) …
        patch.setattr(pooling, "pool", pool)
        patch.setattr(snippets, "process_snippet", lambda op_name, name, export: (name, ""))
        load_model_tests(kind="node")


def pool(
    padded: np.ndarray,
    x_shape: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    out_shape: Sequence[int],
    pooling_type: str,
    pads_required: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    count_include_pad: int = 0,
    p: int = 1,
) -> np.ndarray:
    """Return what ONNX's function of this name returns, from one view of all windows. Arguments are the same."""
    rank = len(kernel)
    steps, spacing = strides or [1] * rank, dilations or [1] * rank
    ends = [slice(size + low + high) for size, low, high in zip(x_shape[2:], *_sides(pads, rank), strict=True)]
    needed = [size + low + high for size, low, high in zip(x_shape[2:], *_sides(pads_required, rank), strict=True)]
    # Rounding up adds windows that reach beyond the padding; elements there do not count.
    values = np.full((*padded.shape[:2], *np.maximum(padded.shape[2:], needed)), np.nan, padded.dtype)
    part = padded[:, :, *ends]
    values[:, :, *map(slice, part.shape[2:])] = part
    extents = [1 + (size - 1) * gap for size, gap in zip(kernel, spacing, strict=True)]
    counts = [int((size - extent) / step + 1) for size, extent, step in zip(needed, extents, steps, strict=True)]
    axes = tuple(range(2, 2 + rank))
    windows = sliding_window_view(values, extents, axes)
    starts = [slice(0, (count - 1) * step + 1, step) for count, step in zip(counts, steps, strict=True)]
    windows = windows[:, :, *starts, *(slice(None, None, gap) for gap in spacing)]
    return np.asarray(_reduced(windows, tuple(range(-rank, 0)), pooling_type, p), padded.dtype)


def _sides(pads: Sequence[int] | None, rank: int) -> tuple[Sequence[int], Sequence[int]]:
    pads = [0] * 2 * rank if pads is None else list(pads) * (2 * rank if len(pads) == 1 else 1)
    return pads[:rank], pads[rank:]


def _reduced(windows: np.ndarray, axes: tuple[int, ...], pooling_type: str, p: int) -> Any:
    if pooling_type == "MAX":
        return np.nanmax(windows, axes)
    if pooling_type == "AVG":
        return np.nanmean(windows, axes)
    return np.nansum(np.abs(windows) ** p, axes) ** (1 / p)
