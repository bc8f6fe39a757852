"""Elementwise functions, arithmetic on two operands, sums and means: one op a call, in any layout.

The compiled kernels compute fused groups in one pass, and most single ops faster: these rank above them only for ops
that were measured to be faster here. Adjacent axes are passed to the library as one, so that it sees
few forms of broadcasting and has fast code for most of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from netspec.backends.common.loops import merge_loops
from netspec.backends.onednn.attributes import EltwisePostOp
from netspec.backends.onednn.constants import AlgKind, Arg, DataType
from netspec.backends.onednn.epilogue import COMMUTATIVE, ORDERED, UNARY
from netspec.backends.onednn.kernel import Computation, OneDnnKernel, Operand, data_type, engine, slow_reason
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive_descs import binary, eltwise_backward, eltwise_forward, reduction
from netspec.graph.kernel import Example, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops import elementwise, special, unary
from netspec.graph.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

FUNCTIONS: Mapping[type[Op], Callable[[Any], Any]] = {
    **UNARY,
    unary.Sqrt: lambda op: EltwisePostOp(AlgKind.ELTWISE_SQRT),
    unary.Log: lambda op: EltwisePostOp(AlgKind.ELTWISE_LOG),
    elementwise.Neg: lambda op: EltwisePostOp(AlgKind.ELTWISE_LINEAR, -1.0),
}
"""Powers are not among them: the library takes up to 100 times as long as the compiled kernels, for cubes too.

Its logarithm takes positive numbers below 1.2e-38, which are not normal, for about that bound.
"""

BINARY = {**COMMUTATIVE, **ORDERED}
REDUCTIONS = {ReduceSum: AlgKind.REDUCTION_SUM, ReduceMean: AlgKind.REDUCTION_MEAN}
HIDING: Mapping[type[Op], str] = {
    unary.Relu: "oneDNN's ReLU makes 0 of NaN",
    unary.Exp: "oneDNN's exponential makes infinity of NaN",
    elementwise.Maximum: "oneDNN's maximum loses a NaN on the left",
    elementwise.Minimum: "oneDNN's minimum loses a NaN on the left",
    ReduceMax: "oneDNN's maximum loses NaN",
}
"""Ops for which the library hides NaN from the guard."""

FEWEST = 8192
"""Minimum elements of an operand: below, the compiled functions are as fast."""
LONGEST = 512
"""Maximum elements of a row: longer ones the compiled kernel sums as fast."""
LEAST = 32768
"""Minimum elements of all rows."""


class SingleOpKernel(OneDnnKernel):
    """Base class: operands and results with axes in any order, in float32 or bfloat16."""

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        plain = LayoutSignature((PLAIN,) * len(types), (PLAIN,))
        return HIDING.get(type(op)) or slow_reason(lambda: self.computes(op, types, plain).primitive)

    def computes(self, op: Any, types: Sequence[TensorType], layouts: LayoutSignature) -> Computation:
        """The primitive of the op for operands of these types."""
        raise NotImplementedError  # abstract

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature | None:
        return requested

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        return self.computes(node.op, [value.type for value in node.inputs], layouts)


def broadcast(op: Op, types: Sequence[TensorType], layouts: LayoutSignature) -> list[Operand]:
    """Memory of an elementwise op's operands and result."""
    y = op.infer(*types)
    assert isinstance(y, TensorType)
    kinds, lies = (y, *types), (*layouts.outputs, *layouts.inputs)
    steps = [_aligned(kind, layout.strides(kind), y.rank) for kind, layout in zip(kinds, lies, strict=True)]
    to, *operands = _descs(
        y.shape, steps, [data_type(*kind_and_layout) for kind_and_layout in zip(kinds, lies, strict=True)]
    )
    return [*(Operand(index, described) for index, described in enumerate(operands)), Operand(0, to, output=True)]


def _aligned(kind: TensorType, strides: Sequence[int], rank: int) -> list[int]:
    """Strides along the axes of a shape of `rank` axes that the value broadcasts to; 0 where it repeats."""
    steps = [step if size != 1 else 0 for size, step in zip(kind.shape, strides, strict=True)]
    return [0] * (rank - kind.rank) + steps


def _descs(shape: Sequence[int], steps: Sequence[Sequence[int]], dtypes: Sequence[DataType]) -> list[MemoryDesc]:
    """Memory by its strides along the axes of `shape`, 0 along axes of size 1; the first one defines the order."""
    order = sorted((axis for axis, size in enumerate(shape) if size != 1), key=lambda axis: (-steps[0][axis], axis))
    loops = merge_loops([shape[axis] for axis in order], [[step[axis] for axis in order] for step in steps])
    return [_desc(loops.sizes, steps, dtype) for steps, dtype in zip(loops.steps, dtypes, strict=True)]


