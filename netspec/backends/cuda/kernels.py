"""All kernels of this backend: importing this module registers them."""

from __future__ import annotations

from netspec.backends.cuda import (
    convolution,
    elementwise,
    foreach,
    local_response,
    moves,
    pooling,
    products,
    random,
    reduce,
    rows,
    vectors,
)

__all__ = [
    "convolution",
    "elementwise",
    "foreach",
    "local_response",
    "moves",
    "pooling",
    "products",
    "random",
    "reduce",
    "rows",
    "vectors",
]
