"""Batch normalization kernels: training, gradient and inference, with fused elementwise ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from netspec.backends.common.channel_norm import (
    NORMALIZED,
    ChannelNormKernel,
    OperandExtent,
    fusion_reject_reason,
    normalization_op,
    operand_extent,
)
from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.scratch import ScratchMemory
from netspec.backends.common.trace import Code
from netspec.backends.numba import native
from netspec.backends.numba.kernels.elementwise import bound
from netspec.backends.numba.moments import (
    flows,
    flows_of_planes,
    flows_of_rows,
    moments,
    moments_of_planes,
    moments_of_rows,
)
from netspec.backends.numba.native import CompiledFunction, ConstArg, Number, Pointer, Size, pointer_to
from netspec.backends.numba.scalar_code import scalar_code, why_untraceable
from netspec.graph.execution_plan import align_up
from netspec.graph.fused import EpilogueFused, PrologueFused
from netspec.graph.kernel import Buffers, Thunk, kernel
from netspec.graph.layout import Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.batch_normalization import (
    BatchNormalization,
    BatchNormalizationGrad,
    BatchNormalizationTraining,
)
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

PIECE = 32768
"""Approximate number of elements of a piece: they stay in the cache between two passes."""
PIECES = 256
WIDE = 256
"""Contiguous elements that fill vector instructions: rows of few channels are processed several at a time."""
VECTORS = 16
"""Number of per-channel vectors in scratch memory, in addition to the partial results."""


@dataclass(frozen=True)
class Grid:
    """An operand as rows · channels · inner elements, and how its rows are split into pieces.

    If channels are contiguous and few, `fold` rows are merged: (rows, fold · channels).
    """

    rows: int
    channels: int
    inner: int
    fold: int = 1

    @classmethod
    def of(cls, x: TensorType, axis: int, layout: Layout) -> Grid:
        """Return the grid of an operand in plain or channels-last order."""
        channels = x.shape[axis]
        inner = prod(x.shape[axis + 1 :]) if layout.is_plain(x) else 1
        rows, fold = x.size // channels // inner, 1
        if inner == 1:
            while rows % (2 * fold) == 0 and 2 * fold * channels <= WIDE:
                fold *= 2
        return cls(rows // fold, channels, inner, fold)

    @property
    def wide(self) -> int:
        """Elements of a row."""
        return self.fold * self.channels

    @property
    def piece(self) -> int:
        """Rows in a piece."""
        return 1 if self.inner > 1 else max(-(-PIECE // self.wide), -(-self.rows // PIECES))

    @property
    def pieces(self) -> int:
        """Number of pieces of each channel."""
        return -(-self.rows // self.piece)

    @property
    def parts(self) -> int:
        """Number of partial results of each channel."""
        return self.pieces * self.fold

    @property
    def units(self) -> int:
        """Number of pieces to distribute to threads."""
        return self.parts * self.channels if self.inner > 1 else self.pieces

    def sizes(self) -> tuple[int, int, int, int]:
        """Arguments of the loop bodies."""
        return self.rows, self.wide, self.inner, self.piece

    def view(self, array: Any) -> Any:
        """View of an operand as (rows, wide) or (rows, channels, inner), in memory order."""
        order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
        shape = (self.rows, self.wide) if self.inner == 1 else (self.rows, self.channels, self.inner)
        return array.transpose(order).reshape(shape)


class GridKernel(ChannelNormKernel):
    """Base class of kernels that work on a grid of rows and channels."""

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        x = node.inputs[0].type
        grid = Grid.of(x, normalization_op(node.op).axis, signature.inputs[0])
        vector = align_up(grid.wide * x.dtype.itemsize)
        parts = align_up(grid.parts * grid.channels * x.dtype.itemsize)
        return (VECTORS + len(node.inputs)) * vector + 2 * parts


class BoundNormalization:
    """A bound call: the grid, scratch memory, and views of the operands on the grid."""

    def __init__(self, node: Node, buffers: Buffers, extras: int) -> None:
        """Operands from index `extras` on belong to the fused elementwise ops."""
        self.op, x = normalization_op(node.op), node.inputs[0].type
        self.dtype = x.dtype
        self.grid = Grid.of(x, self.op.axis, buffers.layouts.inputs[0])
        self.scratch = ScratchMemory(buffers.workspace, self.dtype)
        self.kinds = [operand_extent(self.op.axis, x, value.type) for value in node.inputs[extras:]]
        self.extras, self.dtypes = buffers.inputs[extras:], [value.dtype for value in node.inputs[extras:]]

    def parts(self) -> tuple[Any, Any]:
        """Memory for two partial results of each channel."""
        count = self.grid.parts * self.grid.channels
        return self.scratch.take(count), self.scratch.take(count)

    def or_scratch(self, array: Any | None) -> Any:
        """A per-channel vector: the given one, or one in scratch memory."""
        return self.scratch.take(self.grid.channels) if array is None else array

    def spread(self, *vectors: Any) -> tuple[list[Any], list[Thunk]]:
        """Per-channel vectors that broadcast on the grid, and the calls, if any, that repeat them for merged rows."""
        grid = self.grid
        if grid.inner > 1:
            return [vector.reshape(-1, 1) for vector in vectors], []
        if grid.fold == 1 or not vectors:
            return [vector.reshape(-1) for vector in vectors], []
        repeated = [self.scratch.take(grid.wide) for _ in vectors]
        names = tuple(f"a{index}" for index in range(len(vectors)))
        rows = [vector.reshape(grid.fold, grid.channels) for vector in repeated]
        return repeated, [bound(((), names), [vector.reshape(-1) for vector in vectors], rows)]

    def fused_operands(self) -> tuple[list[Any], list[Thunk]]:
        """Like `spread`, for the operands of the fused elementwise ops."""
        vectors = [extra for extra, kind in zip(self.extras, self.kinds, strict=True) if kind is OperandExtent.CHANNEL]
        repeated, calls = self.spread(*vectors)
        remaining = iter(repeated)
        broadcast = []
        for extra, kind in zip(self.extras, self.kinds, strict=True):
            if kind is OperandExtent.WHOLE:
                broadcast.append(self.grid.view(extra))
            else:
                broadcast.append(next(remaining) if kind is OperandExtent.CHANNEL else extra.reshape(()))
        return broadcast, calls


FIRST_OPERAND: Code = (), ("a0",)
"""The first operand."""


@kernel(BatchNormalization, backend="numba", rank=5)
class InferenceKernel(GridKernel):
    """Normalize with given mean and variance."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, gamma, beta, mean, variance), (y,) = buffers.inputs, buffers.outputs
        norm = BoundNormalization(node, buffers, 5)
        scale, dtype = norm.or_scratch(None), norm.dtype
        lines = (f"t = a0 / sqrt_{dtype}(a1 + {dtype}({norm.op.epsilon!r}))",)
        vectors, repeated = norm.spread(mean, scale, beta)
        operands = [norm.grid.view(x), *vectors]
        return chain([
            bound((lines, ("t",)), [gamma, variance], [scale]),
            *repeated,
            bound(((), (NORMALIZED.format(1, 2, 3),)), operands, [norm.grid.view(y)]),
        ])  # fmt: skip


