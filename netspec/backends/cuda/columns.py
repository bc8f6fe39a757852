"""Sums over all but the channels: two stages, in an order that sizes alone decide.

A block has some channels side by side, where their elements are neighbours, and a piece of their elements; its threads
add up what they read, and then what they have, in a fixed tree. Pieces are put together by a second launch, where there
are several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from netspec.backends.cuda.launch import THREADS, WARP, Launch, Parameter, pointer, sizes
from netspec.backends.moves import in_turn
from netspec.graph.kernel import Thunk
from netspec.graph.types import DType

ENOUGH_BLOCKS = 528
"""So many keep the largest GPU busy: four for each of its 132 processors."""
LEAST_EACH, MOST_PIECES = 8, 256
"""Elements that a thread adds at least before it pays to cut, and the pieces that are put together."""

COLUMNS = """
__shared__ NUMBER place[THREADS];
const int side = threadIdx.x % WIDTH, own = threadIdx.x / WIDTH;
BLOCKS(unit, count) {
    const Index piece = unit / wide, c = unit % wide * WIDTH + side, first = piece * length;
    const Index last = first + length < limit ? first + length : limit;
    const bool inside = c < channels;
    BODY
}
"""
OVER_ELEMENTS = "for (Index e = first + own; inside && e < last; e += THREADS / WIDTH)"
"""Every element that a thread has of its channel, in the body."""
KEPT = "if (own == 0 && inside)"
"""What follows is done once for each channel."""


@dataclass(frozen=True)
class Columns:
    """Elements of channels, `limit` each, of which `inner` lie side by side."""

    channels: int
    limit: int
    inner: int

    @property
    def width(self) -> int:
        """Channels that a block has side by side."""
        return 1 if self.inner > 1 else min(WARP, 1 << (self.channels - 1).bit_length())

    @property
    def wide(self) -> int:
        """Blocks that have all channels."""
        return -(-self.channels // self.width)

    @property
    def length(self) -> int:
        """Elements of a channel in a piece."""
        most = self.limit * self.width // (THREADS * LEAST_EACH)
        return -(-self.limit // max(1, min(-(-ENOUGH_BLOCKS // self.wide), most, MOST_PIECES)))

    @property
    def pieces(self) -> int:
        """How many there are."""
        return -(-self.limit // self.length)

    @property
    def together(self) -> Columns:
        """The pieces of each channel as its elements, all of which one block has."""
        return _Whole(self.channels, self.pieces, 1)

    @property
    def at(self) -> str:
        """Where element e of channel c is, in a body."""
        return "e * channels + c" if self.inner == 1 else "(e / inner * channels + c) * inner + e % inner"

    def launch(self, parameters: Sequence[Parameter], body: str, dtype: DType, **numbers: int) -> Thunk:
        """The call of a body for each channel and piece."""
        text, units = COLUMNS.replace("BODY", body), self.wide * self.pieces
        for word, meaning in {"NUMBER": dtype, "THREADS": THREADS, "WIDTH": self.width}.items():
            text = text.replace(word, str(meaning))
        limits = sizes(
            max(self.channels * self.limit, self.limit + self.length + THREADS), count=units, wide=self.wide,
            length=self.length, limit=self.limit, channels=self.channels, inner=self.inner, **numbers,
        )  # fmt: skip
        return Launch([*parameters, *limits], text, units, of_blocks=True).bind()


class _Whole(Columns):
    """Elements that are not cut."""

    @property
    def length(self) -> int:
        """All of them."""
        return self.limit


def sums(
    columns: Columns, parameters: Sequence[Parameter], lines: str, values: Sequence[str], finish: str,
    finished: Sequence[Parameter], take: Callable[[int], Any], dtype: DType, **numbers: int,
) -> Thunk:  # fmt: skip
    """Sums sum0, sum1, … of `values`, which `lines` compute of element e of channel c, and what `finish` makes of them.

    `finished` are the parameters that `finish` names, `take` gives scratch memory for so many numbers.
    """
    totals = " ".join(f"NUMBER total{k} = 0;" for k in range(len(values)))
    made = "\n    ".join(f"const NUMBER sum{k} = of_columns<WIDTH>(total{k}, place);" for k in range(len(values)))
    steps = " ".join(f"total{k} += {value};" for k, value in enumerate(values))
    reading = f"{totals}\n    {OVER_ELEMENTS} {{\n        {lines}\n        {steps}\n    }}\n    {made}\n    {KEPT} {{ "
    if columns.pieces == 1:
        return columns.launch([*parameters, *finished], f"{reading}{finish} }}", dtype, **numbers)
    parts = [take(columns.pieces * columns.channels) for _ in values]
    kept = " ".join(f"part{k}[piece * channels + c] = sum{k};" for k in range(len(values)))
    written = [pointer(f"part{k}", one, written=True) for k, one in enumerate(parts)]
    again = " ".join(f"total{k} += part{k}[e * channels + c];" for k in range(len(values)))
    body = f"{totals}\n    {OVER_ELEMENTS} {{ {again} }}\n    {made}\n    {KEPT} {{ {finish} }}"
    read = [pointer(f"part{k}", one) for k, one in enumerate(parts)]
    return in_turn([
        columns.launch([*parameters, *written], f"{reading}{kept} }}", dtype, **numbers),
        columns.together.launch([*read, *finished], body, dtype, **numbers),
    ])  # fmt: skip