def _desc(sizes: Sequence[int], steps: Sequence[int], dtype: DataType) -> MemoryDesc:
    shape = tuple(size if step else 1 for size, step in zip(sizes, steps, strict=True))
    strides: list[int] = []
    dense = 1
    for size, step in zip(reversed(shape), reversed(steps), strict=True):
        strides.append(step or dense)  # axes of size 1 too, so that contiguous memory is recognized
        dense = strides[-1] * size
    return MemoryDesc.strided(engine(), shape, tuple(reversed(strides)), dtype)


@kernel(*FUNCTIONS, unary.Exp, backend="onednn", rank=4)
class EltwiseKernel(SingleOpKernel):
    """A function of one operand."""

    def computes(self, op: Any, types: Sequence[TensorType], layouts: LayoutSignature) -> Computation:
        x, y = broadcast(op, types, layouts)
        post_op: EltwisePostOp = FUNCTIONS[type(op)](op)
        return Computation.of_one(eltwise_forward(x.desc, y.desc, post_op.algorithm, post_op.alpha), x.desc, y.desc)


@kernel(special.Gelu, unary.Softplus, backend="onednn", rank=11)
class LongEltwiseKernel(EltwiseKernel):
    """An expensive function of many elements, in half the time of the compiled one."""

    def samples(self) -> Sequence[Example]:
        x = TensorType((FEWEST // 128, 128), DType.FLOAT32)
        return (unary.Softplus(), (x,)), (special.Gelu(), (x,))

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        few = types[0].size < FEWEST
        return f"oneDNN is not faster for {types[0].size} elements" if few else super().declines(op, types)


@kernel(special.GeluGrad, backend="onednn", rank=4)
class GeluGradientKernel(SingleOpKernel):
    """The gradient of a GELU."""

    def computes(self, op: Any, types: Sequence[TensorType], layouts: LayoutSignature) -> Computation:
        x, dy, dx = broadcast(op, types, layouts)
        hint = eltwise_forward(x.desc, x.desc, AlgKind.ELTWISE_GELU_ERF)
        primitive = eltwise_backward(dx.desc, dy.desc, x.desc, AlgKind.ELTWISE_GELU_ERF, hint)
        return Computation(primitive, {Arg.SRC: x, Arg.DIFF_DST: dy, Arg.DIFF_SRC: dx})


@kernel(*BINARY, elementwise.Maximum, elementwise.Minimum, backend="onednn", rank=4)
class BinaryKernel(SingleOpKernel):
    """a ∘ b; if one of them broadcasts, the other one comes first if possible."""

    def computes(self, op: Any, types: Sequence[TensorType], layouts: LayoutSignature) -> Computation:
        a, b, y = broadcast(op, types, layouts)
        if type(op) in COMMUTATIVE and types[0].size < types[1].size:
            a, b = b, a
        primitive = binary(a.desc, b.desc, y.desc, BINARY[type(op)])
        return Computation(primitive, {Arg.SRC: a, Arg.SRC_1: b, Arg.DST: y})


@kernel(*REDUCTIONS, ReduceMax, backend="onednn", rank=4)
class ReductionKernel(SingleOpKernel):
    """A sum or mean over the innermost axes."""

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        """Request the operand's layout, if the library has fast code for it."""
        lies = PLAIN if offered[0].opaque is not None else offered[0]
        as_it_lies = LayoutSignature((lies,), (PLAIN,))
        slow = slow_reason(lambda: self.describe(node, as_it_lies).primitive)
        return as_it_lies if slow is None else LayoutSignature((PLAIN,), (PLAIN,))

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature:
        return requested.with_full_outputs()

    def computes(self, op: Any, types: Sequence[TensorType], layouts: LayoutSignature) -> Computation:
        (x,), (lies,), y = types, layouts.inputs, op.infer(*types)
        kept_type = x.with_shape(*(1 if axis in op.reduced_axes(x) else size for axis, size in enumerate(x.shape)))
        steps = [_aligned(kind, layout.strides(kind), x.rank) for kind, layout in ((x, lies), (kept_type, PLAIN))]
        source, target = _descs(x.shape, steps, [data_type(x, lies), data_type(y, layouts.outputs[0])])
        return Computation.of_one(reduction(source, target, REDUCTIONS[type(op)]), source, target)


@kernel(*REDUCTIONS, backend="onednn", rank=6)
class ShortRowReductionKernel(ReductionKernel):
    """Sums and means of many short rows of a matrix. (With more axes, rows may not be contiguous.)"""

    def samples(self) -> Sequence[Example]:
        return tuple((op((1,)), (TensorType((LEAST // 32, 32), DType.FLOAT32),)) for op in REDUCTIONS)

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        (x,) = types
        if x.rank != 2 or op.reduced_axes(x) != (1,):
            return "oneDNN is faster only for rows of a matrix"
        if x.shape[1] > LONGEST or x.size < LEAST:
            return f"oneDNN is not faster for {x.shape[0]} rows of {x.shape[1]}"
        return super().declines(op, types)
