"""Convolutions cut into tiles: sizes, scratch memory, and the calls that compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import ceil
from typing import Any

from netspec.backends.moves import in_turn
from netspec.backends.numba.minimal import Filtering
from netspec.backends.winograd.sources import BACK, KERNEL, PRODUCT, TRANSFORM, WEIGHTS, code, following, steps_of
from netspec.graph.kernel import Thunk
from netspec.graph.plan import aligned
from netspec.graph.types import DType

LANES = 16
FLOAT = DType.FLOAT32.itemsize
SIDE_BY_SIDE = (4, 6, 5, 7, 3, 2, 1)
"""Vectors of filters in a tile of products, the best first: as many as divide the filters."""
ROWS = {1: 16, 2: 8, 3: 8, 4: 6, 5: 4, 6: 4, 7: 3}
"""Rows of such a tile: together they fill most of 32 registers. The last ones may be no tiles of images."""
EQUAL_ROWS = {1: 16, 2: 8, 3: 8, 4: 4, 5: 4, 6: 4, 7: 2}
"""Those that divide all numbers of channels."""
FEW = 128
"""Tiles that are summed before the sum is added to that of all."""
PAD = 16
"""Elements between matrices of one array, so that what is read together is not of one place of the cache."""
BLOCK_BYTES = 8 << 20
"""Of transformed tiles at a time: with the transformed kernel they should stay in the cache that threads share."""
PART_BYTES = 448 << 10
"""Of products before they are transformed back: they should stay in a core's own cache."""


