"""Which tiles a convolution is cut into, and where that gains nothing: by an estimate of the work.

In cycles of a core that multiplies and adds a vector of 16 numbers in each, fitted to layers of the nets in
`benchmarks/nets`: where the estimate says 1.4 times as fast as a direct one, 1.05 to 1.3 were measured with one and two
threads, where it says 1.9, 1.6 to 1.9.
"""

from __future__ import annotations

from functools import cache
from math import ceil

from netspec.backends.numba.minimal import Filtering
from netspec.graph.rates import CORE
from netspec.graph.types import TensorType

LANES = 16
PRODUCT = 1.1
"""Cycles for each vector of products, direct ones too."""
INPUT, RESULT = 13.0, 20.0
"""For each point of a tile and each vector of channels: to transform it, and to transform it back."""
BYTES = 3.0
"""Of kernels, read and written in a cycle."""
CALL = 20000.0
"""To have the threads begin twice."""
ROWS = 6
"""Tiles that go through a product side by side, for two threads at least: of fewer it computes as many."""
GAIN = 1.4
"""How many times as fast it must be at least."""

TILES = {3: (Filtering(4, 3), Filtering(2, 3)), 5: (Filtering(2, 5),)}


@cache
def best(taps: int, filters: int, channels: int, results: TensorType) -> Filtering | str:
    """The tiles for a convolution with so many results (those that are cut into tiles), or why none gains anything."""
    batch, _, height, width = results.shape
    weights = filters * channels
    direct = PRODUCT * batch * height * width * taps**2 * weights / LANES + 4 * taps**2 * weights / BYTES
    cycles = {
        one: _cycles(one, filters, channels, batch * ceil(height / one.outputs) * ceil(width / one.outputs))
        for one in TILES[taps]
    }
    found = min(cycles, key=lambda one: cycles[one])
    gain = direct / cycles[found]
    return found if gain >= GAIN else f"{gain:.2f} times as fast as a direct one, too little for what it rounds"


def seconds(one: Filtering, filters: int, channels: int, tiles: int) -> float:
    """What it takes to convolve so many tiles, beside a core that does `CORE.flops` in a second."""
    return _cycles(one, filters, channels, tiles) * 2 * LANES / CORE.flops


def _cycles(one: Filtering, filters: int, channels: int, tiles: int) -> float:
    weights = filters * channels
    products = PRODUCT * max(ceil(tiles / ROWS), 2) * ROWS * weights / LANES
    transforms = tiles * (INPUT * channels + RESULT * filters) / LANES
    return CALL + one.points * (products + transforms + 4 * weights / BYTES)
