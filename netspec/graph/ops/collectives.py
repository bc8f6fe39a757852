"""Blocking collectives between workers that shard samples or columns: all-gather, reduce-scatter, all-to-all.

`pack` copies parts of a value into the blocks that a worker sends, `unpack` copies parts of received blocks into the
result; kernels run the copies and exchange the blocks. An op computes its result as if other workers sent
nothing: its own part, and zeros. Gradients use the adjoint collective: all-gather ↔ reduce-scatter, all-to-all ↔ its
inverse.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from netspec.graph.onnx_map import NoOnnxForm
from netspec.graph.op import Array, Grads, Traits, Xp
from netspec.graph.ops.all_reduce import CommunicationOp
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class AxisPartition:
    """An axis partitioned among workers: worker r has `bounds[r]` to `bounds[r + 1]`; this worker is `rank`."""

    bounds: tuple[int, ...]
    rank: int

    @classmethod
    def even(cls, size: int, workers: int, rank: int) -> AxisPartition:
        """Partition an axis as evenly as possible."""
        return cls(tuple(size * worker // workers for worker in range(workers + 1)), rank)

    def scale(self, factor: int) -> AxisPartition:
        """The partition of an axis that has `factor` elements for each element of this one."""
        return AxisPartition(tuple(factor * bound for bound in self.bounds), self.rank)

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.bounds) - 1

    @property
    def total(self) -> int:
        """Size of the full axis."""
        return self.bounds[-1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Size of each worker's part."""
        return tuple(end - start for start, end in pairwise(self.bounds))

    @property
    def own_size(self) -> int:
        """Size of this worker's part."""
        return self.sizes[self.rank]

    @property
    def max_size(self) -> int:
        """Size of the largest part; all parts are sent padded to it."""
        return max(self.sizes)

    def slice_of(self, x: Array, rank: int, axis: int) -> Array:
        """A worker's part of an array that has the full axis."""
        return x[_axis_slice(x, axis, self.bounds[rank], self.bounds[rank + 1])]


