"""Resampling of spatial axes with kernels that reach further than to the next element, as products with matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netspec.graph.ops.elementwise import cast
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.source import constant
from netspec.graph.value import Value


@dataclass(frozen=True)
class Filter:
    """What an element counts by its distance from a center: 0 from `reach` on."""

    name: str
    reach: int

    def at(self, distance: Any) -> Any:
        """The weights of an array of distances, before they are made to sum to 1."""
        import numpy as np

        x = np.abs(distance)
        if self.name == "bilinear":
            return np.maximum(1 - x, 0)
        if self.name == "bicubic":  # Keys 1981, with a = -1/2
            return np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, ((2.5 - 0.5 * x) * x - 4) * x + 2, 0))
        return np.where(x < self.reach, np.sinc(x) * np.sinc(x / self.reach), 0)  # Lanczos


_REACHES = {"bilinear": 1, "bicubic": 2, "lanczos3": 3, "lanczos5": 5}
FILTERS = {name: Filter(name, reach) for name, reach in _REACHES.items()}


def weights(size: int, wanted: int, filter_: Filter, *, antialias: bool) -> Any:
    """(wanted, size): by how much each element counts in each of the result. Rows sum to 1.

    Places are the centers of elements. With `antialias` the filter is stretched where the result is the smaller one, so
    that every element counts.
    """
    import numpy as np

    step = size / wanted
    centers = (np.arange(wanted) + 0.5) * step - 0.5
    stretch = max(step, 1.0) if antialias else 1.0
    made = filter_.at((np.arange(size) - centers[:, None]) / stretch)
    return made / made.sum(axis=1, keepdims=True)


def resampled(x: Value, sizes: tuple[int, int], interpolation: str, *, antialias: bool) -> Value:
    """x: (N, C, H, W) → (N, C, *sizes)."""
    height, width = (
        cast(constant(weights(size, wanted, FILTERS[interpolation], antialias=antialias)), x.dtype)
        for size, wanted in zip(x.shape[2:], sizes, strict=True)
    )
    return MatMul()(height, MatMul(transpose_b=True)(x, width))
