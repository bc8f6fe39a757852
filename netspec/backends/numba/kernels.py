"""All kernels of this backend: importing this module registers them."""

from __future__ import annotations

from netspec.backends.numba import (
    alignment,
    convolution,
    elementwise,
    foreach,
    group_normalization,
    layer_normalization,
    local_response,
    moves,
    normalization,
    pooling,
    random,
    recurrence,
    reduce,
    row_product,
    rows,
    vectors,
)

__all__ = [
    "alignment",
    "convolution",
    "elementwise",
    "foreach",
    "group_normalization",
    "layer_normalization",
    "local_response",
    "moves",
    "normalization",
    "pooling",
    "random",
    "recurrence",
    "reduce",
    "row_product",
    "rows",
    "vectors",
]