@dataclass(frozen=True)
class BlockingCollective(CommunicationOp, ABC):
    """Base of blocking collectives: x[, result of the preceding blocking op] → y."""

    traits = Traits(pure=False)
    onnx = NoOnnxForm("communication between workers has no ONNX operator")
    pattern: ClassVar[str] = "all_to_all"
    encoding = ""

    @property
    def is_blocking(self) -> bool:
        return True

    def sent_types(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        block = self.block_type(types[0])
        return [block] if self.is_broadcast else [block] * self.worker_partition.workers

    @property
    def is_broadcast(self) -> bool:
        """Whether all workers receive the same block; otherwise there is one block for each, stacked."""
        return False

    @abstractmethod
    def block_type(self, x: TensorType) -> TensorType:
        """Type of the block sent to another worker, or to all."""

    @abstractmethod
    def pack(self, x: Array, blocks: Array) -> Iterator[tuple[Array, Array]]:
        """Yield (part of the send blocks, part of x to copy there), ordered by rank; the rest of the blocks is 0."""

    @abstractmethod
    def unpack(self, blocks: Array, y: Array) -> Iterator[tuple[Array, Sequence[Array]]]:
        """Yield (part of the result, parts of received blocks whose sum it is); the rest of the result is 0."""

    def pack_blocks(self, xp: Xp, x: Array) -> Array:
        """The blocks to send, ordered by rank, or the one block for all."""
        block = self.block_type(TensorType(x.shape, DType(str(x.dtype))))
        blocks = xp.zeros((1 if self.is_broadcast else self.worker_partition.workers, *block.shape), x.dtype)
        for target, source in self.pack(x, blocks):
            target[...] = source
        return blocks

    def unpack_blocks(self, blocks: Array, y: Array) -> None:
        """Compute the result from the received blocks."""
        if self.has_gaps(blocks, y):
            y[...] = 0
        for target, (first, *others) in self.unpack(blocks, y):
            target[...] = first
            for addend in others:
                target += addend

    def has_gaps(self, blocks: Array, y: Array) -> bool:
        """Whether `unpack` leaves parts of the result 0."""
        return bool(sum(target.size for target, _ in self.unpack(blocks, y)) < y.size)

    @property
    @abstractmethod
    def worker_partition(self) -> AxisPartition:
        """A partition that gives the number of workers and the rank."""

    def forward(self, xp: Xp, x: Array, *before: Array) -> Array:
        send_blocks, x_type = self.pack_blocks(xp, x), TensorType(x.shape, DType(str(x.dtype)))
        own_block = send_blocks[0 if self.is_broadcast else self.worker_partition.rank]
        received = xp.zeros((self.worker_partition.workers, *own_block.shape), own_block.dtype)
        received[self.worker_partition.rank] = own_block
        y_type = self.infer(x_type)
        assert isinstance(y_type, TensorType)
        y = xp.zeros(y_type.shape, x.dtype)
        self.unpack_blocks(received, y)
        return y

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (self.adjoint(y.inputs[0])(dy), *[None] * (len(y.inputs) - 1))

    @abstractmethod
    def adjoint(self, x: Value) -> BlockingCollective:
        """The op that maps the gradient of the result to that of x."""

    def flops(self, x: TensorType, *before: TensorType) -> int:
        return x.size


@dataclass(frozen=True)
class AllGather(BlockingCollective):
    """The full axis, gathered from all workers: (…, own, …) → (…, total, …)."""

    partition: AxisPartition
    axis: int = 0
    pattern: ClassVar[str] = "all_gather"
    contents = ("all samples, or columns",)

    @property
    def is_broadcast(self) -> bool:
        return True

    @property
    def worker_partition(self) -> AxisPartition:
        return self.partition

    def infer(self, x: TensorType, *before: TensorType) -> TensorType:
        """Elements beyond a worker's part are ignored, missing ones are 0."""
        self.check(x.dtype.is_float, "only floats are exchanged between workers", got=x)
        return _resize_axis(x, self.axis, self.partition.total)

    def block_type(self, x: TensorType) -> TensorType:
        return _resize_axis(x, self.axis, self.partition.max_size)

    def pack(self, x: Array, blocks: Array) -> Iterator[tuple[Array, Array]]:
        count = min(self.partition.own_size, x.shape[self.axis])
        yield _leading(blocks[0], self.axis, count), _leading(x, self.axis, count)

    def unpack(self, blocks: Array, y: Array) -> Iterator[tuple[Array, Sequence[Array]]]:
        for rank, size in enumerate(self.partition.sizes):
            yield self.partition.slice_of(y, rank, self.axis), [_leading(blocks[rank], self.axis, size)]

    def adjoint(self, x: Value) -> ReduceScatter:
        return ReduceScatter(self.partition, self.axis, x.shape[self.axis])


@dataclass(frozen=True)
class ReduceScatter(BlockingCollective):
    """This worker's part of the sum of x over workers, added in the order of ranks: (…, total, …) → (…, size, …)."""

    partition: AxisPartition
    axis: int
    size: int
    """Size of the result; elements beyond the worker's part are 0."""
    contents = ("sums",)

    @property
    def worker_partition(self) -> AxisPartition:
        return self.partition

    def infer(self, x: TensorType, *before: TensorType) -> TensorType:
        total = self.partition.total
        self.check(x.shape[self.axis] == total, "the axis is not complete", expected=str(total), got=x)
        return _resize_axis(x, self.axis, self.size)

    def block_type(self, x: TensorType) -> TensorType:
        return _resize_axis(x, self.axis, self.partition.max_size)

    def pack(self, x: Array, blocks: Array) -> Iterator[tuple[Array, Array]]:
        for rank, size in enumerate(self.partition.sizes):
            yield _leading(blocks[rank], self.axis, size), self.partition.slice_of(x, rank, self.axis)

    def unpack(self, blocks: Array, y: Array) -> Iterator[tuple[Array, Sequence[Array]]]:
        count = min(self.partition.own_size, self.size)
        yield _leading(y, self.axis, count), [_leading(block, self.axis, count) for block in blocks]

    def adjoint(self, x: Value) -> AllGather:
        return AllGather(self.partition, self.axis)


@dataclass(frozen=True)
class AllToAll(BlockingCollective):
    """All columns of a worker's samples → its columns of all samples; `inverse` goes the other way.

    (size, …, all columns) → (all samples, …, own columns).
    """

    rows: AxisPartition
    columns: AxisPartition
    size: int
    """Number of this worker's samples; those beyond its part are ignored, and returned as 0."""
    inverse: bool = False
    contents = ("columns",)

    @property
    def worker_partition(self) -> AxisPartition:
        return self.rows

    def infer(self, x: TensorType, *before: TensorType) -> TensorType:
        by_rows, by_columns = (self.size, self.columns.total), (self.rows.total, self.columns.own_size)
        before_sizes, after_sizes = (by_columns, by_rows) if self.inverse else (by_rows, by_columns)
        self.check(
            (x.shape[0], x.shape[-1]) == before_sizes, "samples or columns differ", expected=str(before_sizes), got=x
        )
        return _resize_axis(_resize_axis(x, 0, after_sizes[0]), -1, after_sizes[1])

    def block_type(self, x: TensorType) -> TensorType:
        return _resize_axis(_resize_axis(x, 0, self.rows.max_size), -1, self.columns.max_size)

    def pack(self, x: Array, blocks: Array) -> Iterator[tuple[Array, Array]]:
        yield from zip(self._block_corners(blocks, back=self.inverse), self._slices(x, back=self.inverse), strict=True)

    def unpack(self, blocks: Array, y: Array) -> Iterator[tuple[Array, Sequence[Array]]]:
        corners = ([corner] for corner in self._block_corners(blocks, back=not self.inverse))
        yield from zip(self._slices(y, back=not self.inverse), corners, strict=True)

    def _slices(self, x: Array, *, back: bool) -> Iterator[Array]:
        """For each worker, its columns of this worker's rows or, if `back`, its rows of this worker's columns."""
        if back:
            return (self.rows.slice_of(x, rank, 0) for rank in range(self.rows.workers))
        own_rows = _leading(x, 0, min(self.rows.own_size, self.size))
        return (self.columns.slice_of(own_rows, rank, -1) for rank in range(self.columns.workers))

    def _block_corners(self, blocks: Array, *, back: bool) -> Iterator[Array]:
        """The corner of each block that holds its part (see `_slices`); blocks have the size of the largest part."""
        if back:
            return (_leading(_leading(block, 0, size), -1, self.columns.own_size)
                    for block, size in zip(blocks, self.rows.sizes, strict=True))  # fmt: skip
        own_rows = min(self.rows.own_size, self.size)
        return (
            _leading(_leading(block, 0, own_rows), -1, size)
            for block, size in zip(blocks, self.columns.sizes, strict=True)
        )

    def adjoint(self, x: Value) -> AllToAll:
        return AllToAll(self.rows, self.columns, self.size, inverse=not self.inverse)


def _resize_axis(x: TensorType, axis: int, size: int) -> TensorType:
    shape = list(x.shape)
    shape[axis] = size
    return x.with_shape(*shape)


def _axis_slice(x: Array, axis: int, start: int, stop: int) -> tuple[slice, ...]:
    index = [slice(None)] * x.ndim
    index[axis] = slice(start, stop)
    return tuple(index)


def _leading(x: Array, axis: int, count: int) -> Array:
    """The first `count` elements along an axis."""
    return x[_axis_slice(x, axis, 0, count)]


@dataclass(frozen=True)
class ParameterMatMul:
    """A product of a batch with a matrix parameter that a strategy may shard."""

    kernel: str
    """Name of the parameter."""
    layer: str
    """Name of its layer."""
    inputs: int
    units: int
    positions: int
    """Rows per sample: 1, or the length of a sequence."""
    preceding_kernel: str | None = None
    """The parameter of the preceding product, if only elementwise ops are between them."""
