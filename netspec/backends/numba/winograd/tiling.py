"""Convolutions split into tiles: sizes, scratch memory, and the calls that compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import ceil
from typing import Any

import numpy as np

from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.loops import element_strides
from netspec.backends.common.scratch import ScratchMemory
from netspec.backends.numba.winograd.codegen import (
    INVERSE_KERNEL,
    KERNEL,
    PRODUCT,
    TRANSFORM,
    WEIGHTS,
    code,
    epilogue_placeholders,
)
from netspec.backends.numba.winograd.matrices import MinimalFilter
from netspec.graph.kernel import Thunk
from netspec.graph.types import DType

LANES = 16
FLOAT = DType.FLOAT32.itemsize
SIDE_BY_SIDE = (4, 6, 5, 7, 3, 2, 1)
"""Vectors of filters in a tile of products, best first: their number must divide the filters."""
ROWS = {1: 16, 2: 8, 3: 8, 4: 6, 5: 4, 6: 4, 7: 3}
"""Rows of such a tile: they fill most of 32 registers. The last rows may be empty."""
EQUAL_ROWS = {1: 16, 2: 8, 3: 8, 4: 4, 5: 4, 6: 4, 7: 2}
"""Row counts that divide all channel counts."""
FEW = 128
"""Tiles that are summed before the sum is added to the total."""
PAD = 16
"""Elements between matrices of an array, to avoid cache conflicts."""
BLOCK_BYTES = 8 << 20
"""Bytes of transformed tiles at a time: they should stay in the shared cache with the transformed kernel."""
PART_BYTES = 448 << 10
"""Bytes of products before they are transformed back: they should stay in a core's own cache."""


