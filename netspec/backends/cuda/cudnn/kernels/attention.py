"""Attention and its gradient of 16-bit operands, the only precision that cuDNN supports.

Scores and their softmax stay on the chip; the gradient needs one value for each query and head. A deterministic
gradient writes the scores to the workspace, in 16 bits.

A mask becomes a score bias so low that masked scores have no effect. A query whose keys are all masked gets the mean of
all values, and this bias as the sum of its softmax, by which the kernel recognizes it and writes zeros instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.scratch import ScratchMemory
from netspec.backends.cuda.cudnn.attention_graph import (
    AttentionForwardGraph,
    AttentionGradientGraph,
    AttentionGraph,
    by_heads,
)
from netspec.backends.cuda.cudnn.planned_kernel import PlannedKernel
from netspec.backends.cuda.cudnn.plans import CudnnPlan, unsupported_reason
from netspec.backends.cuda.kernels import elementwise
from netspec.backends.cuda.scalar_code import c_number
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Buffers, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.attention import Attention, AttentionGrad
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

MASK_BIAS = -(2.0**41)
"""Bias of masked scores: the sum becomes this number, for any scores below 2¹⁷.

It is a power of two: kernels subtract the rounded product of the maximum score and log2(e) from the unrounded one of
each. For a query whose keys are all masked, both are products of this number: if rounding made them different, their
difference would be large, and its exponential infinite.
"""
_BIAS_CONSTANT = c_number(MASK_BIAS, DType.FLOAT32)
_BIAS_OF_MASK = ((), (f"a0 ? 0.0f : {_BIAS_CONSTANT}",))
_ZERO_IF_MASKED = ((), (f"a1 < 0.5f * {_BIAS_CONSTANT} ? 0.0f : a0",))  # NaN is not less, so it is kept


class AttentionKernel(PlannedKernel):
    """Base class: a plan of the library. The first operands and all results except sums are 16-bit."""

    required_dtypes = (DType.BFLOAT16, DType.FLOAT16)
    kind: ClassVar[type[AttentionGraph]]
    operands: ClassVar[tuple[bool, ...]]
    """For each operand except the mask, whether it is 16-bit."""
    results: ClassVar[tuple[bool, ...]]

    def reject_reason(self, op: Attention | AttentionGrad, *types: TensorType) -> str | None:
        if types[0].dtype != DType.FLOAT32:
            return f"cuDNN computes attention in 16 bits, to which {types[0].dtype} is not rounded"
        reason = unsupported_reason(self._described(op, types, self.required_dtypes[0]))
        return None if reason is None else f"cuDNN has no plan: {reason}"

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return self._signature(node, self.required_dtypes[0], self.results)

    def low_precision_signature(self, node: Node, preferred: LayoutSignature) -> LayoutSignature | None:
        dtype = preferred.inputs[0].dtype
        if dtype not in self.required_dtypes:
            return None
        narrow = [result.dtype == dtype for result in preferred.outputs]
        return self._signature(
            node, dtype, [supported and requested for supported, requested in zip(self.results, narrow, strict=True)]
        )

    def _signature(self, node: Node, dtype: DType, results: Sequence[bool]) -> LayoutSignature:
        operands = (*self.operands, *(False for _ in node.inputs[len(self.operands) :]))
        narrow = PLAIN.with_dtype(dtype)
        return LayoutSignature(
            *(tuple(narrow if is_narrow else PLAIN for is_narrow in some) for some in (operands, results))
        )

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        return self.plan_bytes(node, signature) + sum(align_up(size) for size in self._spaces(node, signature))

    def _spaces(self, node: Node, layouts: LayoutSignature) -> list[int]:
        """Bytes in addition to the library's: score bias, 32-bit results, and extra scratch memory."""
        added = [4 * value.type.size for value in node.inputs[len(self.operands) :]]
        wide = [2 * node.types[index].size for index in self._widened(layouts)]
        return [*added, *wide, self.extra_scratch_bytes(node)]

    def extra_scratch_bytes(self, node: Node) -> int:
        """Bytes of extra scratch memory."""
        raise NotImplementedError  # abstract

    def _widened(self, layouts: LayoutSignature) -> list[int]:
        """Indices of the results that the library writes in 16 bits and that are stored in 32."""
        return [
            index for index, supported in enumerate(self.results) if supported and layouts.outputs[index].dtype is None
        ]

    def operation(self, node: Node, layouts: LayoutSignature) -> AttentionGraph:
        return self._described(
            node.op, [value.type for value in node.inputs], layouts.inputs[0].stored_dtype(node.types[0])
        )

    def _described(self, op: Any, types: Sequence[TensorType], dtype: DType) -> AttentionGraph:
        q, k, v = (by_heads(type_, dtype) for type_ in types[:3])
        mask = types[len(self.operands) :]
        rows = mask[0].shape[1] if mask else None
        return self.kind(
            q=q, k=k, v=v, band=op.band, bias_rows=rows, deterministic=self.deterministic, pick=self.pick
        )  # fmt: skip

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Calls that compute the score bias, run the library, and convert results."""
        plan, space = self.plan(node, buffers.layouts), buffers.workspace
        assert space is not None
        scratch, calls = ScratchMemory(space[align_up(plan.workspace) :], DType.UINT8), list[Thunk]()
        operands, masks = [*buffers.inputs[: len(self.operands)]], buffers.inputs[len(self.operands) :]
        added = [scratch.take(4 * mask.size).view("float32").reshape(mask.shape) for mask in masks]
        calls += [elementwise.bound(_BIAS_OF_MASK, [mask], [bias]) for mask, bias in zip(masks, added, strict=True)]
        results, wide = [*buffers.outputs], self._widened(buffers.layouts)
        for index in wide:
            kind = node.types[index]
            results[index] = scratch.take(2 * kind.size).view(operands[0].dtype).reshape(kind.shape)
        calls += self.called(plan, [*operands, *added], results, scratch, space)
        calls += [
            elementwise.copy(results[index], output)
            for index in wide
            if (output := buffers.outputs[index]) is not None
        ]  # fmt: skip
        return chain(calls)

    def called(
        self, plan: CudnnPlan, operands: list[Any], results: list[Any], scratch: ScratchMemory, space: Any
    ) -> list[Thunk]:
        """The library's call, with calls that handle fully masked queries."""
        raise NotImplementedError  # abstract