@dataclass(frozen=True)
class Transformed:
    """The form of a kernel for these products: (points, groups of filters, channels, filters of a group).

    `turned` is that for the gradient by the input, where filters and channels change places and taps their order.
    """

    filtering: Filtering
    filters: int
    channels: int
    turned: bool

    @property
    def vectors(self) -> int:
        """Of filters, side by side in a group."""
        return next(one for one in SIDE_BY_SIDE if self.filters // LANES % one == 0)

    @property
    def wide(self) -> int:
        """Filters of a group."""
        return LANES * self.vectors

    @property
    def step(self) -> int:
        """Elements from the matrix of one point to the next."""
        return self.filters * self.channels + PAD

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return self.filtering.points * self.step * FLOAT

    def __str__(self) -> str:
        turned = " turned" if self.turned else ""
        return f"F({self.filtering.outputs}, {self.filtering.taps}){turned} f32[{self.filters}, {self.channels}]"

    def bind(self, w: Any, u: Any) -> Thunk:
        """A call that makes `u`, of this form, of a kernel."""
        wm, wc, wi, wj = steps_of(w)
        start = 0
        if self.turned:
            start, wm, wc, wi, wj = (self.filtering.taps - 1) * (wi + wj), wc, wm, -wi, -wj
        made = code(KERNEL, 2, 7, self.filtering, wide=self.wide)
        return made.bind(self.filters // LANES, 4 * w.size, w, u, start, self.channels, wc, wm, wi, wj, self.step)


@dataclass(frozen=True)
class Tiling:
    """How images of `height` x `width` results are cut into tiles, and what is done by how many workers."""

    filtering: Filtering
    batch: int
    height: int
    width: int
    workers: int

    @property
    def down(self) -> int:
        """Tiles of an image from top to bottom."""
        return ceil(self.height / self.filtering.outputs)

    @property
    def across(self) -> int:
        """Tiles of an image from left to right."""
        return ceil(self.width / self.filtering.outputs)

    @property
    def count(self) -> int:
        """Of all images."""
        return self.batch * self.down * self.across

    def block(self, nbytes: int) -> int:
        """Tiles that go through at a time, all blocks alike, where a tile takes so many bytes."""
        return ceil(self.count / ceil(self.count * nbytes / BLOCK_BYTES))


class Scratch:
    """Arrays of float32 cut out of a workspace, one after another; without one, their sizes added up."""

    def __init__(self, workspace: Any = None) -> None:
        self.workspace, self.used = workspace, 0

    def take(self, count: int) -> Any:
        """The next `count` elements."""
        size = FLOAT * count
        made = None if self.workspace is None else self.workspace[self.used : self.used + size].view("float32")
        self.used += aligned(size)
        return made


@dataclass(frozen=True)
class Spread:
    """The transform of an operand's tiles, `block` at a time: to (points, tiles, channels)."""

    tiling: Tiling
    what: str
    channels: int
    pads: tuple[int, int]
    block: int

    @property
    def side(self) -> int:
        """Of a tile before."""
        filtering = self.tiling.filtering
        return filtering.size if self.what == "data" else filtering.outputs

    @property
    def step(self) -> int:
        """Elements from the matrix of one point to the next."""
        return (self.block + max(ROWS.values())) * self.channels + PAD

    def arrays(self, scratch: Scratch) -> tuple[Any, Any]:
        """The transformed tiles, and room for a tile at the edge."""
        edges = self.tiling.workers * self.side**2 * self.channels
        return scratch.take(self.tiling.filtering.points * self.step), scratch.take(edges)

    def bind(self, x: Any, v: Any, edge: Any, begin: int, count: int) -> Thunk:
        """A call for `count` tiles from `begin` on."""
        tiling, (xn, _, xh, xw) = self.tiling, steps_of(x)
        made = code(TRANSFORM, 4, 14, tiling.filtering, what=self.what, side=self.side)
        return made.bind(
            tiling.workers, count * self.channels * tiling.filtering.points, x, v, edge, _zero(), begin, count,
            tiling.workers, tiling.down, tiling.across, *self.pads, *x.shape[2:], self.channels, xn, xh, xw, self.step,
        )  # fmt: skip


@cache
def _zero() -> Any:
    import numpy as np

    return np.zeros(1, np.float32)


@dataclass(frozen=True)
class Correlation:
    """y = x ∗ w, whether that is a convolution or the gradient by its input; `pads` are zeros at the top and left."""

    form: Transformed
    tiling: Tiling
    pads: tuple[int, int]

    @cached_property
    def spread(self) -> Spread:
        """What is done to x."""
        block = self.tiling.block(FLOAT * self.tiling.filtering.points * self.form.channels)
        return Spread(self.tiling, "data", self.form.channels, self.pads, block)

    @property
    def groups(self) -> int:
        """Of filters."""
        return self.form.filters // self.form.wide

    @cached_property
    def part(self) -> int:
        """Tiles whose products are made and transformed back at a time: whole rows, as much work for all workers."""
        rows, workers, block = ROWS[self.form.vectors], self.tiling.workers, self.spread.block
        parts = ceil(block * FLOAT * self.tiling.filtering.points * self.form.wide / PART_BYTES)
        while parts * self.groups % workers and parts < block:
            parts += 1
        return ceil(ceil(block / parts) / rows) * rows

    @property
    def step(self) -> int:
        """Elements of products from one point to the next."""
        return self.part * self.form.wide + PAD

    def arrays(self, scratch: Scratch) -> tuple[Any, Any, Any, Any]:
        """The transformed tiles, room for one at the edge, the products, and the results of a tile."""
        filtering, workers = self.tiling.filtering, self.tiling.workers
        return (
            *self.spread.arrays(scratch),
            scratch.take(workers * filtering.points * self.step),
            scratch.take(workers * filtering.outputs**2 * self.form.wide),
        )

    def bind(
        self, x: Any, u: Any, y: Any, workspace: Any, extras: Sequence[Any], lines: Sequence[str], name: str
    ) -> Thunk:
        """The calls for all blocks, with what is done to each result after that (see `following`)."""
        v, edge, z, made = self.arrays(Scratch(workspace))
        after, steps = following(lines, name, extras, y)
        form, tiling, (yn, _, yh, yw) = self.form, self.tiling, steps_of(y)
        product = code(
            PRODUCT, 5 + len(extras), 18 + len(steps), tiling.filtering, rows=ROWS[form.vectors], vectors=form.vectors,
            wide=form.wide, **after,
        )  # fmt: skip
        calls = []
        for begin in range(0, tiling.count, self.spread.block):
            count = min(self.spread.block, tiling.count - begin)
            calls.append(self.spread.bind(x, v, edge, begin, count))
            calls.append(product.bind(
                tiling.workers, count * form.filters * form.channels, v, u, z, made, y, *extras, begin, count,
                tiling.workers, ceil(count / self.part), self.part, self.groups, tiling.down, tiling.across,
                *y.shape[2:], form.channels, form.wide, self.spread.step, form.step, self.step, yn, yh, yw, *steps,
            ))  # fmt: skip
        return in_turn(calls)


@dataclass(frozen=True)
class WeightGradient:
    """dw = Gᵀ [Σ over tiles (Bᵀ x B) ∘ (A dy Aᵀ)] G: products as of a convolution, whose sums run over tiles."""

    form: Transformed
    tiling: Tiling
    pads: tuple[int, int]

    @cached_property
    def block(self) -> int:
        """Tiles at a time; the more, the less often are the sums read and written."""
        nbytes = FLOAT * self.tiling.filtering.points * (self.form.channels + self.form.filters)
        block = self.tiling.block(min(nbytes, nbytes * BLOCK_BYTES // self.form.nbytes))
        return ceil(block / FEW) * FEW

    @cached_property
    def operands(self) -> tuple[Spread, Spread]:
        """What is done to dy and x."""
        return (
            Spread(self.tiling, "result_gradient", self.form.filters, (0, 0), self.block),
            Spread(self.tiling, "data", self.form.channels, self.pads, self.block),
        )

    def arrays(self, scratch: Scratch) -> tuple[Any, Any, Any, Any, Any]:
        """The transformed tiles of both and room for tiles at the edge, and the sums."""
        dy, x = self.operands
        return *dy.arrays(scratch), *x.arrays(scratch), scratch.take(self.form.nbytes // FLOAT)

    def bind(self, dy: Any, x: Any, dw: Any, workspace: Any) -> Thunk:
        """The calls for all blocks, and the last one that makes dw of the sums."""
        w, dy_edge, v, x_edge, z = self.arrays(Scratch(workspace))
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
        wm, wc, wi, wj = steps_of(dw)
        back = code(BACK, 2, 6, filtering, wide=form.wide)
        size = form.filters // LANES
        return in_turn([*calls, back.bind(size, 4 * dw.size, z, dw, form.channels, wc, wm, wi, wj, form.step)])
