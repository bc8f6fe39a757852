"""Other sizes of spatial axes, and the gradient of that, channels-last."""

from __future__ import annotations

from collections.abc import Sequence

from netspec.backends.onednn.constants import Algorithm, Arg
from netspec.backends.onednn.kernels.base import Computation, OneDnnKernel, Place, desc
from netspec.backends.onednn.pointwise import resampling_backward, resampling_forward
from netspec.graph.kernel import kernel
from netspec.graph.layout import Layout, Signature
from netspec.graph.value import Node
from netspec.layers.resizing import Resize, ResizeGrad

ALGORITHMS = {"nearest": Algorithm.RESAMPLING_NEAREST, "linear": Algorithm.RESAMPLING_LINEAR}


class Resampled(OneDnnKernel):
    """Base of both."""

    def wished(self, node: Node, given: Sequence[Layout]) -> Signature:
        last = Layout.channels_last(node.types[0].rank)
        return Signature((last,), (last,))


@kernel(Resize, backend="onednn", rank=10)
class Resampling(Resampled):
    """y from x."""

    def describe(self, node: Node, layouts: Signature) -> Computation:
        op, x, y = node.op, desc(node.inputs[0].type, layouts.inputs[0]), desc(node.types[0], layouts.outputs[0])
        assert isinstance(op, Resize)
        made = resampling_forward(x, y, ALGORITHMS[op.mode])
        return Computation(made, {Arg.SRC: Place(0, x), Arg.DST: Place(0, y, output=True)})


@kernel(ResizeGrad, backend="onednn", rank=10)
class ResamplingGradient(Resampled):
    """dx from dy."""

    def describe(self, node: Node, layouts: Signature) -> Computation:
        op, dy, dx = node.op, desc(node.inputs[0].type, layouts.inputs[0]), desc(node.types[0], layouts.outputs[0])
        assert isinstance(op, ResizeGrad)
        hint = resampling_forward(dx, dy, ALGORITHMS[op.mode])
        made = resampling_backward(dx, dy, ALGORITHMS[op.mode], hint)
        return Computation(made, {Arg.DIFF_DST: Place(0, dy), Arg.DIFF_SRC: Place(0, dx, output=True)})
