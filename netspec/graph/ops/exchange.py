"""Exchanges between workers that all wait for: of a batch each has samples of, and of values each has columns of.

Each op says what a worker sends (`outgoing`) and what it makes of what came (`incoming`); the backend `workers` has the
kernel that sends it. By itself an op computes what there is where no other worker sends anything: its own part, and
zeros. Gradients go the way back: gathering ↔ summing up and scattering, columns ↔ samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from netspec.graph.onnx_map import NoOnnx
from netspec.graph.op import Array, Grads, Traits, Xp
from netspec.graph.ops.communication import Communication
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class Parts:
    """An axis cut among workers: worker r has `cuts[r]` to `cuts[r + 1]`, and this one is `rank`."""

    cuts: tuple[int, ...]
    rank: int

    @classmethod
    def even(cls, size: int, workers: int, rank: int) -> Parts:
        """Parts that are as equal as can be."""
        return cls(tuple(size * one // workers for one in range(workers + 1)), rank)

    def times(self, factor: int) -> Parts:
        """The same parts of an axis with so many places for each of these."""
        return Parts(tuple(factor * cut for cut in self.cuts), self.rank)

    @property
    def workers(self) -> int:
        """How many there are."""
        return len(self.cuts) - 1

    @property
    def whole(self) -> int:
        """Places of the whole axis."""
        return self.cuts[-1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Places of each worker's part."""
        return tuple(end - start for start, end in pairwise(self.cuts))

    @property
    def own(self) -> int:
        """Places of this worker's part."""
        return self.sizes[self.rank]

    @property
    def most(self) -> int:
        """Places of the largest part: all parts travel as if they were of this size."""
        return max(self.sizes)

    def cut(self, x: Array, rank: int, axis: int) -> Array:
        """What a worker has of a whole array."""
        return x[_along(x, axis, self.cuts[rank], self.cuts[rank + 1])]


