"""All kernels of this backend: importing this module registers them."""

from __future__ import annotations

from netspec.backends.cuda import (
    alignment,
    convolution,
    cropping,
    cumulative,
    elementwise,
    foreach,
    indexing,
    local_response,
    moves,
    normalization,
    pooling,
    products,
    random,
    ranks,
    recurrence,
    reduce,
    resizing,
    row_normalization,
    rows,
    vectors,
)

__all__ = [
    "alignment",
    "convolution",
    "cropping",
    "cumulative",
    "elementwise",
    "foreach",
    "indexing",
    "local_response",
    "moves",
    "normalization",
    "pooling",
    "products",
    "random",
    "ranks",
    "recurrence",
    "reduce",
    "resizing",
    "row_normalization",
    "rows",
    "vectors",
]
