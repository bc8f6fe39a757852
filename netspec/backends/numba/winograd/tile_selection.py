"""Selection of tiles for a convolution, from an estimate of the work; None if tiles do not pay off.

Costs are cycles of a core that multiplies and adds a vector of 16 elements per cycle, fitted to layers of the nets of
the benchmarks. If the estimated speedup over a direct convolution is 1.4, the speedup measured with one and two threads
is 1.05 to 1.3; if it is 1.9, 1.6 to 1.9.
"""

from __future__ import annotations

from functools import cache
from math import ceil

from netspec.backends.numba.winograd.matrices import MinimalFilter
from netspec.graph.cost_model import DEFAULT_CORE
from netspec.graph.types import TensorType

LANES = 16
PRODUCT = 1.1
"""Cycles for each vector of products, including direct ones."""
INPUT, RESULT = 13.0, 20.0
"""Cycles to transform a vector of channels at each point of a tile, and to transform it back."""
BYTES = 3.0
"""Elements of kernels read and written per cycle."""
CALL = 20000.0
"""Cycles to start the threads twice."""
ROWS = 6
"""Tiles that a product processes together, for at least two threads; fewer tiles take as long."""
GAIN = 1.4
"""Minimum speedup."""

TILES = {3: (MinimalFilter(4, 3), MinimalFilter(2, 3)), 5: (MinimalFilter(2, 5),)}


@cache
def best_filter(taps: int, filters: int, channels: int, results: TensorType) -> MinimalFilter | str:
    """The tiles for a convolution with results of this shape, or why none is faster."""
    batch, _, height, width = results.shape
    weights = filters * channels
    direct = PRODUCT * batch * height * width * taps**2 * weights / LANES + 4 * taps**2 * weights / BYTES
    cycles = {
        tile: _cycles(tile, filters, channels, batch * ceil(height / tile.outputs) * ceil(width / tile.outputs))
        for tile in TILES[taps]
    }
    fastest = min(cycles, key=lambda candidate: cycles[candidate])
    gain = direct / cycles[fastest]
    return (
        fastest
        if gain >= GAIN
        else f"{gain:.2f} times as fast as a direct convolution, which does not outweigh its rounding error"
    )


def estimated_seconds(filtering: MinimalFilter, filters: int, channels: int, tiles: int) -> float:
    """Estimated seconds for this many tiles, relative to `DEFAULT_CORE.flops_per_second`."""
    return _cycles(filtering, filters, channels, tiles) * 2 * LANES / DEFAULT_CORE.flops_per_second


def _cycles(filtering: MinimalFilter, filters: int, channels: int, tiles: int) -> float:
    weights = filters * channels
    products = PRODUCT * max(ceil(tiles / ROWS), 2) * ROWS * weights / LANES
    transforms = tiles * (INPUT * channels + RESULT * filters) / LANES
    return CALL + filtering.points * (products + transforms + 4 * weights / BYTES)
