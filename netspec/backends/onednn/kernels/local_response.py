"""Local response normalization across channels, channels-last.

Its inference form alone: the library's gradient wants a workspace twice as large as the operand, and together with it
takes longer than computing the scales anew, as the numba kernel of the gradient does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import Algorithm, Arg
from netspec.backends.onednn.kernels.base import Computation, OneDnnKernel, Place, desc
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.normalization import lrn_forward
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.graph.kernel import kernel
from netspec.graph.layout import Layout, Signature
from netspec.graph.types import TensorType
from netspec.graph.value import Node
from netspec.layers.local_response import LRN


@kernel(LRN, backend="onednn", rank=10)
class LocalResponse(OneDnnKernel):
    """y = x · s^-β."""

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        (x,) = types
        if x.rank != 4:
            return f"{x.rank} axes, not those of images"
        made = _described(op, desc(x, Layout.channels_last(4))).implementation
        return None if "jit" in made else f"the library has no fast code for it, only {made}"

    def wished(self, node: Node, given: Sequence[Layout]) -> Signature:
        last = Layout.channels_last(4)
        return Signature((last,), (last,))

    def stored(self, wanted: Signature) -> Signature | None:
        return wanted if wanted.inputs[0].dtype == wanted.outputs[0].dtype else None

    def describe(self, node: Node, layouts: Signature) -> Computation:
        op, x = node.op, node.inputs[0].type
        assert isinstance(op, LRN)
        lying = desc(x, layouts.inputs[0])
        return Computation(_described(op, lying), {Arg.SRC: Place(0, lying), Arg.DST: Place(0, lying, output=True)})


def _described(op: LRN, lying: MemoryDesc) -> PrimitiveDesc:
    numbers = (op.size, op.alpha, op.beta, op.bias)
    return lrn_forward(lying, lying, Algorithm.LRN_ACROSS_CHANNELS, *numbers, training=False)
