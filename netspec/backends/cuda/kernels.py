"""All kernels of this backend: importing this module registers them."""

from __future__ import annotations

from netspec.backends.cuda import elementwise, foreach, local_response, moves, pooling, random, reduce, rows, vectors

__all__ = ["elementwise", "foreach", "local_response", "moves", "pooling", "random", "reduce", "rows", "vectors"]
