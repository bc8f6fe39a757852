"""Batch normalization in training and its gradient, channels-last.

The library fuses no sum, and its fused ReLU makes 0 of NaN: what comes before or behind is left to the kernels that
take the ops so fused. Plain images it takes through code that is ten times slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import Arg, NormalizationFlags
from netspec.backends.onednn.kernels.base import Computation, OneDnnKernel, Place, desc, engine, why_slow
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.normalization import batch_normalization_backward, batch_normalization_forward
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.graph.kernel import kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.normalization import BatchNormalizationGrad, BatchNormalizationTraining
from netspec.graph.types import TensorType
from netspec.graph.value import Node

AFFINE = NormalizationFlags.USE_SCALE | NormalizationFlags.USE_SHIFT
MOST = 2_500_000
"""Elements from which on the library reads memory in an order that takes twice to seven times as long as others'."""


def _forward(op: Any, lies: MemoryDesc) -> PrimitiveDesc:
    """The forward computation; also the hint of the gradient."""
    return batch_normalization_forward(lies, lies, op.epsilon, AFFINE)


def _backward(op: Any, lies: MemoryDesc) -> PrimitiveDesc:
    return batch_normalization_backward(lies, lies, lies, op.epsilon, AFFINE, _forward(op, lies))


class NormalizationKernel(OneDnnKernel):
    """Base of both: images channels-last."""

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        x = types[0]
        if op.axis != 1 or x.rank < 3:
            return f"oneDNN's channels are axis 1 of images, not axis {op.axis} of {x.rank}"
        if x.size > MOST:
            return f"oneDNN's is the slower one for {x.size} numbers"
        return why_slow(lambda: self.primitive(op, desc(x, Layout.channels_last(x.rank))))

    def stored(self, wanted: Signature) -> Signature | None:
        dtypes = {one.dtype for one in (*wanted.inputs, *wanted.outputs) if one.order is not None}
        if len(dtypes) > 1:
            return None
        lying = [one if one.order is not None else PLAIN for one in (*wanted.inputs, *wanted.outputs)]
        return Signature(tuple(lying[: len(wanted.inputs)]), tuple(lying[len(wanted.inputs) :]))

    def primitive(self, op: Any, lies: MemoryDesc) -> PrimitiveDesc:
        """The computation on images that lie so."""
        raise NotImplementedError  # abstract: subclasses say

    def wished(self, node: Node, given: Sequence[Layout]) -> Signature:
        x = node.inputs[0].type
        last = Layout.channels_last(x.rank)
        lying = [last if value.type == x else PLAIN for value in (*node.inputs, *node.outputs)]
        return Signature(tuple(lying[: len(given)]), tuple(lying[len(given) :]))

    def places(self, node: Node, layouts: Signature, inputs: Sequence[Arg], outputs: Sequence[Arg]) -> dict[int, Place]:
        """Operands and results as these arguments."""
        found: dict[int, Place] = {}
        for output, arguments, values, lying in (
            (False, inputs, node.inputs, layouts.inputs),
            (True, outputs, node.outputs, layouts.outputs),
        ):
            for index, (argument, value, layout) in enumerate(zip(arguments, values, lying, strict=True)):
                vector = len(value.shape) == 1
                lies = MemoryDesc.strided(engine(), value.shape) if vector else desc(value.type, layout)
                found[argument] = Place(index, lies, output=output)
        return found


@kernel(BatchNormalizationTraining, backend="onednn", rank=4)
class Normalization(NormalizationKernel):
    """Mean and variance are those of the batch."""

    def primitive(self, op: Any, lies: MemoryDesc) -> PrimitiveDesc:
        return _forward(op, lies)

    def describe(self, node: Node, layouts: Signature) -> Computation:
        inputs, outputs = (Arg.SRC, Arg.SCALE, Arg.SHIFT), (Arg.DST, Arg.MEAN, Arg.VARIANCE)
        made = _forward(node.op, desc(node.inputs[0].type, layouts.inputs[0]))
        return Computation(made, self.places(node, layouts, inputs, outputs))


@kernel(BatchNormalizationGrad, backend="onednn", rank=6)
class NormalizationGradient(NormalizationKernel):
    """Gradients of the form for training."""

    def primitive(self, op: Any, lies: MemoryDesc) -> PrimitiveDesc:
        return _backward(op, lies)

    def describe(self, node: Node, layouts: Signature) -> Computation:
        inputs = (Arg.SRC, Arg.SCALE, Arg.MEAN, Arg.VARIANCE, Arg.DIFF_DST)
        outputs = (Arg.DIFF_SRC, Arg.DIFF_SCALE, Arg.DIFF_SHIFT)
        made = _backward(node.op, desc(node.inputs[0].type, layouts.inputs[0]))
        return Computation(made, self.places(node, layouts, inputs, outputs))
