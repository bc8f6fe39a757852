"""Elementwise functions, arithmetic on two operands, sums and means: one op a call, in any layout.

The compiled kernels make whole groups of them in one pass, and most single ones sooner: these rank above them only for
what was measured to be faster here. Adjacent axes are passed to the library as one, so that it sees
few forms of broadcasting and has fast code for most of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from netspec.backends.common.loops import merge_loops
from netspec.backends.onednn.attributes import Eltwise
from netspec.backends.onednn.constants import Algorithm, Arg, DataType
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
    unary.Sqrt: lambda op: Eltwise(Algorithm.ELTWISE_SQRT),
    unary.Log: lambda op: Eltwise(Algorithm.ELTWISE_LOG),
    elementwise.Neg: lambda op: Eltwise(Algorithm.ELTWISE_LINEAR, -1.0),
}
"""Powers are not among them: the library takes up to 100 times as long as the compiled kernels, for cubes too.

Its logarithm takes positive numbers below 1.2e-38, which are not normal, for about that bound.
"""

BINARY = {**COMMUTATIVE, **ORDERED}
REDUCTIONS = {ReduceSum: Algorithm.REDUCTION_SUM, ReduceMean: Algorithm.REDUCTION_MEAN}
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

    def stored(self, wanted: LayoutSignature) -> LayoutSignature | None:
        return wanted

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        return self.computes(node.op, [value.type for value in node.inputs], layouts)


def broadcast(op: Op, types: Sequence[TensorType], layouts: LayoutSignature) -> list[Operand]:
    """Memory of an elementwise op's operands and result."""
    y = op.infer(*types)
    assert isinstance(y, TensorType)
    kinds, lies = (y, *types), (*layouts.outputs, *layouts.inputs)
    steps = [_aligned(kind, layout.strides(kind), y.rank) for kind, layout in zip(kinds, lies, strict=True)]
    to, *own = _descs(y.shape, steps, [data_type(*one) for one in zip(kinds, lies, strict=True)])
    return [*(Operand(index, one) for index, one in enumerate(own)), Operand(0, to, output=True)]


def _aligned(kind: TensorType, strides: Sequence[int], rank: int) -> list[int]:
    """Strides along the axes of a shape of `rank` axes that the value broadcasts to; 0 where it repeats."""
    own = [step if size != 1 else 0 for size, step in zip(kind.shape, strides, strict=True)]
    return [0] * (rank - kind.rank) + own


def _descs(shape: Sequence[int], steps: Sequence[Sequence[int]], dtypes: Sequence[DataType]) -> list[MemoryDesc]:
    """Memory by its strides along the axes of `shape`, 0 along axes of size 1; the first one defines the order."""
    order = sorted((axis for axis, size in enumerate(shape) if size != 1), key=lambda axis: (-steps[0][axis], axis))
    loops = merge_loops([shape[axis] for axis in order], [[one[axis] for axis in order] for one in steps])
    return [_desc(loops.sizes, own, dtype) for own, dtype in zip(loops.steps, dtypes, strict=True)]


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
        made: Eltwise = FUNCTIONS[type(op)](op)
        primitive = eltwise_forward(x.desc, y.desc, made.algorithm, made.alpha, made.beta)
        return Computation(primitive, {Arg.SRC: x, Arg.DST: y})


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
class GeluGradient(SingleOpKernel):
    """The gradient of a GELU."""

    def computes(self, op: Any, types: Sequence[TensorType], layouts: LayoutSignature) -> Computation:
        x, dy, dx = broadcast(op, types, layouts)
        hint = eltwise_forward(x.desc, x.desc, Algorithm.ELTWISE_GELU_ERF)
        primitive = eltwise_backward(dx.desc, dy.desc, x.desc, Algorithm.ELTWISE_GELU_ERF, hint)
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
class Reduction(SingleOpKernel):
    """A sum or mean over the innermost axes."""

    def wished(self, node: Node, given: Sequence[Layout]) -> LayoutSignature:
        """In the operand's layout, if the library has fast code for it."""
        lies = PLAIN if given[0].opaque is not None else given[0]
        as_it_lies = LayoutSignature((lies,), (PLAIN,))
        slow = slow_reason(lambda: self.describe(node, as_it_lies).primitive)
        return as_it_lies if slow is None else LayoutSignature((PLAIN,), (PLAIN,))

    def stored(self, wanted: LayoutSignature) -> LayoutSignature:
        return LayoutSignature(wanted.inputs, tuple(one.with_dtype(None) for one in wanted.outputs))

    def computes(self, op: Any, types: Sequence[TensorType], layouts: LayoutSignature) -> Computation:
        (x,), (lies,), y = types, layouts.inputs, op.infer(*types)
        kept = x.with_shape(*(1 if axis in op.reduced_axes(x) else size for axis, size in enumerate(x.shape)))
        steps = [_aligned(one, layout.strides(one), x.rank) for one, layout in ((x, lies), (kept, PLAIN))]
        source, target = _descs(x.shape, steps, [data_type(x, lies), data_type(y, layouts.outputs[0])])
        places: dict[int, Operand] = {Arg.SRC: Operand(0, source), Arg.DST: Operand(0, target, output=True)}
        return Computation(reduction(source, target, REDUCTIONS[type(op)]), places)


@kernel(*REDUCTIONS, backend="onednn", rank=6)
class ShortRowReduction(Reduction):
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
