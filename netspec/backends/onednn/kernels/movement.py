"""Axes in another order: as a new shape, or the same shape in another order of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.kernels.base import Computation, OneDnnKernel, Place, data_type, engine
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.pointwise import reorder
from netspec.graph.kernel import kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.shape import Reorder, Transpose
from netspec.graph.types import TensorType
from netspec.graph.value import Node

FEWEST = 64
"""Channels: of fewer, planes are put together faster by others."""


def _described(source: MemoryDesc, target: MemoryDesc) -> Computation:
    return Computation(reorder(source, target), {Arg.SRC: Place(0, source), Arg.DST: Place(0, target, output=True)})


@kernel(Transpose, backend="onednn", rank=6)
class Transposition(OneDnnKernel):
    """Axes in another order; the operand may lie in any order of its axes."""

    def wished(self, node: Node, given: Sequence[Layout]) -> Signature:
        return Signature((PLAIN if given[0].form is not None else given[0],), (PLAIN,))

    def stored(self, wanted: Signature) -> Signature:
        return wanted

    def describe(self, node: Node, layouts: Signature) -> Computation:
        op, y = node.op, node.types[0]
        assert isinstance(op, Transpose)
        (lies,), (to,) = layouts.inputs, layouts.outputs
        steps = lies.strides(node.inputs[0].type)
        turned = tuple(steps[axis] for axis in op.permutation)
        source = MemoryDesc.strided(engine(), y.shape, turned, data_type(y, lies))
        return _described(source, MemoryDesc.strided(engine(), y.shape, dtype=data_type(y, to)))


@kernel(Reorder, backend="onednn", rank=6)
class Turning(OneDnnKernel):
    """The same value in another order of memory, or in another number of bits."""

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        (x,) = types
        if op.source.form is not None or op.target.form is not None:
            return "it is a form of a library's own"
        if op.target.is_plain(x) and x.rank > 2 and x.shape[1] < FEWEST:
            return f"oneDNN's is the slower one for {x.shape[1]} channels"
        return None

    def wished(self, node: Node, given: Sequence[Layout]) -> Signature:
        assert isinstance(node.op, Reorder)
        return Signature((node.op.source,), (node.op.target,))

    def describe(self, node: Node, layouts: Signature) -> Computation:
        x = node.inputs[0].type
        source, target = (
            MemoryDesc.strided(engine(), x.shape, one.strides(x), data_type(x, one))
            for one in (layouts.inputs[0], layouts.outputs[0])
        )
        return _described(source, target)
