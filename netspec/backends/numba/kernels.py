"""All kernels of this backend: importing this module registers them."""

from __future__ import annotations

from netspec.backends.numba import elementwise as elementwise
from netspec.backends.numba import pooling as pooling
from netspec.backends.numba import reduce as reduce
