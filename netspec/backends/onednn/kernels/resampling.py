"""Other sizes of spatial axes, and the gradient of that, channels-last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import Algorithm, Arg
from netspec.backends.onednn.kernels.base import Computation, OneDnnKernel, Place, desc
from netspec.backends.onednn.pointwise import resampling_backward, resampling_forward
from netspec.graph.kernel import Example, kernel
from netspec.graph.layout import Layout, Signature
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node
from netspec.layers.interpolation import Along, Resize, ResizeGrad, Sampling

ALGORITHMS = {
    Sampling("nearest", rounding="round_prefer_ceil"): Algorithm.RESAMPLING_NEAREST,
    Sampling("linear"): Algorithm.RESAMPLING_LINEAR,
}
"""The rules that oneDNN knows: places are the centers of pixels."""


SAMPLE = TensorType((2, 8, 4, 3), DType.FLOAT32)
RESIZES = tuple(Resize((Along(2, 7), Along(3, 6)), sampling) for sampling in ALGORITHMS)


class Resampled(OneDnnKernel):
    """Base of both."""

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        resize = op if isinstance(op, Resize) else op.resize
        if resize.sampling not in ALGORITHMS:
            return "it looks at other places than the nearest to centers of pixels, or those around"
        whole = [one == Along(axis, one.size) for axis, one in enumerate(resize.axes, 2)]
        if len(whole) != types[0].rank - 2 or not all(whole):
            return "other axes than those of places, or given scales"
        return super().why_not(op, *types)

    def wished(self, node: Node, given: Sequence[Layout]) -> Signature:
        last = Layout.channels_last(node.types[0].rank)
        return Signature((last,), (last,))


@kernel(Resize, backend="onednn", rank=10)
class Resampling(Resampled):
    """y from x."""

    def samples(self) -> Sequence[Example]:
        return tuple((resize, (SAMPLE,)) for resize in RESIZES)

    def describe(self, node: Node, layouts: Signature) -> Computation:
        op, x, y = node.op, desc(node.inputs[0].type, layouts.inputs[0]), desc(node.types[0], layouts.outputs[0])
        assert isinstance(op, Resize)
        made = resampling_forward(x, y, ALGORITHMS[op.sampling])
        return Computation(made, {Arg.SRC: Place(0, x), Arg.DST: Place(0, y, output=True)})


@kernel(ResizeGrad, backend="onednn", rank=10)
class ResamplingGradient(Resampled):
    """dx from dy."""

    def samples(self) -> Sequence[Example]:
        return tuple((ResizeGrad(resize, SAMPLE), (resize.infer(SAMPLE),)) for resize in RESIZES)

    def describe(self, node: Node, layouts: Signature) -> Computation:
        op, dy, dx = node.op, desc(node.inputs[0].type, layouts.inputs[0]), desc(node.types[0], layouts.outputs[0])
        assert isinstance(op, ResizeGrad)
        algorithm = ALGORITHMS[op.resize.sampling]
        hint = resampling_forward(dx, dy, algorithm)
        made = resampling_backward(dx, dy, algorithm, hint)
        return Computation(made, {Arg.DIFF_DST: Place(0, dy), Arg.DIFF_SRC: Place(0, dx, output=True)})
