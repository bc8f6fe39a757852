"""GELU and softplus of many elements, and sums and means of many short rows, in any layout.

The compiled kernels compute fused groups in one pass, and other single ops faster (docs/performance.md). Adjacent axes
are passed to the library as one, so that it has fast code for most operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.common.loops import merge_loops
from netspec.backends.onednn.constants import AlgKind, DataType
from netspec.backends.onednn.epilogue import GELU, SOFTPLUS
from netspec.backends.onednn.kernel import Computation, OneDnnKernel, data_type, engine, slow_reason
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive_descs import eltwise_forward, reduction
from netspec.graph.kernel import Example, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.reduce import ReduceMean, ReduceSum
from netspec.graph.ops.special import Gelu
from netspec.graph.ops.unary import Softplus
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

FUNCTIONS = {Gelu: GELU, Softplus: SOFTPLUS}
REDUCTIONS = {ReduceSum: AlgKind.REDUCTION_SUM, ReduceMean: AlgKind.REDUCTION_MEAN}
FEWEST = 8192
"""Minimum elements of an operand: below, the compiled functions are as fast."""
LONGEST = 512
"""Maximum elements of a row: the compiled kernel sums longer rows as fast."""
LEAST = 32768
"""Minimum elements of all rows."""


class SingleOpKernel(OneDnnKernel):
    """Base class: an operand and a result with axes in any order, in float32 or bfloat16."""

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        plain = LayoutSignature((PLAIN,) * len(types), (PLAIN,))
        return slow_reason(lambda: self.computes(op, types, plain).primitive)

    def computes(self, op: Any, types: Sequence[TensorType], layouts: LayoutSignature) -> Computation:
        """The primitive of the op for operands of these types."""
        raise NotImplementedError  # abstract

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature | None:
        return requested

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        return self.computes(node.op, [value.type for value in node.inputs], layouts)


def _descs(kinds: Sequence[TensorType], layouts: Sequence[Layout], dtypes: Sequence[DataType]) -> list[MemoryDesc]:
    """Memory of values that broadcast to the first value, which determines the order of the axes."""
    shape = kinds[0].shape
    steps = [
        [step if size != 1 else 0 for size, step in zip(kind.shape, layout.strides(kind), strict=True)]
        for kind, layout in zip(kinds, layouts, strict=True)
    ]
    order = sorted((axis for axis, size in enumerate(shape) if size != 1), key=lambda axis: (-steps[0][axis], axis))
    loops = merge_loops([shape[axis] for axis in order], [[step[axis] for axis in order] for step in steps])
    return [_desc(loops.sizes, steps, dtype) for steps, dtype in zip(loops.steps, dtypes, strict=True)]


def _desc(sizes: Sequence[int], steps: Sequence[int], dtype: DataType) -> MemoryDesc:
    shape = tuple(size if step else 1 for size, step in zip(sizes, steps, strict=True))
    strides: list[int] = []
    dense = 1
    for size, step in zip(reversed(shape), reversed(steps), strict=True):
        strides.append(step or dense)  # for axes of size 1, too: the library must recognize contiguous memory
        dense = strides[-1] * size
    return MemoryDesc.strided(engine(), shape, tuple(reversed(strides)), dtype)


@kernel(*FUNCTIONS, backend="onednn", rank=11)
class LongEltwiseKernel(SingleOpKernel):
    """An expensive function of many elements, in half the time of the compiled one."""

    def samples(self) -> Sequence[Example]:
        x = TensorType((FEWEST // 128, 128), DType.FLOAT32)
        return (Softplus(), (x,)), (Gelu(), (x,))

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        few = types[0].size < FEWEST
        return f"oneDNN is not faster for {types[0].size} elements" if few else super().decline_reason(op, types)

    def computes(self, op: Any, types: Sequence[TensorType], layouts: LayoutSignature) -> Computation:
        (kind,), both = types, (*layouts.outputs, *layouts.inputs)
        y, x = _descs((kind, kind), both, [data_type(kind, layout) for layout in both])
        function = FUNCTIONS[type(op)]
        return Computation.of_one(eltwise_forward(x, y, function.algorithm, function.alpha), x, y)


@kernel(*REDUCTIONS, backend="onednn", rank=6)
class ShortRowReductionKernel(SingleOpKernel):
    """Sums and means of many short rows of a matrix. (With more axes, rows may not be contiguous.)"""

    def samples(self) -> Sequence[Example]:
        return tuple((op((1,)), (TensorType((LEAST // 32, 32), DType.FLOAT32),)) for op in REDUCTIONS)

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        (x,) = types
        if x.rank != 2 or op.reduced_axes(x) != (1,):
            return "oneDNN is faster only for rows of a matrix"
        if x.shape[1] > LONGEST or x.size < LEAST:
            return f"oneDNN is not faster for {x.shape[0]} rows of {x.shape[1]}"
        return super().decline_reason(op, types)

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        """Request the operand's layout, if the library has fast code for it."""
        layout = PLAIN if offered[0].opaque is not None else offered[0]
        preferred = LayoutSignature((layout,), (PLAIN,))
        slow = slow_reason(lambda: self.describe(node, preferred).primitive)
        return preferred if slow is None else LayoutSignature((PLAIN,), (PLAIN,))

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature:
        return requested.with_unrounded_outputs()

    def computes(self, op: Any, types: Sequence[TensorType], layouts: LayoutSignature) -> Computation:
        (x,), (layout,), y = types, layouts.inputs, op.infer(*types)
        dtypes = [data_type(x, layout), data_type(y, layouts.outputs[0])]
        source, target = _descs((x, x.with_shape(x.shape[0], 1)), (layout, PLAIN), dtypes)
        return Computation.of_one(reduction(source, target, REDUCTIONS[type(op)]), source, target)
