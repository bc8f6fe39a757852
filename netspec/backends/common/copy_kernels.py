"""Kernels that move elements by copying arrays or parts, with the copy functions of a backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

from netspec.graph.kernel import Buffers, Kernel, LowPrecision, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.shape import Concat, Flip, PadAxis, Reorder, Slice, Split, Take, TakeGrad, Transpose
from netspec.graph.types import TensorType
from netspec.graph.value import Node

MAX_RUNS = 64
"""Maximum number of runs, each copied by a separate call: with more, the calls take as long as the copies."""


class ArrayArithmetic(Protocol):
    """Copies and sums of a backend."""

    def copy(self, source: Any, target: Any) -> Thunk:
        """A call that copies an array, which may broadcast, into another of the same element type."""
        ...

    def fill(self, value: float, target: Any) -> Thunk:
        """A call that writes one value into all elements of an array."""
        ...

    def sum(self, left: Any, right: Any, target: Any) -> Thunk:
        """A call that adds two arrays; the target may be one of them."""
        ...


class CopyFunctions(ArrayArithmetic, Protocol):
    """The copy functions of a backend."""

    def reordered(self, source: Any, target: Any) -> Thunk:
        """A call that copies between arrays with different memory orders."""
        ...


def chain(calls: Sequence[Thunk]) -> Thunk:
    """Combine calls into one that runs them in order."""
    if len(calls) == 1:
        return calls[0]

    def run() -> None:
        for call in calls:
            call()

    return run


def runs(index: Sequence[int]) -> list[tuple[int, int, int]]:
    """Split indices into runs of adjacent elements: offset in `index`, first element, length."""
    pieces: list[tuple[int, int, int]] = []
    for at, element in enumerate(index):
        if pieces and element == pieces[-1][1] + pieces[-1][2]:
            start, first, length = pieces[-1]
            pieces[-1] = start, first, length + 1
        else:
            pieces.append((at, element, 1))
    return pieces


def _part(array: Any, axis: int, start: int, stop: int) -> Any:
    return array[(slice(None),) * axis + (slice(start, stop),)]


class CopyKernel(Kernel):
    """Base class of kernels that copy elements of any type."""

    low_precision = LowPrecision.ALL
    copier: CopyFunctions


class LayoutPreservingCopy(CopyKernel):
    """Base class of kernels whose results have the layout of their first operand, plain or channels-last."""

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(len(node.inputs[0].shape))
        chosen = last if offered[0] == last else PLAIN
        return LayoutSignature((chosen,) * len(offered), (chosen,) * len(node.outputs))


class BaseConcatKernel(LayoutPreservingCopy):
    """Copy each operand to its part of the result."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (y,) = node.op, buffers.outputs
        assert isinstance(op, Concat)
        assert y is not None
        axis, start, calls = op.axis % y.ndim, 0, []
        for x in buffers.inputs:
            calls.append(self.copier.copy(x, _part(y, axis, start, start + x.shape[axis])))
            start += x.shape[axis]
        return chain(calls)


class BaseSliceKernel(LayoutPreservingCopy):
    """Copy a slice."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, Slice)
        return self.copier.copy(_part(buffers.inputs[0], op.axis, op.start, op.stop), buffers.outputs[0])


class BaseSplitKernel(LayoutPreservingCopy):
    """Copy each part that is read."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,) = node.op, buffers.inputs
        assert isinstance(op, Split)
        ends = tuple(accumulate(op.sizes))
        parts = zip((0, *ends), ends, buffers.outputs, strict=False)
        return chain([self.copier.copy(_part(x, op.axis, start, end), y) for start, end, y in parts if y is not None])


class RunCopyKernel(LayoutPreservingCopy):
    """Base class of kernels that move elements by index, in runs of adjacent elements."""

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        count = len(runs(op.index))
        return f"{count} pieces" if count > MAX_RUNS else None


class BaseTakeKernel(RunCopyKernel):
    """Copy runs of elements."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, Take)
        return chain([
            self.copier.copy(_part(x, op.axis, first, first + length), _part(y, op.axis, at, at + length))
            for at, first, length in runs(op.index)
        ])  # fmt: skip


class BaseTakeGradKernel(RunCopyKernel):
    """Add up runs of elements in order."""

    low_precision = LowPrecision.OPERANDS

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (dy,), (dx,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, TakeGrad)
        calls = [self.copier.fill(0, dx)]
        for at, first, length in runs(op.index):
            source, target = _part(dy, op.axis, at, at + length), _part(dx, op.axis, first, first + length)
            calls.append(self.copier.sum(target, source, target))
        return chain(calls)


class BaseFlipKernel(LayoutPreservingCopy):
    """Copy the operand in reverse order along an axis."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, Flip)
        backwards = (slice(None),) * op.axis + (slice(None, None, -1),)
        return self.copier.copy(buffers.inputs[0][backwards], buffers.outputs[0])


class BasePadAxisKernel(LayoutPreservingCopy):
    """Copy the operand between constant elements."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, PadAxis)
        end = op.before + x.shape[op.axis]
        calls = [self.copier.copy(x, _part(y, op.axis, op.before, end))]
        for start, stop in ((0, op.before), (end, end + op.after)):
            if start < stop:
                calls.append(self.copier.fill(op.value, _part(y, op.axis, start, stop)))
        return chain(calls)


class BaseTransposeKernel(CopyKernel):
    """Copy with axes in another order; the operand may have any layout."""

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return LayoutSignature(tuple(offered), (PLAIN,))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, Transpose)
        return self.copier.reordered(buffers.inputs[0].transpose(op.permutation), buffers.outputs[0])


class BaseReorderKernel(CopyKernel):
    """Copy to another layout or element type."""

    def reject_reason(self, op: Reorder, *types: TensorType) -> str | None:
        return "only the backend that defined an opaque layout can read it" if op.opaque else None

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return LayoutSignature(tuple(offered), (PLAIN,))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        return self.copier.reordered(buffers.inputs[0], buffers.outputs[0])


KERNELS: Mapping[type[Op], type[CopyKernel]] = {
    Concat: BaseConcatKernel, Slice: BaseSliceKernel, Split: BaseSplitKernel, Take: BaseTakeKernel,
    TakeGrad: BaseTakeGradKernel, Flip: BaseFlipKernel, PadAxis: BasePadAxisKernel, Transpose: BaseTransposeKernel,
    Reorder: BaseReorderKernel,
}  # fmt: skip
"""Base class of the kernel of each op that moves elements."""


def register(copier: CopyFunctions, *, backend: str, rank: int) -> None:
    """Register a kernel for each of these ops, with the copy functions of a backend."""
    for op, base in KERNELS.items():
        name, body = base.__name__.removeprefix("Base"), {"copier": copier, "__doc__": base.__doc__}
        kernel(op, backend=backend, rank=rank)(type(name, (base,), body))
