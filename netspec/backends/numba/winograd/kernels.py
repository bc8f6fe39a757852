"""Winograd convolutions, which need fewer multiplications, for kernels of 3 x 3 and 5 x 5 without strides.

Tiles of 6 x 6 (or 4 x 4) elements of the input overlap; each gives 4 x 4 results of 3 x 3 taps by 36 products, not
144. Input, kernel and result are transformed (`matrices.py`); between these are matrix products, one for each of the
36 points: (tiles x channels) · (channels x filters). A vector holds 16 channels, which are innermost in memory.

Tiles are processed in blocks that fit in caches. The threads divide the transforms of a block's tiles among them, then
its results; each element is computed by one thread, in an order that does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.common.scratch import ScratchMemory
from netspec.backends.numba.kernels.convolution import narrow_vectors_reason
from netspec.backends.numba.scalar_code import scalar_code, why_untraceable
from netspec.backends.numba.winograd.tile_selection import best_filter, estimated_seconds
from netspec.backends.numba.winograd.tiling import (
    LANES,
    Correlation,
    Tiling,
    TransformedWeights,
    WeightGradient,
)
from netspec.backends.openmp import thread_count
from netspec.graph.fused import EpilogueFused
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.graph.ops.shape import Reorder
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

CHANNELS_LAST = Layout.channels_last(4)


def reject_reason(conv: Conv, x: TensorType, w: TensorType, results: TensorType) -> str | None:
    """Return why these kernels cannot run a convolution or gradient; tiles are of x, or of dx if that is the result."""
    window = conv.window
    if len(window.size) != 2 or conv.groups != 1:
        return "only for images, without groups"
    if {x.dtype, w.dtype} != {DType.FLOAT32}:
        return f"computes in float32, not {x.dtype}"
    if {*window.strides, *window.dilation} != {1} or window.size not in ((3, 3), (5, 5)):
        return "only for windows of 3 x 3 and 5 x 5, without strides and dilation"
    if w.shape[0] % LANES or w.shape[1] % LANES:
        return "channels do not fill vectors of 16"
    narrow = narrow_vectors_reason()
    if narrow is not None:
        return narrow
    filtering = best_filter(window.size[0], w.shape[0], w.shape[1], results)
    return filtering if isinstance(filtering, str) else None


def _tiling(conv: Conv, w: TensorType, results: TensorType) -> Tiling:
    filtering = best_filter(conv.window.size[0], w.shape[0], w.shape[1], results)
    assert not isinstance(filtering, str)
    batch, _, height, width = results.shape
    return Tiling(filtering, batch, height, width, thread_count())


def _result(conv: Conv, x: TensorType, w: TensorType) -> TensorType:
    result = conv.infer(x, w)
    assert isinstance(result, TensorType)
    return result


def _before(conv: Conv) -> tuple[int, int]:
    (top, _), (left, _) = conv.window.pads
    return top, left


class WinogradKernel(Kernel):
    """Base class."""

    def unavailable_reason(self) -> str | None:
        return narrow_vectors_reason()

    def computation(self, node: Node) -> Correlation | WeightGradient:
        """The computation of the node."""
        raise NotImplementedError  # abstract

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        scratch = ScratchMemory(None, DType.FLOAT32)
        self.computation(node).arrays(scratch)
        return scratch.used

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        primitive_desc = self.computation(node)
        return estimated_seconds(
            primitive_desc.tiling.filtering,
            primitive_desc.form.filters,
            primitive_desc.form.channels,
            primitive_desc.tiling.count,
        )


@kernel(Conv, EpilogueFused, backend="winograd", rank=30)
class WinogradConvolutionKernel(WinogradKernel):
    """y = x ∗ w, with an elementwise epilogue."""

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        conv = op.anchor if isinstance(op, EpilogueFused) else op
        if not isinstance(conv, Conv):
            return f"the anchor is {conv.name}"
        x, w, *extras = types
        y = _result(conv, x, w)
        declined = reject_reason(conv, x, w, y)
        if declined or conv is op:
            return declined
        if {extra.dtype for extra in extras} - {DType.FLOAT32}:
            return "the epilogue reads other types than float32"
        return why_untraceable(op.epilogue(len(extras)), (y, *extras))

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        y, form = node.types[0], Layout(opaque=self.computation(node).form)
        extras = (CHANNELS_LAST if value.shape == y.shape else PLAIN for value in node.inputs[2:])
        return LayoutSignature((CHANNELS_LAST, form, *extras), (CHANNELS_LAST,))

    def computation(self, node: Node) -> Correlation:
        conv = node.op.anchor if isinstance(node.op, EpilogueFused) else node.op
        assert isinstance(conv, Conv)
        x, w = (value.type for value in node.inputs[:2])
        tiling = _tiling(conv, w, _result(conv, x, w))
        filters, channels = w.shape[:2]
        return Correlation(TransformedWeights(tiling.filtering, filters, channels, turned=False), tiling, _before(conv))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        x, u, *extras = buffers.inputs
        (y,) = buffers.outputs
        lines: Sequence[str] = ()
        name = "a0"
        if isinstance(node.op, EpilogueFused):
            after = node.op.epilogue(len(extras))
            lines, (name,) = scalar_code(after, *(DType.FLOAT32,) * (1 + len(extras)))
        return self.computation(node).bind(x, u, y, buffers.workspace, extras, lines, name)


@kernel(ConvInputGrad, backend="winograd", rank=30)
class WinogradInputGradientKernel(WinogradKernel):
    """dx from dy and w: a convolution of dy with complementary padding."""

    def reject_reason(self, op: ConvInputGrad, *types: TensorType) -> str | None:
        dy, w = types
        return reject_reason(op.conv, dy, w, op.x)

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return LayoutSignature((CHANNELS_LAST, Layout(opaque=self.computation(node).form)), (CHANNELS_LAST,))

    def computation(self, node: Node) -> Correlation:
        op, w = node.op, node.inputs[1].type
        assert isinstance(op, ConvInputGrad)
        tiling = _tiling(op.conv, w, op.x)
        filters, channels = w.shape[:2]
        top, left = (tiling.filtering.taps - 1 - pad for pad in _before(op.conv))
        return Correlation(TransformedWeights(tiling.filtering, channels, filters, turned=True), tiling, (top, left))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (dy, u), (dx,) = buffers.inputs, buffers.outputs
        return self.computation(node).bind(dy, u, dx, buffers.workspace, (), (), "a0")


@kernel(ConvWeightGrad, backend="winograd", rank=30)
class WinogradWeightGradientKernel(WinogradKernel):
    """dw from dy and x."""

    def reject_reason(self, op: ConvWeightGrad, *types: TensorType) -> str | None:
        dy, x = types
        return reject_reason(op.conv, x, op.w.with_dtype(dy.dtype), dy)

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return LayoutSignature((CHANNELS_LAST, CHANNELS_LAST), (PLAIN,))

    def computation(self, node: Node) -> WeightGradient:
        op, dy = node.op, node.inputs[0].type
        assert isinstance(op, ConvWeightGrad)
        tiling = _tiling(op.conv, op.w, dy)
        filters, channels = op.w.shape[:2]
        form = TransformedWeights(tiling.filtering, filters, channels, turned=False)
        return WeightGradient(form, tiling, _before(op.conv))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (dy, x), (dw,) = buffers.inputs, buffers.outputs
        return self.computation(node).bind(dy, x, dw, buffers.workspace)


@kernel(Reorder, backend="winograd", rank=10)
class FilterTransformKernel(Kernel):
    """Transform a convolution's kernel; there is no inverse."""

    def unavailable_reason(self) -> str | None:
        return narrow_vectors_reason()

    def reject_reason(self, op: Reorder, *types: TensorType) -> str | None:
        return None if isinstance(op.target.opaque, TransformedWeights) else "not for these convolutions"

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        assert isinstance(node.op, Reorder)
        return LayoutSignature((node.op.source,), (node.op.target,))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (w,), (u,) = buffers.inputs, buffers.outputs
        assert isinstance(node.op, Reorder)
        form = node.op.target.opaque
        assert isinstance(form, TransformedWeights)
        return form.bind(w, u)