@kernel(BatchNormalizationTraining, EpilogueFused, backend="numba", rank=5)
class TrainingKernel(GridKernel):
    """Normalize with the mean and variance of the batch; an epilogue is applied as the result is written."""

    def reject_reason(self, op: Op, *types: TensorType) -> str | None:
        return fusion_reject_reason(BatchNormalizationTraining, op, types, why_untraceable)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        x, gamma, beta = buffers.inputs[:3]
        y, *statistics = buffers.outputs
        norm = BoundNormalization(node, buffers, 3)
        grid, dtype = norm.grid, norm.dtype
        means, squares = norm.parts()
        mean, variance = map(norm.or_scratch, statistics)
        scale = norm.or_scratch(None)
        element, zero = Pointer(dtype), ConstArg(0.0, dtype)
        body = moments_of_planes if grid.inner > 1 else moments_of_rows
        read = (pointer_to(x, dtype), *(element,) * 2, zero, *(Size(),) * 4, Number(dtype))
        pieces = native.of_function(body, read, native.REASSOCIATE)
        kinds = (
            *(element,) * 6,
            CompiledFunction("sqrt", dtype), native.Type(str(dtype)), zero, Number(dtype), *(Size(),) * 5,
        )  # fmt: skip
        part = grid.piece * grid.inner
        calls = [
            pieces.bind(grid.units, 2 * x.size, x, means, squares, *grid.sizes(), float(part)),
            native.of_function(moments, kinds).bind(
                grid.channels, 4 * grid.parts * grid.channels, means, squares, gamma, mean, variance, scale,
                norm.op.epsilon, grid.parts, grid.channels, grid.rows * grid.inner, part, grid.fold,
            ),
        ]  # fmt: skip
        if y is not None:
            extras, others = norm.fused_operands()
            vectors, repeated = norm.spread(mean, scale, beta)
            first = len(extras) + 1
            lines, names = FIRST_OPERAND
            if isinstance(node.op, EpilogueFused):
                lines, names = scalar_code(node.op.epilogue(len(extras)), dtype, *norm.dtypes)
            formula = f"a0 = {NORMALIZED.format(first, first + 1, first + 2)}"
            operands = [grid.view(x), *extras, *vectors]
            calls += [*repeated, *others, bound(((formula, *lines), names), operands, [grid.view(y)])]
        return chain(calls)


