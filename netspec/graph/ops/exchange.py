"""Exchanges between workers that all wait for: of a batch each has samples of, and of values each has columns of.

Each op says which parts of a value go where in the blocks that a worker sends (`packs`), and which parts of those that
come make the result (`unpacks`); kernels copy them, and have the blocks sent. By itself an op computes what there is
where no other worker sends anything: its own part, and zeros. Gradients go the way back: gathering ↔ summing up and
scattering, columns ↔ samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from netspec.graph.onnx_map import NoOnnx
from netspec.graph.op import Array, Grads, Traits, Xp
from netspec.graph.ops.communication import Communication
from netspec.graph.types import DType, TensorType
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
    def packs(self, x: Array, blocks: Array) -> Iterator[tuple[Array, Array]]:
        """Parts of the blocks that are sent, in the order of ranks or one for all, and what of x they are; else 0."""

    @abstractmethod
    def unpacks(self, blocks: Array, y: Array) -> Iterator[tuple[Array, Sequence[Array]]]:
        """Parts of the result, and what of the blocks that came, in the order of ranks, is added up there; else 0."""

    def outgoing(self, xp: Xp, x: Array) -> Array:
        """What is sent of x: blocks in the order of ranks, or one for all."""
        block = self.block(TensorType(x.shape, DType(str(x.dtype))))
        made = xp.zeros((1 if self.to_all else self.ranks.workers, *block.shape), x.dtype)
        for target, source in self.packs(x, made):
            target[...] = source
        return made

    def incoming(self, blocks: Array, y: Array) -> None:
        """Make the result of the blocks that came."""
        if self.leaves_gaps(blocks, y):
            y[...] = 0
        for target, (first, *others) in self.unpacks(blocks, y):
            target[...] = first
            for one in others:
                target += one

    def leaves_gaps(self, blocks: Array, y: Array) -> bool:
        """Whether parts of the result are 0."""
        return bool(sum(target.size for target, _ in self.unpacks(blocks, y)) < y.size)

    @property
    @abstractmethod
    def ranks(self) -> Parts:
        """Any parts: who the workers are."""

    def forward(self, xp: Xp, x: Array, *before: Array) -> Array:
        sent, kind = self.outgoing(xp, x), TensorType(x.shape, DType(str(x.dtype)))
        mine = sent[0 if self.to_all else self.ranks.rank]
        came = xp.zeros((self.ranks.workers, *mine.shape), mine.dtype)
        came[self.ranks.rank] = mine
        made = self.infer(kind)
        assert isinstance(made, TensorType)
        y = xp.zeros(made.shape, x.dtype)
        self.incoming(came, y)
        return y

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

    def packs(self, x: Array, blocks: Array) -> Iterator[tuple[Array, Array]]:
        count = min(self.parts.own, x.shape[self.axis])
        yield _first(blocks[0], self.axis, count), _first(x, self.axis, count)

    def unpacks(self, blocks: Array, y: Array) -> Iterator[tuple[Array, Sequence[Array]]]:
        for rank, size in enumerate(self.parts.sizes):
            yield self.parts.cut(y, rank, self.axis), [_first(blocks[rank], self.axis, size)]

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

    def packs(self, x: Array, blocks: Array) -> Iterator[tuple[Array, Array]]:
        for rank, size in enumerate(self.parts.sizes):
            yield _first(blocks[rank], self.axis, size), self.parts.cut(x, rank, self.axis)

    def unpacks(self, blocks: Array, y: Array) -> Iterator[tuple[Array, Sequence[Array]]]:
        count = min(self.parts.own, self.size)
        yield _first(y, self.axis, count), [_first(one, self.axis, count) for one in blocks]

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

    def packs(self, x: Array, blocks: Array) -> Iterator[tuple[Array, Array]]:
        yield from zip(self._corners(blocks, back=self.back), self._cuts(x, back=self.back), strict=True)

    def unpacks(self, blocks: Array, y: Array) -> Iterator[tuple[Array, Sequence[Array]]]:
        corners = ([one] for one in self._corners(blocks, back=not self.back))
        yield from zip(self._cuts(y, back=not self.back), corners, strict=True)

    def _cuts(self, x: Array, *, back: bool) -> Iterator[Array]:
        """Of own columns of all samples the samples of each worker; of own samples the columns of each."""
        if back:
            return (self.rows.cut(x, rank, 0) for rank in range(self.rows.workers))
        own = _first(x, 0, min(self.rows.own, self.size))
        return (self.columns.cut(own, rank, -1) for rank in range(self.columns.workers))

    def _corners(self, blocks: Array, *, back: bool) -> Iterator[Array]:
        """Where these are in blocks, which are as large as the largest of them."""
        if back:
            return (_first(_first(one, 0, size), -1, self.columns.own)
                    for one, size in zip(blocks, self.rows.sizes, strict=True))  # fmt: skip
        own = min(self.rows.own, self.size)
        return (_first(_first(one, 0, own), -1, size) for one, size in zip(blocks, self.columns.sizes, strict=True))

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