def _zero_masked_queries(x: Any, total: Any, target: Any) -> Thunk:
    """A call that writes x, (N, T, heads…, V), with zeros for fully masked queries; total: (N, heads…, T)."""
    along = total.transpose(0, total.ndim - 1, *range(1, total.ndim - 1))[..., None]
    return elementwise.bound(_ZERO_IF_MASKED, [x, along], [target])


@kernel(Attention, backend="cudnn", rank=10)
class AttentionForwardKernel(AttentionKernel):
    """y, and the logarithm of each softmax's sum."""

    kind = AttentionForwardGraph
    operands = (True, True, True)
    results = (True, False)

    def extra_scratch_bytes(self, node: Node) -> int:
        """Bytes of the sums, for the case that no node reads them."""
        return node.types[1].nbytes

    def called(
        self, plan: CudnnPlan, operands: list[Any], results: list[Any], scratch: ScratchMemory, space: Any
    ) -> list[Thunk]:
        y, total = results
        if total is None:
            shape = (y.shape[0], *y.shape[2:-1], y.shape[1])
            total = scratch.take(4 * (y.size // y.shape[-1])).view("float32").reshape(shape)
        calls = [plan.bind(operands, [y, total], space)]
        return calls if len(operands) == len(self.operands) else [*calls, _zero_masked_queries(y, total, y)]


@kernel(AttentionGrad, backend="cudnn", rank=10, nondeterministic=True)
class AttentionGradientKernel(AttentionKernel):
    """dq, dk and dv."""

    kind = AttentionGradientGraph
    operands = (True, True, True, True, False, True)
    results = (True, True, True)

    def extra_scratch_bytes(self, node: Node) -> int:
        """Bytes for results that are not read, and for dy with zeros for fully masked queries."""
        masked = len(node.inputs) > len(self.operands)
        unread = align_up(2 * max(kind.size for kind in node.types))
        return unread + (2 * node.inputs[5].type.size if masked else 0)

    def called(
        self, plan: CudnnPlan, operands: list[Any], results: list[Any], scratch: ScratchMemory, space: Any
    ) -> list[Thunk]:
        calls, total, dy = list[Thunk](), operands[4], operands[5]
        if len(operands) > len(self.operands):
            operands[5] = scratch.take(2 * dy.size).view(dy.dtype).reshape(dy.shape)
            calls.append(_zero_masked_queries(dy, total, operands[5]))
        unread = scratch.take(2 * max(operand.size for operand in operands[:3])).view(dy.dtype)
        return [*calls, plan.bind(operands, [unread if result is None else result for result in results], space)]
