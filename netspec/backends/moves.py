"""Kernels of ops that move elements, by copies of arrays or parts of them. A backend says how it copies: `register`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol

from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.op import Op
from netspec.graph.ops.shape import Concat, Flip, PadAxis, Reorder, Slice, Split, Take, TakeGrad, Transpose
from netspec.graph.types import TensorType
from netspec.graph.value import Node

RUNS = 64
"""Most pieces that are copied one by one: with more, calling takes as long as copying."""


class Copier(Protocol):
    """How a backend copies."""

    def copy(self, source: Any, target: Any) -> Thunk:
        """A call that copies an array into another of the same shape and element type."""
        ...

    def reordered(self, source: Any, target: Any) -> Thunk:
        """The same, for arrays that lie in other orders."""
        ...

    def fill(self, value: float, target: Any) -> Thunk:
        """A call that writes one number into all places of an array."""
        ...

    def added(self, source: Any, target: Any) -> Thunk:
        """A call that adds an array to another."""
        ...


def in_turn(calls: Sequence[Thunk]) -> Thunk:
    """All of the calls, one after another, as one."""
    if len(calls) == 1:
        return calls[0]

    def run() -> None:
        for one in calls:
            one()

    return run


def runs(index: Sequence[int]) -> list[tuple[int, int, int]]:
    """Places as pieces of neighbours: where each begins in `index`, its first place, and its length."""
    found: list[tuple[int, int, int]] = []
    for at, place in enumerate(index):
        if found and place == found[-1][1] + found[-1][2]:
            start, first, length = found[-1]
            found[-1] = start, first, length + 1
        else:
            found.append((at, place, 1))
    return found


def _part(array: Any, axis: int, start: int, stop: int) -> Any:
    return array[(slice(None),) * axis + (slice(start, stop),)]


class Moving(Kernel):
    """Base of kernels that copy elements, whatever they are in memory."""

    copier: Copier

    def narrowed(self, node: Node, wanted: Signature) -> Signature:
        return wanted


class Following(Moving):
    """Base of kernels whose results lie as their first operand does, plain or channels-last."""

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        last = Layout.channels_last(len(node.inputs[0].shape))
        chosen = last if given[0] == last else PLAIN
        return Signature((chosen,) * len(given), (chosen,) * len(node.outputs))


class ConcatKernel(Following):
    """Each operand copied to its place."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (y,) = node.op, buffers.outputs
        assert isinstance(op, Concat)
        assert y is not None
        axis, start, calls = op.axis % y.ndim, 0, []
        for x in buffers.inputs:
            calls.append(self.copier.copy(x, _part(y, axis, start, start + x.shape[axis])))
            start += x.shape[axis]
        return in_turn(calls)


class SliceKernel(Following):
    """A part copied out."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, Slice)
        return self.copier.copy(_part(buffers.inputs[0], op.axis, op.start, op.stop), buffers.outputs[0])


class SplitKernel(Following):
    """Each part that anybody reads copied out."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,) = node.op, buffers.inputs
        assert isinstance(op, Split)
        ends = tuple(accumulate(op.sizes))
        parts = zip((0, *ends), ends, buffers.outputs, strict=False)
        return in_turn([self.copier.copy(_part(x, op.axis, start, end), y) for start, end, y in parts if y is not None])


class ByPieces(Following):
    """Base of kernels that move elements by their places, a piece of neighbours at a time."""

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        count = len(runs(op.index))
        return f"{count} pieces" if count > RUNS else None


class TakeKernel(ByPieces):
    """Pieces copied out."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, Take)
        return in_turn([
            self.copier.copy(_part(x, op.axis, first, first + length), _part(y, op.axis, at, at + length))
            for at, first, length in runs(op.index)
        ])  # fmt: skip


class TakeGradKernel(ByPieces):
    """Pieces added up in their order."""

    def narrowed(self, node: Node, wanted: Signature) -> Signature:
        return Signature(wanted.inputs, tuple(one.as_stored(None) for one in wanted.outputs))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (dy,), (dx,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, TakeGrad)
        calls = [self.copier.fill(0, dx)]
        for at, first, length in runs(op.index):
            source, target = _part(dy, op.axis, at, at + length), _part(dx, op.axis, first, first + length)
            calls.append(self.copier.added(source, target))
        return in_turn(calls)


class FlipKernel(Following):
    """The operand copied, read backwards along an axis."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, Flip)
        backwards = (slice(None),) * op.axis + (slice(None, None, -1),)
        return self.copier.copy(buffers.inputs[0][backwards], buffers.outputs[0])


class PadAxisKernel(Following):
    """The operand copied between numbers that are all alike."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, PadAxis)
        end = op.before + x.shape[op.axis]
        calls = [self.copier.copy(x, _part(y, op.axis, op.before, end))]
        for start, stop in ((0, op.before), (end, end + op.after)):
            if start < stop:
                calls.append(self.copier.fill(op.value, _part(y, op.axis, start, stop)))
        return in_turn(calls)


class TransposeKernel(Moving):
    """Axes in another order: the operand may lie anyhow."""

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        return Signature(tuple(given), (PLAIN,))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, Transpose)
        return self.copier.reordered(buffers.inputs[0].transpose(op.permutation), buffers.outputs[0])


class ReorderKernel(Moving):
    """The same elements in another order in memory, or in another number of bits."""

    def why_not(self, op: Reorder, *types: TensorType) -> str | None:
        return "only the backend that made a layout knows how memory lies in it" if op.opaque else None

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        return Signature(tuple(given), (PLAIN,))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        return self.copier.reordered(buffers.inputs[0], buffers.outputs[0])


KERNELS: dict[type[Op], type[Moving]] = {
    Concat: ConcatKernel,
    Slice: SliceKernel,
    Split: SplitKernel,
    Take: TakeKernel,
    TakeGrad: TakeGradKernel,
    Flip: FlipKernel,
    PadAxis: PadAxisKernel,
    Transpose: TransposeKernel,
    Reorder: ReorderKernel,
}


def register(copier: Copier, backend: str, rank: int) -> None:
    """Make these the kernels of a backend, which copies so."""
    for op, base in KERNELS.items():
        own = {"copier": copier, "__doc__": base.__doc__, "__module__": base.__module__}
        kernel(op, backend=backend, rank=rank)(type(base.__name__, (base,), own))
