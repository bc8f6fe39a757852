"""Base classes of elementwise kernels, for all backends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from netspec.backends.common.trace import CodeWriter, why_untraceable
from netspec.graph.fused import MultiTensor
from netspec.graph.kernel import Kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.reduce import Broadcast
from netspec.graph.types import TensorType
from netspec.graph.value import Node


class ElementwiseKernel(Kernel):
    """Base class of kernels for elementwise ops and `Broadcast`, generated from their own `forward`."""

    writer: ClassVar[CodeWriter]

    def reject_reason(self, op: Op, *types: TensorType) -> str | None:
        if not (op.traits.elementwise or isinstance(op, Broadcast)):
            return "the op is not elementwise"
        return why_untraceable(self.writer, op, types)

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return LayoutSignature(tuple(offered), (PLAIN,) * len(node.outputs))

    def low_precision_signature(self, node: Node, preferred: LayoutSignature) -> LayoutSignature:
        return preferred


class MultiTensorKernel(Kernel):
    """Base class of kernels that apply an elementwise op to several sets of plain arrays of one shape, and scalars."""

    writer: ClassVar[CodeWriter]

    def reject_reason(self, op: MultiTensor, *types: TensorType) -> str | None:
        for own in op.sets(types):
            result = op.op.infer(*own)
            shape = (result[0] if isinstance(result, tuple) else result).shape
            if any(one.shape not in (shape, ()) for one in own):
                return "an operand broadcasts"
            if [one.dtype for one in own] != [one.dtype for one in types[: len(own)]]:
                return "the sets have different element types"
        return why_untraceable(self.writer, op.op, types[: len(types) // op.count])
