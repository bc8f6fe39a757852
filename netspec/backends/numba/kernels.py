"""All kernels of this backend: importing this module registers them."""

from __future__ import annotations

from netspec.backends.numba import elementwise as elementwise
from netspec.backends.numba import pooling as pooling
from netspec.backends.numba import reduce as reduce
from netspec.backends.numba import random as random
from netspec.backends.numba import rows as rows
from netspec.backends.numba import vectors as vectors
from netspec.backends.numba import moves as moves
from netspec.backends.numba import normalization as normalization
