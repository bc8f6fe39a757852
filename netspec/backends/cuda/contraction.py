"""`ContractionKernel`: what kernels by a library's products and convolutions have in common.

A bias is added where the library can do it as it writes the result. What follows is a kernel of our own on the result:
a library's ReLU makes 0 of NaN, which would hide it from the guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from netspec.backends.cuda import elementwise
from netspec.backends.cuda.scalar import scalar_code, why_untraceable
from netspec.backends.moves import in_turn
from netspec.graph.fused import Anchored, Fused, Step
from netspec.graph.kernel import Buffers, Kernel, Thunk
from netspec.graph.layout import Signature
from netspec.graph.op import Op
from netspec.graph.ops.elementwise import Add
from netspec.graph.plan import aligned
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

FLOATS = (DType.FLOAT32, DType.FLOAT64)


def anchor_of(op: Op) -> Op:
    """The contraction, without what follows it."""
    return op.anchor if isinstance(op, Anchored) else op


def bias_of(op: Anchored, y: TensorType, extras: Sequence[TensorType], axis: int) -> int | None:
    """Which of the extras is a bias along `axis` of the result that the first op of the body adds; None if none is."""
    if not isinstance(op.body[0].op, Add):
        return None
    if any(0 in step.operands for step in op.body[1:]) or op.body[0].operands.count(0) != 1:
        return None  # the result is read without the bias too
    along = tuple(size if place == axis % y.rank else 1 for place, size in enumerate(y.shape))
    for operand in op.body[0].operands:
        kind = extras[operand - 1] if 0 < operand <= len(extras) else None
        if kind is not None and (1,) * (y.rank - kind.rank) + kind.shape == along:
            return operand - 1
    return None


def without_first(body: Fused) -> Fused | None:
    """A body without its first step, whose result takes the place of operand 0; None where nothing is left."""

    def moved(index: int) -> int:
        return 0 if index == body.arity else index - (index > body.arity)

    if len(body.body) == 1:
        return None
    steps = tuple(Step(step.op, tuple(map(moved, step.operands))) for step in body.body[1:])
    return Fused(body.arity, steps, tuple(map(moved, body.results)))


class ContractionKernel(Kernel):
    """Base: a contraction of two operands by a library, and what follows it, element by element."""

    library: ClassVar[str]
    """Its name."""
    channel: ClassVar[int]
    """The axis of the result that a bias goes along."""
    unrounded: ClassVar[bool] = True
    """Whether the library writes results of narrow operands as they are, to be rounded by what follows."""

    def declines(self, op: Op, types: Sequence[TensorType]) -> str | None:
        """Why it cannot take the contraction itself."""
        raise NotImplementedError  # abstract: subclasses say

    def adds_bias(self, op: Op, dtype: DType) -> bool:
        """Whether the library adds a bias to results of this type."""
        raise NotImplementedError  # abstract: subclasses say

    def own_workspace(self, node: Node, layouts: Signature) -> int:
        """Bytes that the library wants."""
        raise NotImplementedError  # abstract: subclasses say

    def contraction(self, node: Node, layouts: Signature, operands: Sequence[Any], y: Any, space: Any | None) -> Thunk:
        """A call of the library: operands are two and a bias, if it adds one."""
        raise NotImplementedError  # abstract: subclasses say

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        if types[0].dtype not in FLOATS:
            return f"{self.library} multiplies floats, not {types[0].dtype}"
        if self.tf32 and types[0].dtype != DType.FLOAT32:
            return f"{types[0].dtype} is not rounded to tf32"
        reason = self.declines(anchor_of(op), types)
        if reason is not None or not isinstance(op, Anchored):
            return reason
        first = op.anchor.infer(*types[: op.anchor_arity])
        assert isinstance(first, TensorType)
        if op.infer(*types) != first:
            return "what follows makes another type of it"
        return why_untraceable(op.epilogue(len(types) - op.anchor_arity), (first, *types[op.anchor_arity :]))

    def narrowed(self, node: Node, wanted: Signature) -> Signature | None:
        a, b = wanted.inputs[:2]
        return wanted if a.dtype == b.dtype and a.dtype is not None else None

    def workspace(self, node: Node, layouts: Signature) -> int:
        return sum(self._spaces(node, layouts))

    def _spaces(self, node: Node, layouts: Signature) -> tuple[int, int, int]:
        """Bytes of scratch memory: the library's, for the bias as it is rounded, for the result as it is not yet."""
        y, (bias, after) = node.types[0], self.body(node)
        unrounded = self.unrounded and after is not None and layouts.outputs[0].dtype is not None
        of_bias = 0 if bias is None else aligned(y.shape[self.channel] * y.dtype.itemsize)
        return aligned(self.own_workspace(node, layouts)), of_bias, aligned(y.nbytes) if unrounded else 0

    def body(self, node: Node) -> tuple[int | None, Fused | None]:
        """Which of the extras is the bias that the library adds, and what follows then, on result and extras."""
        op, y = node.op, node.types[0]
        if not isinstance(op, Anchored):
            return None, None
        extras = [value.type for value in node.inputs[op.anchor_arity :]]
        bias = bias_of(op, y, extras, self.channel) if self.adds_bias(op.anchor, y.dtype) else None
        whole = op.epilogue(len(extras))
        return bias, whole if bias is None else without_first(whole)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """The bias rounded, the contraction, what follows: each where there is one."""
        calls, kind, layouts = list[Thunk](), node.types[0], buffers.layouts
        (a, b, *extras), (y,), space = buffers.inputs, buffers.outputs, buffers.workspace
        assert y is not None
        place, after = self.body(node)
        own, of_bias, of_result = self._spaces(node, layouts)
        made, operands = y, [a, b]
        if of_result:
            assert space is not None
            flat = space[own + of_bias :][: kind.nbytes].view(str(kind.dtype))
            made = layouts.outputs[0].arranged(flat, kind)
        if place is not None:
            bias = extras[place].reshape(-1)
            if bias.dtype != made.dtype:
                assert space is not None
                rounded = space[own:][: bias.size * made.itemsize].view(made.dtype)
                calls.append(elementwise.copy(bias, rounded))
                bias = rounded
            operands.append(bias)
        calls.append(self.contraction(node, layouts, operands, made, space if own else None))
        if after is not None:
            types = (value.dtype for value in node.inputs[len(buffers.inputs) - len(extras) :])
            calls.append(elementwise.bound(scalar_code(after, kind.dtype, *types), [made, *extras], [y]))
        return in_turn(calls)
