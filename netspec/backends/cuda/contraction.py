"""`ContractionKernel`: base class of kernels that run a library's matrix product or convolution.

The library adds a bias if it can do so as it writes the result. The rest of the epilogue runs as a separate kernel: a
library's ReLU turns NaN into 0, which would hide it from the guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from netspec.backends.common.copy_kernels import chain
from netspec.backends.cuda.kernels import elementwise
from netspec.backends.cuda.scalar_code import scalar_code, why_untraceable
from netspec.graph.execution_plan import align_up
from netspec.graph.fused import EpilogueFused, Fused, FusedStep
from netspec.graph.kernel import Buffers, Kernel, Thunk
from netspec.graph.layout import LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.elementwise import Add
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

FLOATS = (DType.FLOAT32, DType.FLOAT64)


def anchor_of(op: Op) -> Op:
    """The contraction without its epilogue."""
    return op.anchor if isinstance(op, EpilogueFused) else op


def bias_of(op: EpilogueFused, y: TensorType, extras: Sequence[TensorType], axis: int) -> int | None:
    """Index of the extra operand that the epilogue's first step adds as a bias along `axis`; None without a bias."""
    if not isinstance(op.body[0].op, Add):
        return None
    if any(0 in step.operands for step in op.body[1:]) or op.body[0].operands.count(0) != 1:
        return None  # other steps read the result without the bias
    along = tuple(size if index == axis % y.rank else 1 for index, size in enumerate(y.shape))
    for operand in op.body[0].operands:
        kind = extras[operand - 1] if 0 < operand <= len(extras) else None
        if kind is not None and (1,) * (y.rank - kind.rank) + kind.shape == along:
            return operand - 1
    return None


def without_first(body: Fused) -> Fused | None:
    """An epilogue without its first step, whose result becomes operand 0; None if no step remains."""

    def moved(index: int) -> int:
        return 0 if index == body.arity else index - (index > body.arity)

    if len(body.body) == 1:
        return None
    steps = tuple(FusedStep(step.op, tuple(map(moved, step.operands))) for step in body.body[1:])
    return Fused(body.arity, steps, tuple(map(moved, body.results)))


class ContractionKernel(Kernel):
    """Base class: a contraction of two operands by a library, followed by an elementwise epilogue."""

    library: ClassVar[str]
    """Name of the library."""
    channel: ClassVar[int]
    """The axis of the result along which a bias is added."""
    unrounded: ClassVar[bool] = True
    """Whether the library writes 16-bit results unrounded, so that the epilogue rounds them."""

    def decline_reason(self, op: Op, types: Sequence[TensorType]) -> str | None:
        """Return why the library cannot compute the contraction; None if it can."""
        raise NotImplementedError  # abstract

    def adds_bias(self, op: Op, dtype: DType) -> bool:
        """Whether the library adds a bias to results of this type."""
        raise NotImplementedError  # abstract

    def own_workspace(self, node: Node, layouts: LayoutSignature) -> int:
        """Bytes of scratch memory of the library."""
        raise NotImplementedError  # abstract

    def contraction(
        self, node: Node, layouts: LayoutSignature, operands: Sequence[Any], y: Any, space: Any | None
    ) -> Thunk:
        """A call of the library on two operands, and a bias if the library adds it."""
        raise NotImplementedError  # abstract

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        if types[0].dtype not in FLOATS:
            return f"{self.library} multiplies floats, not {types[0].dtype}"
        if self.tf32 and types[0].dtype != DType.FLOAT32:
            return f"{types[0].dtype} is not rounded to tf32"
        reason = self.decline_reason(anchor_of(op), types)
        if reason is not None or not isinstance(op, EpilogueFused):
            return reason
        first = op.anchor.infer(*types[: op.anchor_arity])
        assert isinstance(first, TensorType)
        if op.infer(*types) != first:
            return "the epilogue changes the element type"
        return why_untraceable(op.epilogue(len(types) - op.anchor_arity), (first, *types[op.anchor_arity :]))

    def low_precision_signature(self, node: Node, preferred: LayoutSignature) -> LayoutSignature | None:
        a, b = preferred.inputs[:2]
        return preferred if a.dtype == b.dtype and a.dtype is not None else None

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        return sum(self._spaces(node, signature))

    def _spaces(self, node: Node, layouts: LayoutSignature) -> tuple[int, int, int]:
        """Bytes of scratch memory: the library's, the rounded bias, and the unrounded result."""
        y, (bias, after) = node.types[0], self.body(node)
        unrounded = self.unrounded and after is not None and layouts.outputs[0].dtype is not None
        of_bias = 0 if bias is None else align_up(y.shape[self.channel] * y.dtype.itemsize)
        return align_up(self.own_workspace(node, layouts)), of_bias, align_up(y.nbytes) if unrounded else 0

    def body(self, node: Node) -> tuple[int | None, Fused | None]:
        """Index of the extra operand that the library adds as a bias, and the rest of the epilogue."""
        op, y = node.op, node.types[0]
        if not isinstance(op, EpilogueFused):
            return None, None
        extras = [value.type for value in node.inputs[op.anchor_arity :]]
        bias = bias_of(op, y, extras, self.channel) if self.adds_bias(op.anchor, y.dtype) else None
        epilogue = op.epilogue(len(extras))
        return bias, epilogue if bias is None else without_first(epilogue)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Calls that round the bias, contract, and run the epilogue, each if needed."""
        calls, kind, layouts = list[Thunk](), node.types[0], buffers.layouts
        (a, b, *extras), (y,), space = buffers.inputs, buffers.outputs, buffers.workspace
        assert y is not None
        bias_index, after = self.body(node)
        workspace, of_bias, of_result = self._spaces(node, layouts)
        product, operands = y, [a, b]
        if of_result:
            assert space is not None
            flat = space[workspace + of_bias :][: kind.nbytes].view(str(kind.dtype))
            product = layouts.outputs[0].view_elements(flat, kind)
        if bias_index is not None:
            bias = extras[bias_index].reshape(-1)
            if bias.dtype != product.dtype:
                assert space is not None
                rounded = space[workspace:][: bias.size * product.itemsize].view(product.dtype)
                calls.append(elementwise.copy(bias, rounded))
                bias = rounded
            operands.append(bias)
        calls.append(self.contraction(node, layouts, operands, product, space if workspace else None))
        if after is not None:
            types = (value.dtype for value in node.inputs[len(buffers.inputs) - len(extras) :])
            calls.append(elementwise.bound(scalar_code(after, kind.dtype, *types), [product, *extras], [y]))
        return chain(calls)
