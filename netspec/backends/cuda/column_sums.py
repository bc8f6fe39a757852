"""Sums over all axes except the channels: two stages, in an order that depends on sizes only.

A block handles some adjacent channels and a part of their elements; each thread adds up what it reads, then the
threads' sums are added in a fixed tree. If there are several parts, a second launch adds them up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from netspec.backends.common.copy_kernels import chain
from netspec.backends.cuda.launch import THREADS, WARP, KernelParameter, Launch, pointer, sizes
from netspec.graph.kernel import Thunk
from netspec.graph.types import DType

ENOUGH_BLOCKS = 528
"""Blocks that fill the largest GPU: four for each of its 132 multiprocessors."""
MIN_PER_THREAD, MAX_PIECES = 8, 256
"""Minimum number of elements per thread for splitting, and the maximum number of parts."""

COLUMNS = """
__shared__ NUMBER scratch[THREADS];
const int side = threadIdx.x % WIDTH, own = threadIdx.x / WIDTH;
BLOCKS(unit, count) {
    const Index piece = unit / wide, c = unit % wide * WIDTH + side, first = piece * length;
    const Index last = first + length < limit ? first + length : limit;
    const bool inside = c < channels;
    BODY
}
"""
OVER_ELEMENTS = "for (Index e = first + own; inside && e < last; e += THREADS / WIDTH)"
"""Loop over the elements of a channel that a thread handles."""
KEPT = "if (own == 0 && inside)"
"""Code that runs once for each channel."""


@dataclass(frozen=True)
class ColumnSums:
    """`limit` elements for each channel, of which `inner` are adjacent."""

    channels: int
    limit: int
    inner: int

    @property
    def width(self) -> int:
        """Number of adjacent channels that a block handles."""
        return 1 if self.inner > 1 else min(WARP, 1 << (self.channels - 1).bit_length())

    @property
    def wide(self) -> int:
        """Number of blocks that cover all channels."""
        return -(-self.channels // self.width)

    @property
    def length(self) -> int:
        """Number of elements of a channel in a part."""
        most = self.limit * self.width // (THREADS * MIN_PER_THREAD)
        return -(-self.limit // max(1, min(-(-ENOUGH_BLOCKS // self.wide), most, MAX_PIECES)))

    @property
    def pieces(self) -> int:
        """Number of parts."""
        return -(-self.limit // self.length)

    @property
    def combined(self) -> ColumnSums:
        """The second stage: a block adds up the partial sums of a channel."""
        return _UnsplitSums(self.channels, self.pieces, 1)

    @property
    def at(self) -> str:
        """Code for the index of element e of channel c, in a body."""
        return "e * channels + c" if self.inner == 1 else "(e / inner * channels + c) * inner + e % inner"

    def launch(self, parameters: Sequence[KernelParameter], body: str, dtype: DType, **numbers: int) -> Thunk:
        """A call of a body for each channel and part."""
        units = self.wide * self.pieces
        replacements = {"BODY": body, "NUMBER": dtype, "THREADS": THREADS, "WIDTH": self.width}
        limits = sizes(
            max(self.channels * self.limit, self.limit + self.length + THREADS), count=units, wide=self.wide,
            length=self.length, limit=self.limit, channels=self.channels, inner=self.inner, **numbers,
        )  # fmt: skip
        return Launch([*parameters, *limits], COLUMNS, units, of_blocks=True, replacements=replacements).bind()


class _UnsplitSums(ColumnSums):
    """Sums whose elements are not split into parts."""

    @property
    def length(self) -> int:
        """All elements."""
        return self.limit


def sums(
    columns: ColumnSums, parameters: Sequence[KernelParameter], lines: str, values: Sequence[str], finish: str,
    finished: Sequence[KernelParameter], take: Callable[[int], Any], dtype: DType, **numbers: int,
) -> Thunk:  # fmt: skip
    """Compute sums sum0, sum1, … of `values`, which `lines` compute for element e of channel c, then run `finish`.

    `finished` are the parameters that `finish` uses; `take` allocates scratch memory.
    """
    totals = " ".join(f"NUMBER total{k} = 0;" for k in range(len(values)))
    block_sums = "\n    ".join(
        f"const NUMBER sum{k} = of_columns<WIDTH>(total{k}, scratch);" for k in range(len(values))
    )
    steps = " ".join(f"total{k} += {value};" for k, value in enumerate(values))
    reading = (
        f"{totals}\n    {OVER_ELEMENTS} {{\n        {lines}\n        {steps}\n    }}\n    {block_sums}\n    {KEPT} {{ "
    )
    if columns.pieces == 1:
        return columns.launch([*parameters, *finished], f"{reading}{finish} }}", dtype, **numbers)
    parts = [take(columns.pieces * columns.channels) for _ in values]
    store_partials = " ".join(f"part{k}[piece * channels + c] = sum{k};" for k in range(len(values)))
    written = [pointer(f"part{k}", part, written=True) for k, part in enumerate(parts)]
    additions = " ".join(f"total{k} += part{k}[e * channels + c];" for k in range(len(values)))
    body = f"{totals}\n    {OVER_ELEMENTS} {{ {additions} }}\n    {block_sums}\n    {KEPT} {{ {finish} }}"
    read = [pointer(f"part{k}", part) for k, part in enumerate(parts)]
    return chain([
        columns.launch([*parameters, *written], f"{reading}{store_partials} }}", dtype, **numbers),
        columns.combined.launch([*read, *finished], body, dtype, **numbers),
    ])  # fmt: skip
