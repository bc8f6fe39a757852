"""What kernels of elementwise ops have in common, whatever language a backend writes them in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from netspec.backends.trace import Writer, why_untraceable
from netspec.graph.fused import ForEach
from netspec.graph.kernel import Kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.op import Op
from netspec.graph.ops.reduce import Broadcast
from netspec.graph.types import TensorType
from netspec.graph.value import Node


class ElementwiseKernel(Kernel):
    """Base of kernels for ops with the trait `elementwise`, and `Broadcast`, written from their own `forward`."""

    writer: ClassVar[Writer]

    def why_not(self, op: Op, *types: TensorType) -> str | None:
        if not (op.traits.elementwise or isinstance(op, Broadcast)):
            return "the op is not elementwise"
        return why_untraceable(self.writer, op, types)

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        return Signature(tuple(given), (PLAIN,) * len(node.outputs))

    def narrowed(self, node: Node, wanted: Signature) -> Signature:
        return wanted


class ForEachKernel(Kernel):
    """Base of kernels for an elementwise op on sets of plain arrays of one shape each, and scalars."""

    writer: ClassVar[Writer]

    def why_not(self, op: ForEach, *types: TensorType) -> str | None:
        for own in op.sets(types):
            result = op.op.infer(*own)
            shape = (result[0] if isinstance(result, tuple) else result).shape
            if any(one.shape not in (shape, ()) for one in own):
                return "an operand broadcasts"
            if [one.dtype for one in own] != [one.dtype for one in types[: len(own)]]:
                return "the sets have different element types"
        return why_untraceable(self.writer, op.op, types[: len(types) // op.count])
