"""Axes in another order, as a new shape or the same shape in another order of memory; operands behind one another."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from netspec.backends.onednn.constants import Arg, multiple_src
from netspec.backends.onednn.kernels.base import Computation, OneDnnKernel, Place, data_type, engine
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.pointwise import concat, reorder
from netspec.graph.kernel import kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.shape import Concat, Reorder, Transpose
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


@kernel(Concat, backend="onednn", rank=4)
class Concatenation(OneDnnKernel):
    """Operands one after another, all plain or all channels-last: rows of matrices to the library."""

    def wished(self, node: Node, given: Sequence[Layout]) -> Signature:
        last = Layout.channels_last(len(node.types[0].shape))
        chosen = last if given[0] == last else PLAIN
        return Signature((chosen,) * len(given), (chosen,))

    def narrowed(self, node: Node, wanted: Signature) -> Signature:
        """All of them as the result: the library has no fast code that rounds them on the way."""
        dtype = wanted.outputs[0].dtype
        return Signature(tuple(one.as_stored(dtype) for one in wanted.inputs), wanted.outputs)

    def describe(self, node: Node, layouts: Signature) -> Computation:
        op, (y,), (to,) = node.op, node.types, layouts.outputs
        assert isinstance(op, Concat)
        order = to.order or tuple(range(y.rank))
        place = order.index(op.axis % y.rank)

        def rows(kind: TensorType) -> MemoryDesc:
            sizes = [kind.shape[axis] for axis in order]
            return MemoryDesc.strided(engine(), (prod(sizes[:place]), prod(sizes[place:])), dtype=data_type(kind, to))

        sources, target = [rows(value.type) for value in node.inputs], rows(y)
        places = {multiple_src(index): Place(index, one) for index, one in enumerate(sources)}
        return Computation(concat(sources, target, 1), {**places, Arg.DST: Place(0, target, output=True)})
