"""Local response normalization across channels, channels-last.

Only the inference form: the library's gradient needs a workspace twice as large as the operand, and with it takes
longer than recomputing the scales, as the numba kernel of the gradient does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.kernel import Computation, OneDnnKernel, desc
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.onednn.primitive_descs import lrn_forward
from netspec.graph.kernel import kernel
from netspec.graph.layout import Layout, LayoutSignature
from netspec.graph.ops.lrn import LRN
from netspec.graph.types import TensorType
from netspec.graph.value import Node


@kernel(LRN, backend="onednn", rank=10)
class LocalResponseKernel(OneDnnKernel):
    """y = x · s^-β."""

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        (x,) = types
        if x.rank != 4:
            return f"{x.rank} axes, not those of images"
        if op.size % 2 == 0:
            return "the library supports odd window sizes only"
        primitive_desc = _described(op, desc(x, Layout.channels_last(4))).implementation
        return None if "jit" in primitive_desc else f"the library has no fast code for it, only {primitive_desc}"

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(4)
        return LayoutSignature((last,), (last,))

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature | None:
        return requested if requested.inputs[0].dtype == requested.outputs[0].dtype else None

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        op, x = node.op, node.inputs[0].type
        assert isinstance(op, LRN)
        signature = desc(x, layouts.inputs[0])
        return Computation.of_one(_described(op, signature), signature, signature)


def _described(op: LRN, signature: MemoryDesc) -> PrimitiveDesc:
    return lrn_forward(signature, signature, op.size, op.alpha, op.beta, op.bias)
