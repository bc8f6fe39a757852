"""Base classes of elementwise kernels, for all backends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from netspec.backends.common.trace import CodeWriter, why_untraceable
from netspec.graph.fused import MultiTensor
from netspec.graph.kernel import Kernel, LowPrecision
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.reduce import Broadcast
from netspec.graph.types import TensorType
from netspec.graph.value import Node


class BaseElementwiseKernel(Kernel):
    """Base class of kernels for elementwise ops and `Broadcast`, generated from their own `forward`."""

    low_precision = LowPrecision.ALL
    writer: ClassVar[CodeWriter]

    def reject_reason(self, op: Op, *types: TensorType) -> str | None:
        if not (op.traits.elementwise or isinstance(op, Broadcast)):
            return "the op is not elementwise"
        return why_untraceable(self.writer, op, types)

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return LayoutSignature(tuple(offered), (PLAIN,) * len(node.outputs))


class BaseMultiTensorKernel(Kernel):
    """Base class of kernels that apply an elementwise op to several sets of plain arrays of one shape, and scalars."""

    writer: ClassVar[CodeWriter]

    def reject_reason(self, op: MultiTensor, *types: TensorType) -> str | None:
        for set_types in op.sets(types):
            result = op.op.infer(*set_types)
            shape = (result[0] if isinstance(result, tuple) else result).shape
            if any(kind.shape not in (shape, ()) for kind in set_types):
                return "an operand broadcasts"
            if [kind.dtype for kind in set_types] != [type_.dtype for type_ in types[: len(set_types)]]:
                return "the sets have different element types"
        return why_untraceable(self.writer, op.op, types[: len(types) // op.count])