@kernel(BatchNormalizationGrad, PrologueFused, backend="numba", rank=5)
class GradientKernel(GridKernel):
    """Gradients in training; a fused prologue may compute dy as it is read."""

    def reject_reason(self, op: Op, *types: TensorType) -> str | None:
        return fusion_reject_reason(BatchNormalizationGrad, op, types, why_untraceable)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        x, gamma, mean, variance = buffers.inputs[:4]
        dx, *statistics = buffers.outputs
        norm = BoundNormalization(node, buffers, 4)
        grid, dtype = norm.grid, norm.dtype
        offsets, slopes = norm.parts()
        dgamma, dbeta = map(norm.or_scratch, statistics)
        direct, level, tilt = (norm.or_scratch(None) for _ in range(3))
        (middle,), repeated = norm.spread(mean)
        extras, others = norm.fused_operands()
        lines, (flow, *_) = FIRST_OPERAND
        if isinstance(node.op, PrologueFused):
            lines, (flow, *_) = scalar_code(node.op.prologue(len(extras)), *norm.dtypes)
        zero, one = ConstArg(0.0, dtype), ConstArg(1.0, dtype)
        kinds = (
            *(Pointer(dtype),) * 9,
            CompiledFunction("sqrt", dtype),
            zero,
            one,
            *(Number(dtype),) * 2,
            *(Size(),) * 2,
        )
        calls = [
            *repeated,
            *others,
            sums_of_dy(norm, (x, *extras), lines, flow).bind(
                grid.units, 2 * x.size, x, middle, offsets, slopes, *grid.sizes(), *extras
            ),
            native.of_function(flows, kinds).bind(
                grid.channels, 4 * grid.parts * grid.channels, offsets, slopes, gamma, variance, dgamma, dbeta, direct,
                level, tilt, norm.op.epsilon, 1 / (grid.rows * grid.inner * grid.fold), grid.parts, grid.channels,
            ),
        ]  # fmt: skip
        if dx is not None:
            factors, repeated = norm.spread(direct, level, tilt)
            a, b, c, d, e = (f"a{len(extras) + k}" for k in range(5))
            formula = f"{flow} * {c} - {d} - ({a} - {b}) * {e}"
            operands = [*extras, grid.view(x), middle, *factors]
            calls += [*repeated, bound((lines, (formula,)), operands, [grid.view(dx)])]
        return chain(calls)


def sums_of_dy(
    bound: BoundNormalization, arrays: Sequence[Any], lines: Sequence[str], flow: str
) -> native.CompiledKernel:
    """The kernel that sums dy, which `lines` compute as `flow` from the operands of the prologue.

    `arrays` are x and these operands.
    """
    loads = [
        f"a{k} = arrays[{k}][{kind.value}]{' != 0' if dtype == DType.BOOL else ''}"
        for k, (kind, dtype) in enumerate(zip(bound.kinds, bound.dtypes, strict=True))
        if kind is not None
    ]
    sums = flows_of_planes if bound.grid.inner > 1 else flows_of_rows
    pointers = ", ".join(f"p{k}" for k in range(len(loads)))
    text = FLOWING.format(
        lines="\n    ".join([*loads, *lines]), flow=flow, sums=sums.__name__, pointers=pointers,
        zero=f"{bound.dtype}(0)",
        module=sums.__module__,
        inlined=native.compiled("flow", name="flow") + "\n"
        + native.compiled(sums.__name__, native.REASSOCIATE, "sums"),
    )  # fmt: skip
    large, *others = map(pointer_to, arrays, (bound.dtype, *bound.dtypes))
    arguments = (large, *(Pointer(bound.dtype),) * 3, *(Size(),) * 4, *others)
    return native.of_source(text, arguments, flags=native.REASSOCIATE, modules=(sums.__module__,))


FLOWING = """from {module} import {sums}

def flow(arrays, at, c):
    {lines}
    return {flow}

{inlined}

def body(first, last, x, mean, offsets, slopes, rows, channels, inner, piece, {pointers}):
    sums(first, last, x, mean, offsets, slopes, flow, ({pointers},), {zero}, rows, channels, inner, piece)
"""