@dataclass(frozen=True)
class Exchange(Communication, ABC):
    """Base of the ops here: x[, what must have met before] → y."""

    traits = Traits(pure=False)
    onnx = NoOnnx("it is of a training on several workers, of which ONNX knows nothing")
    pattern: ClassVar[str] = "all_to_all"
    encoding = ""

    @property
    def awaited(self) -> bool:
        return True

    def carried(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        block = self.block(types[0])
        return [block] if self.to_all else [block] * self.ranks.workers

    @property
    def to_all(self) -> bool:
        """Whether what is sent is the same for all workers: one block; else it is a block for each, stacked."""
        return False

    @abstractmethod
    def block(self, x: TensorType) -> TensorType:
        """What goes to another worker, or to all."""

    @abstractmethod
    def outgoing(self, xp: Xp, x: Array) -> Array:
        """What is sent of x: the block for all, or blocks in the order of ranks."""

    @abstractmethod
    def incoming(self, xp: Xp, blocks: Array) -> Array:
        """The result, of the blocks that came in the order of ranks."""

    @property
    @abstractmethod
    def ranks(self) -> Parts:
        """Any parts: who the workers are."""

    def forward(self, xp: Xp, x: Array, *before: Array) -> Array:
        sent = self.outgoing(xp, x)
        mine = sent if self.to_all else sent[self.ranks.rank]
        came = xp.zeros((self.ranks.workers, *mine.shape), mine.dtype)
        came[self.ranks.rank] = mine
        return self.incoming(xp, came)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (self.transposed(y.inputs[0])(dy), *[None] * (len(y.inputs) - 1))

    @abstractmethod
    def transposed(self, x: Value) -> Exchange:
        """The op that takes the gradient of the result to that of x."""

    def flops(self, x: TensorType, *before: TensorType) -> int:
        return x.size


@dataclass(frozen=True)
class AllGather(Exchange):
    """What all workers have of an axis, on each of them: (…, own, …) → (…, whole, …)."""

    parts: Parts
    axis: int = 0
    pattern: ClassVar[str] = "all_gather"
    holds = ("all samples, or columns",)

    @property
    def to_all(self) -> bool:
        return True

    @property
    def ranks(self) -> Parts:
        return self.parts

    def infer(self, x: TensorType, *before: TensorType) -> TensorType:
        """Of places beyond its part a worker's are passed over, missing ones are 0."""
        self.check(x.dtype.is_float, "only floats are exchanged between workers", got=x)
        return _sized(x, self.axis, self.parts.whole)

    def block(self, x: TensorType) -> TensorType:
        return _sized(x, self.axis, self.parts.most)

    def outgoing(self, xp: Xp, x: Array) -> Array:
        return _fitted(xp, _first(x, self.axis, self.parts.own), self.axis, self.parts.most)

    def incoming(self, xp: Xp, blocks: Array) -> Array:
        sizes = zip(blocks, self.parts.sizes, strict=True)
        return xp.concatenate([_first(one, self.axis, size) for one, size in sizes], axis=self.axis)

    def transposed(self, x: Value) -> ReduceScatter:
        return ReduceScatter(self.parts, self.axis, x.shape[self.axis])


@dataclass(frozen=True)
class ReduceScatter(Exchange):
    """Each worker's part of the sum of all workers' x, added up in the order of ranks: (…, whole, …) → (…, size, …)."""

    parts: Parts
    axis: int
    size: int
    """Places that the worker wants: those beyond its part are 0."""
    holds = ("sums",)

    @property
    def ranks(self) -> Parts:
        return self.parts

    def infer(self, x: TensorType, *before: TensorType) -> TensorType:
        whole = self.parts.whole
        self.check(x.shape[self.axis] == whole, "it is not the whole axis", expected=str(whole), got=x)
        return _sized(x, self.axis, self.size)

    def block(self, x: TensorType) -> TensorType:
        return _sized(x, self.axis, self.parts.most)

    def outgoing(self, xp: Xp, x: Array) -> Array:
        return xp.stack([
            _fitted(xp, self.parts.cut(x, rank, self.axis), self.axis, self.parts.most)
            for rank in range(self.parts.workers)
        ])  # fmt: skip

    def incoming(self, xp: Xp, blocks: Array) -> Array:
        total = blocks[0].copy()
        for one in blocks[1:]:
            total += one
        return _fitted(xp, _first(total, self.axis, min(self.parts.own, self.size)), self.axis, self.size)

    def transposed(self, x: Value) -> AllGather:
        return AllGather(self.parts, self.axis)


@dataclass(frozen=True)
class AllToAll(Exchange):
    """All columns of a worker's samples → its columns of all samples; with `back` the other way round.

    (size, …, all columns) → (all samples, …, own columns).
    """

    rows: Parts
    columns: Parts
    size: int
    """Samples that the worker has: those beyond its part are passed over, and come back as 0."""
    back: bool = False
    holds = ("columns",)

    @property
    def ranks(self) -> Parts:
        return self.rows

    def infer(self, x: TensorType, *before: TensorType) -> TensorType:
        own, whole = (self.size, self.columns.whole), (self.rows.whole, self.columns.own)
        given, made = (whole, own) if self.back else (own, whole)
        self.check((x.shape[0], x.shape[-1]) == given, "samples or columns differ", expected=str(given), got=x)
        return _sized(_sized(x, 0, made[0]), -1, made[1])

    def block(self, x: TensorType) -> TensorType:
        return _sized(_sized(x, 0, self.rows.most), -1, self.columns.most)

    def outgoing(self, xp: Xp, x: Array) -> Array:
        mine = x if self.back else _first(x, 0, self.rows.own)
        parts, axis = (self.rows, 0) if self.back else (self.columns, -1)
        blocks = [parts.cut(mine, rank, axis) for rank in range(parts.workers)]
        return xp.stack([
            _fitted(xp, _fitted(xp, one, 0, self.rows.most), -1, self.columns.most) for one in blocks
        ])  # fmt: skip

    def incoming(self, xp: Xp, blocks: Array) -> Array:
        if self.back:
            mine = [_first(one, -1, size) for one, size in zip(blocks, self.columns.sizes, strict=True)]
            return _fitted(xp, _first(xp.concatenate(mine, axis=-1), 0, min(self.rows.own, self.size)), 0, self.size)
        theirs = [_first(one, 0, size) for one, size in zip(blocks, self.rows.sizes, strict=True)]
        return _first(xp.concatenate(theirs, axis=0), -1, self.columns.own)

    def transposed(self, x: Value) -> AllToAll:
        return AllToAll(self.rows, self.columns, self.size, back=not self.back)


def _sized(x: TensorType, axis: int, size: int) -> TensorType:
    shape = list(x.shape)
    shape[axis] = size
    return x.with_shape(*shape)


def _along(x: Array, axis: int, start: int, stop: int) -> tuple[slice, ...]:
    found = [slice(None)] * x.ndim
    found[axis] = slice(start, stop)
    return tuple(found)


def _first(x: Array, axis: int, count: int) -> Array:
    """The first places of an axis, as many as there are up to `count`."""
    return x[_along(x, axis, 0, count)]


def _fitted(xp: Xp, x: Array, axis: int, size: int) -> Array:
    """The places of an axis with zeros behind them, to `size`."""
    missing = size - x.shape[axis]
    if not missing:
        return x
    shape = list(x.shape)
    shape[axis] = missing
    return xp.concatenate([x, xp.zeros(shape, x.dtype)], axis=axis)


@dataclass(frozen=True)
class Product:
    """A product of a batch with a parameter that is a matrix, as a strategy looks at it that may divide it."""

    kernel: str
    """Name of the parameter."""
    layer: str
    """Name of the layer that it is in."""
    inputs: int
    units: int
    positions: int
    """Rows of a sample: 1, or the length of a sequence."""
    follows: str | None = None
    """The parameter of the product before, where all between them is done element by element."""
