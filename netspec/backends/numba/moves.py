"""Ops that move elements: copies of whole arrays or parts of them, in any order of axes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from netspec.backends.loops import Loops, collapsed
from netspec.backends.numba import native
from netspec.backends.numba.elementwise import bound, copy, fill
from netspec.backends.numba.native import Pointer, Size
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.shape import Concat, Flip, PadAxis, Reorder, Slice, Split, Take, TakeGrad, Transpose
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

TILE = 32
"""Rows and columns turned at a time: two cache lines of float32."""


def turn(
    first: int, last: int, x: Any, y: Any, tile: int, rows: int, columns: int, inner: int,
    x0: int, x1: int, xc: int, y0: int, y1: int, yr: int,
) -> None:  # fmt: skip
    """y[i, j, r, c] = x[i, j, c, r], a band of rows r at a time; in x the rows lie side by side, in y the columns."""
    bands = (rows + tile - 1) // tile
    for unit in range(first, last):
        place = unit // bands
        a = place // inner * x0 + place % inner * x1
        b = place // inner * y0 + place % inner * y1
        top = unit % bands * tile
        bottom = min(top + tile, rows)
        for left in range(0, columns, tile):
            right = min(left + tile, columns)
            for r in range(top, bottom):
                for c in range(left, right):
                    y[b + r * yr + c] = x[a + r + c * xc]


def reordered(source: Any, target: Any) -> Thunk:
    """A call that copies an array into one of the same shape that lies in another order."""
    loops = collapsed(target.shape, [target, source])
    y, x = loops.steps
    side = next((axis for axis in range(len(x) - 1) if x[axis] == 1), None)
    if side is None or y[-1] != 1 or len(x) > 4:
        return copy(source, target)
    outer = [axis for axis in range(len(x) - 1) if axis != side]
    (n0, x0, y0), (n1, x1, y1) = [(1, 0, 0)] * (2 - len(outer)) + [(loops.sizes[k], x[k], y[k]) for k in outer]
    return _turned(source, target, loops, side, (n0, n1), (x0, x1, x[-1], y0, y1, y[side]))


def _turned(source: Any, target: Any, loops: Loops, side: int, outer: tuple[int, int], steps: Sequence[int]) -> Thunk:
    rows, columns = loops.sizes[side], loops.sizes[-1]
    pointers = (Pointer(DType(str(array.dtype))) for array in (source, target))
    arguments: tuple[native.Argument, ...] = (*pointers, native.Literal(TILE), *(Size(),) * 9)
    units = outer[0] * outer[1] * -(-rows // TILE)
    return native.of_function(turn, arguments).bind(units, loops.size, source, target, rows, columns, outer[1], *steps)


def in_turn(calls: Sequence[Thunk]) -> Thunk:
    """All of the calls, one after another, as one."""
    if len(calls) == 1:
        return calls[0]

    def run() -> None:
        for one in calls:
            one()

    return run


class Moving(Kernel):
    """Base of kernels that copy elements, whatever they are in memory."""

    def narrowed(self, node: Node, wanted: Signature) -> Signature:
        return wanted


class Following(Moving):
    """Base of kernels whose results lie as their first operand does, plain or channels-last."""

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        last = Layout.channels_last(len(node.inputs[0].shape))
        chosen = last if given[0] == last else PLAIN
        return Signature((chosen,) * len(given), (chosen,) * len(node.outputs))


def _part(array: Any, axis: int, start: int, stop: int) -> Any:
    return array[(slice(None),) * axis + (slice(start, stop),)]


@kernel(Concat, backend="numba", rank=5)
class ConcatKernel(Following):
    """Each operand copied to its place."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (y,) = node.op, buffers.outputs
        assert isinstance(op, Concat)
        assert y is not None
        axis, start, calls = op.axis % y.ndim, 0, []
        for x in buffers.inputs:
            calls.append(copy(x, _part(y, axis, start, start + x.shape[axis])))
            start += x.shape[axis]
        return in_turn(calls)


@kernel(Slice, backend="numba", rank=5)
class SliceKernel(Following):
    """A part copied out."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, Slice)
        return copy(_part(buffers.inputs[0], op.axis, op.start, op.stop), buffers.outputs[0])


@kernel(Split, backend="numba", rank=5)
class SplitKernel(Following):
    """Each part that anybody reads copied out."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,) = node.op, buffers.inputs
        assert isinstance(op, Split)
        ends = tuple(accumulate(op.sizes))
        parts = zip((0, *ends), ends, buffers.outputs, strict=False)
        return in_turn([copy(_part(x, op.axis, start, end), y) for start, end, y in parts if y is not None])


RUNS = 64
"""Most pieces that are copied one by one: with more, calling takes as long as copying."""


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


class ByPieces(Following):
    """Base of kernels that move elements by their places, a piece of neighbours at a time."""

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        count = len(runs(op.index))
        return f"{count} pieces" if count > RUNS else None


@kernel(Take, backend="numba", rank=5)
class TakeKernel(ByPieces):
    """Pieces copied out."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, Take)
        pieces = runs(op.index)
        return in_turn([
            copy(_part(x, op.axis, first, first + length), _part(y, op.axis, at, at + length))
            for at, first, length in pieces
        ])  # fmt: skip


@kernel(TakeGrad, backend="numba", rank=5)
class TakeGradKernel(ByPieces):
    """Pieces added up in their order."""

    def narrowed(self, node: Node, wanted: Signature) -> Signature:
        return Signature(wanted.inputs, tuple(one.as_stored(None) for one in wanted.outputs))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (dy,), (dx,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, TakeGrad)
        calls = [fill(0, dx)]
        for at, first, length in runs(op.index):
            source, target = _part(dy, op.axis, at, at + length), _part(dx, op.axis, first, first + length)
            calls.append(bound((("t = a0 + a1",), ("t",)), [target, source], [target]))
        return in_turn(calls)


@kernel(Flip, backend="numba", rank=5)
class FlipKernel(Following):
    """The operand copied, read backwards along an axis."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, Flip)
        backwards = (slice(None),) * op.axis + (slice(None, None, -1),)
        return copy(buffers.inputs[0][backwards], buffers.outputs[0])


@kernel(PadAxis, backend="numba", rank=5)
class PadAxisKernel(Following):
    """The operand copied between numbers that are all alike."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, PadAxis)
        end = op.before + x.shape[op.axis]
        calls = [copy(x, _part(y, op.axis, op.before, end))]
        for start, stop in ((0, op.before), (end, end + op.after)):
            if start < stop:
                calls.append(fill(op.value, _part(y, op.axis, start, stop)))
        return in_turn(calls)


@kernel(Transpose, backend="numba", rank=5)
class TransposeKernel(Moving):
    """Axes in another order: the operand may lie anyhow."""

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        return Signature(tuple(given), (PLAIN,))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, Transpose)
        return reordered(buffers.inputs[0].transpose(op.permutation), buffers.outputs[0])


@kernel(Reorder, backend="numba", rank=5)
class ReorderKernel(Moving):
    """The same elements in another order in memory, or in another number of bits."""

    def why_not(self, op: Reorder, *types: TensorType) -> str | None:
        return "only the backend that made a layout knows how memory lies in it" if op.opaque else None

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        return Signature(tuple(given), (PLAIN,))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        return reordered(buffers.inputs[0], buffers.outputs[0])
