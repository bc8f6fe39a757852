"""All kernels of this backend: importing this module registers them."""

from __future__ import annotations

from netspec.backends.cuda import (
    convolution,
    elementwise,
    foreach,
    indexing,
    local_response,
    moves,
    normalization,
    pooling,
    products,
    random,
    recurrence,
    reduce,
    row_normalization,
    rows,
    vectors,
)

__all__ = [
    "convolution",
    "elementwise",
    "foreach",
    "indexing",
    "local_response",
    "moves",
    "normalization",
    "pooling",
    "products",
    "random",
    "recurrence",
    "reduce",
    "row_normalization",
    "rows",
    "vectors",
]