@dataclass(frozen=True)
class TransformedWeights:
    """Layout of a transformed kernel: (points, groups of filters, channels, filters of a group).

    If `turned`, it is for the input gradient: filters and channels are exchanged, and taps are reversed.
    """

    filtering: MinimalFilter
    filters: int
    channels: int
    turned: bool

    @property
    def vectors(self) -> int:
        """Number of vectors of filters in a group."""
        return next(count for count in SIDE_BY_SIDE if self.filters // LANES % count == 0)

    @property
    def wide(self) -> int:
        """Number of filters in a group."""
        return LANES * self.vectors

    @property
    def step(self) -> int:
        """Elements between the matrices of adjacent points."""
        return self.filters * self.channels + PAD

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return self.filtering.points * self.step * FLOAT

    def __str__(self) -> str:
        turned = " turned" if self.turned else ""
        return f"F({self.filtering.outputs}, {self.filtering.taps}){turned} f32[{self.filters}, {self.channels}]"

    def bind(self, w: Any, u: Any) -> Thunk:
        """A call that transforms the kernel w to u."""
        wm, wc, wi, wj = element_strides(w)
        start = 0
        if self.turned:
            start, wm, wc, wi, wj = (self.filtering.taps - 1) * (wi + wj), wc, wm, -wi, -wj
        compiled = code(KERNEL, 2, 7, self.filtering, wide=self.wide)
        return compiled.bind(self.filters // LANES, 4 * w.size, w, u, start, self.channels, wc, wm, wi, wj, self.step)


@dataclass(frozen=True)
class Tiling:
    """The split of images of `height` x `width` results into tiles, and the number of workers."""

    filtering: MinimalFilter
    batch: int
    height: int
    width: int
    workers: int

    @property
    def down(self) -> int:
        """Tiles of an image along its height."""
        return ceil(self.height / self.filtering.outputs)

    @property
    def across(self) -> int:
        """Tiles of an image along its width."""
        return ceil(self.width / self.filtering.outputs)

    @property
    def count(self) -> int:
        """Tiles of all images."""
        return self.batch * self.down * self.across

    def block(self, nbytes: int) -> int:
        """Tiles per block, all blocks equal, if a tile takes `nbytes`."""
        return ceil(self.count / ceil(self.count * nbytes / BLOCK_BYTES))


@dataclass(frozen=True)
class TileTransform:
    """The transform of an operand's tiles, `block` at a time: to (points, tiles, channels)."""

    tiling: Tiling
    operand: str
    channels: int
    pads: tuple[int, int]
    block: int

    @property
    def side(self) -> int:
        """Size of a tile before the transform."""
        filtering = self.tiling.filtering
        return filtering.size if self.operand == "data" else filtering.outputs

    @property
    def step(self) -> int:
        """Elements between the matrices of adjacent points."""
        return (self.block + max(ROWS.values())) * self.channels + PAD

    def arrays(self, scratch: ScratchMemory) -> tuple[Any, Any]:
        """Memory for the transformed tiles, and for each worker's tile at the edge."""
        edges = self.tiling.workers * self.side**2 * self.channels
        return scratch.take(self.tiling.filtering.points * self.step), scratch.take(edges)

    def bind(self, x: Any, v: Any, edge: Any, begin: int, count: int) -> Thunk:
        """A call for `count` tiles from `begin` on."""
        tiling, (xn, _, xh, xw) = self.tiling, element_strides(x)
        compiled = code(TRANSFORM, 4, 14, tiling.filtering, operand=self.operand, side=self.side)
        return compiled.bind(
            tiling.workers, count * self.channels * tiling.filtering.points, x, v, edge, _zero(), begin, count,
            tiling.workers, tiling.down, tiling.across, *self.pads, *x.shape[2:], self.channels, xn, xh, xw, self.step,
        )  # fmt: skip


@cache
def _zero() -> Any:
    return np.zeros(1, np.float32)


@dataclass(frozen=True)
class Correlation:
    """y = x ∗ w: a convolution, or its gradient with respect to the input. `pads`: zeros at the top and left."""

    form: TransformedWeights
    tiling: Tiling
    pads: tuple[int, int]

    @cached_property
    def spread(self) -> TileTransform:
        """The transform of x."""
        block = self.tiling.block(FLOAT * self.tiling.filtering.points * self.form.channels)
        return TileTransform(self.tiling, "data", self.form.channels, self.pads, block)

    @property
    def groups(self) -> int:
        """Groups of filters."""
        return self.form.filters // self.form.wide

    @cached_property
    def part(self) -> int:
        """Tiles whose products are computed and transformed back at a time: whole rows, balanced over workers."""
        rows, workers, block = ROWS[self.form.vectors], self.tiling.workers, self.spread.block
        parts = ceil(block * FLOAT * self.tiling.filtering.points * self.form.wide / PART_BYTES)
        while parts * self.groups % workers and parts < block:
            parts += 1
        return ceil(ceil(block / parts) / rows) * rows

    @property
    def step(self) -> int:
        """Elements of products between adjacent points."""
        return self.part * self.form.wide + PAD

    def arrays(self, scratch: ScratchMemory) -> tuple[Any, Any, Any, Any]:
        """Memory for the transformed tiles, a tile at the edge, the products, and the results of a tile."""
        filtering, workers = self.tiling.filtering, self.tiling.workers
        return (
            *self.spread.arrays(scratch),
            scratch.take(workers * filtering.points * self.step),
            scratch.take(workers * filtering.outputs**2 * self.form.wide),
        )

    def bind(
        self, x: Any, u: Any, y: Any, workspace: Any, extras: Sequence[Any], lines: Sequence[str], name: str
    ) -> Thunk:
        """The calls for all blocks, with an epilogue on each result (see `epilogue_placeholders`)."""
        v, edge, z, products = self.arrays(ScratchMemory(workspace, DType.FLOAT32))
        after, steps = epilogue_placeholders(lines, name, extras, y)
        form, tiling, (yn, _, yh, yw) = self.form, self.tiling, element_strides(y)
        product = code(
            PRODUCT, 5 + len(extras), 18 + len(steps), tiling.filtering, rows=ROWS[form.vectors], vectors=form.vectors,
            wide=form.wide, **after,
        )  # fmt: skip
        calls = []
        for begin in range(0, tiling.count, self.spread.block):
            count = min(self.spread.block, tiling.count - begin)
            calls.append(self.spread.bind(x, v, edge, begin, count))
            calls.append(product.bind(
                tiling.workers, count * form.filters * form.channels, v, u, z, products, y, *extras, begin, count,
                tiling.workers, ceil(count / self.part), self.part, self.groups, tiling.down, tiling.across,
                *y.shape[2:], form.channels, form.wide, self.spread.step, form.step, self.step, yn, yh, yw, *steps,
            ))  # fmt: skip
        return chain(calls)


@dataclass(frozen=True)
class WeightGradient:
    """dw = Gᵀ [Σ over tiles (Bᵀ x B) ∘ (A dy Aᵀ)] G, with sums over tiles."""

    form: TransformedWeights
    tiling: Tiling
    pads: tuple[int, int]

    @cached_property
    def block(self) -> int:
        """Number of tiles at a time: the more, the less often the sums are read and written."""
        nbytes = FLOAT * self.tiling.filtering.points * (self.form.channels + self.form.filters)
        block = self.tiling.block(min(nbytes, nbytes * BLOCK_BYTES // self.form.nbytes))
        return ceil(block / FEW) * FEW

    @cached_property
    def operands(self) -> tuple[TileTransform, TileTransform]:
        """The transforms of dy and x."""
        return (
            TileTransform(self.tiling, "result_gradient", self.form.filters, (0, 0), self.block),
            TileTransform(self.tiling, "data", self.form.channels, self.pads, self.block),
        )

    def arrays(self, scratch: ScratchMemory) -> tuple[Any, Any, Any, Any, Any]:
        """Memory for the transformed tiles of both, tiles at the edge, and the sums."""
        dy, x = self.operands
        return *dy.arrays(scratch), *x.arrays(scratch), scratch.take(self.form.nbytes // FLOAT)

    def bind(self, dy: Any, x: Any, dw: Any, workspace: Any) -> Thunk:
        """The calls for all blocks, and the last one, which computes dw from the sums."""
        w, dy_edge, v, x_edge, z = self.arrays(ScratchMemory(workspace, DType.FLOAT32))
        form, tiling, (of_dy, of_x) = self.form, self.tiling, self.operands
        rows, filtering = EQUAL_ROWS[form.vectors], tiling.filtering
        product = code(WEIGHTS, 3, 9, filtering, rows=rows, vectors=form.vectors, wide=form.wide, few=FEW)
        groups, blocks = form.filters // form.wide, form.channels // rows
        calls = []
        for begin in range(0, tiling.count, self.block):
            count = min(self.block, tiling.count - begin)
            calls += [of_dy.bind(dy, w, dy_edge, begin, count), of_x.bind(x, v, x_edge, begin, count)]
            calls.append(product.bind(
                filtering.points * groups * blocks, count * form.channels * form.filters, v, w, z, count, blocks,
                groups, form.channels, form.filters, of_x.step, of_dy.step, form.step, begin,
            ))  # fmt: skip
        wm, wc, wi, wj = element_strides(dw)
        back = code(INVERSE_KERNEL, 2, 6, filtering, wide=form.wide)
        size = form.filters // LANES
        return chain([*calls, back.bind(size, 4 * dw.size, z, dw, form.channels, wc, wm, wi, wj, form.step)])
