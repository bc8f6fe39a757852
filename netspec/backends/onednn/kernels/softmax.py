"""Softmax of short vectors, along the last axis, and its gradient.

For longer vectors, the logarithm, and the gradient, the compiled kernels are as fast or faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.kernel import Computation, OneDnnKernel, Operand, desc, engine, slow_reason
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.onednn.primitive_descs import softmax_backward, softmax_forward
from netspec.graph.kernel import kernel
from netspec.graph.layout import PLAIN, LayoutSignature
from netspec.graph.ops.softmax import Softmax, SoftmaxGrad
from netspec.graph.types import TensorType
from netspec.graph.value import Node

LONGEST = 128
"""Maximum elements along the axis: for longer vectors numba's kernel is faster."""


class AlongRows(OneDnnKernel):
    """Base class: the elements of a vector are contiguous."""

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        x = types[0]
        if op.axis % x.rank != x.rank - 1:
            return "oneDNN has only slow code for vectors that are not contiguous"
        return slow_reason(lambda: self.primitive(desc(x, PLAIN), x.rank - 1))

    def primitive(self, data: MemoryDesc, axis: int) -> PrimitiveDesc:
        """The computation on operands and results with these layouts; the forward one is also the gradient's hint."""
        return softmax_forward(data, data, axis)

    def computed(self, node: Node, inputs: Sequence[Arg], output: Arg) -> Computation:
        """The primitive with the node's operands and result as these arguments."""
        x = node.inputs[0].type
        data = desc(x, PLAIN)
        arguments: dict[int, Operand] = {argument: Operand(index, data) for index, argument in enumerate(inputs)}
        return Computation(self.primitive(data, x.rank - 1), {**arguments, output: Operand(0, data, output=True)})


@kernel(Softmax, backend="onednn", rank=6)
class ShortSoftmaxKernel(AlongRows):
    """eˣ / Σ eˣ of short vectors."""

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        if types[0].shape[-1] > LONGEST:
            return f"oneDNN is slower for vectors of {types[0].shape[-1]}"
        return super().decline_reason(op, types)

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        return self.computed(node, (Arg.SRC,), Arg.DST)


@kernel(SoftmaxGrad, backend="onednn", rank=4)
class SoftmaxGradientKernel(AlongRows):
    """y · (dy − Σ y · dy)."""

    def unavailable_reason(self) -> str | None:
        fast = engine().library.instruction_set.startswith("avx512")
        return None if fast else "oneDNN has only generic code for it without AVX-512"

    def primitive(self, data: MemoryDesc, axis: int) -> PrimitiveDesc:
        return softmax_backward(data, data, data, axis, super().primitive(data, axis))

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        return self.computed(node, (Arg.DST, Arg.DIFF_DST), Arg.DIFF_SRC)
