"""Resizing of spatial axes and its gradient, channels-last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import AlgKind, Arg
from netspec.backends.onednn.kernel import Computation, OneDnnKernel, desc
from netspec.backends.onednn.primitive_descs import resampling_backward, resampling_forward
from netspec.graph.kernel import Example, kernel
from netspec.graph.layout import Layout, LayoutSignature
from netspec.graph.ops.resize import AxisResize, Resize, ResizeGrad, Sampling
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

ALGORITHMS = {
    Sampling("nearest", rounding="round_prefer_ceil"): AlgKind.RESAMPLING_NEAREST,
    Sampling("linear"): AlgKind.RESAMPLING_LINEAR,
}
"""The rules that oneDNN supports: positions are the centers of pixels."""


SAMPLE = TensorType((2, 8, 4, 3), DType.FLOAT32)
RESIZES = tuple(Resize((AxisResize(2, 7), AxisResize(3, 6)), sampling) for sampling in ALGORITHMS)


class ResampleKernel(OneDnnKernel):
    """Base class."""

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        resize = op if isinstance(op, Resize) else op.resize
        if resize.sampling not in ALGORITHMS:
            return "its coordinate rule is not supported by oneDNN"
        unchanged = [
            axis_resize == AxisResize(axis, axis_resize.size) for axis, axis_resize in enumerate(resize.axes, 2)
        ]
        if len(unchanged) != types[0].rank - 2 or not all(unchanged):
            return "it resizes other axes than the spatial ones, or has explicit scales"
        return super().reject_reason(op, *types)

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(node.types[0].rank)
        return LayoutSignature((last,), (last,))


@kernel(Resize, backend="onednn", rank=10)
class ResizeKernel(ResampleKernel):
    """y from x."""

    def samples(self) -> Sequence[Example]:
        return tuple((resize, (SAMPLE,)) for resize in RESIZES)

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        op, x, y = node.op, desc(node.inputs[0].type, layouts.inputs[0]), desc(node.types[0], layouts.outputs[0])
        assert isinstance(op, Resize)
        return Computation.of_one(resampling_forward(x, y, ALGORITHMS[op.sampling]), x, y)


@kernel(ResizeGrad, backend="onednn", rank=10)
class ResizeGradientKernel(ResampleKernel):
    """dx from dy."""

    def samples(self) -> Sequence[Example]:
        return tuple((ResizeGrad(resize, SAMPLE), (resize.infer(SAMPLE),)) for resize in RESIZES)

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        op, dy, dx = node.op, desc(node.inputs[0].type, layouts.inputs[0]), desc(node.types[0], layouts.outputs[0])
        assert isinstance(op, ResizeGrad)
        algorithm = ALGORITHMS[op.resize.sampling]
        hint = resampling_forward(dx, dy, algorithm)
        return Computation.of_one(resampling_backward(dx, dy, algorithm, hint), dy, dx, (Arg.DIFF_DST, Arg.DIFF_SRC))
