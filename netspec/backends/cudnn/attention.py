"""Attention and its gradient, of 16-bit operands as they lie: the library has it in no other precision.

Scores and their softmax stay on the chip; what the gradient needs of them is one number for each query and head.
Without the leave to add up in any order the gradient writes scores down after all, in 16 bits, for as long as it runs.

A mask becomes a number that is added to scores, so low that nothing is left of them: a query that may look nowhere then
has a mean of all values, and as the sum of its softmax this number, which tells that zeros are to be written instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Any, ClassVar

from netspec.backends.channels import Scratch
from netspec.backends.cuda import elementwise
from netspec.backends.cuda.scalar import c_number
from netspec.backends.cudnn.attentions import Gradients, Looking, Means, by_heads
from netspec.backends.cudnn.plans import Plan, names, planned, sure, unsupported
from netspec.backends.moves import in_turn
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.attention import Attention, AttentionGrad
from netspec.graph.plan import aligned
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

UNSEEN = -(2.0**41)
"""What is added to scores that must not be looked at: the sum is this number, of any scores below 2¹⁷.

A power of two: kernels subtract the rounded product of the greatest score and log2(e) from the unrounded one of each,
and where a query looks nowhere, the rounding of another number would be all that is left, and its power infinite.
"""
_NUMBER = c_number(UNSEEN, DType.FLOAT32)
_ADDED = ((), (f"a0 ? 0.0f : {_NUMBER}",))
_SEEING = ((), (f"a1 < 0.5f * {_NUMBER} ? 0.0f : a0",))  # NaN is no less than that, and stays what it is


class AttentionKernel(Kernel):
    """Base of all: one plan of the library. The first operands, and the results but for sums, lie in 16 bits."""

    elements = (DType.BFLOAT16, DType.FLOAT16)
    kind: ClassVar[type[Looking]]
    operands: ClassVar[tuple[bool, ...]]
    """Which operands lie in 16 bits, the mask excepted."""
    results: ClassVar[tuple[bool, ...]]
    pick: str | None = None
    """The name of its plan; default: the one that the library thinks fastest."""

    @property
    def label(self) -> str:
        return super().label + ("" if self.pick is None else f" by {self.pick}")

    def variants(self, node: Node, lying: Signature) -> Sequence[Kernel]:
        """By other plans."""
        what = self._what(node, lying)
        return [] if isinstance(planned(what), str) else [_varied(self, name) for name in names(what)]

    def why_not(self, op: Attention | AttentionGrad, *types: TensorType) -> str | None:
        if types[0].dtype != DType.FLOAT32:
            return f"cuDNN attends to 16-bit numbers, which {types[0].dtype} is not rounded to"
        found = unsupported(self._described(op, types, self.elements[0]))
        return None if found is None else f"cuDNN has no plan: {found}"

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        return self._lying(node, self.elements[0], self.results)

    def narrowed(self, node: Node, wanted: Signature) -> Signature | None:
        dtype = wanted.inputs[0].dtype
        if dtype not in self.elements:
            return None
        narrow = [one.dtype == dtype for one in wanted.outputs]
        return self._lying(node, dtype, [own and asked for own, asked in zip(self.results, narrow, strict=True)])

    def _lying(self, node: Node, dtype: DType, results: Sequence[bool]) -> Signature:
        operands = (*self.operands, *(False for _ in node.inputs[len(self.operands) :]))
        narrow = PLAIN.as_stored(dtype)
        return Signature(*(tuple(narrow if one else PLAIN for one in some) for some in (operands, results)))

    def workspace(self, node: Node, layouts: Signature) -> int:
        mine = aligned(sure(self._what(node, layouts)).workspace)
        return mine + sum(aligned(size) for size in self._spaces(node, layouts))

    def _spaces(self, node: Node, layouts: Signature) -> list[int]:
        """Bytes beside the library's: for what is added to scores, for results that lie in 32 bits, and for more."""
        added = [4 * value.type.size for value in node.inputs[len(self.operands) :]]
        wide = [2 * node.types[index].size for index in self._widened(layouts)]
        return [*added, *wide, self.further(node)]

    def further(self, node: Node) -> int:
        """Bytes that the kernel wants for more."""
        raise NotImplementedError  # abstract: subclasses say

    def _widened(self, layouts: Signature) -> list[int]:
        """The results that the library writes in 16 bits, and lie in 32."""
        return [index for index, own in enumerate(self.results) if own and layouts.outputs[index].dtype is None]

    def _what(self, node: Node, layouts: Signature) -> Looking:
        return self._described(node.op, [value.type for value in node.inputs], layouts.inputs[0].stored(node.types[0]))

    def _described(self, op: Any, types: Sequence[TensorType], dtype: DType) -> Looking:
        q, k, v = (by_heads(one, dtype) for one in types[:3])
        mask = types[len(self.operands) :]
        rows = mask[0].shape[1] if mask else None
        return self.kind(
            q=q, k=k, v=v, band=op.band, bias_rows=rows, deterministic=self.deterministic, pick=self.pick
        )  # fmt: skip

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """What is added to scores, the library's call, and what goes with it."""
        plan, space = sure(self._what(node, buffers.layouts)), buffers.workspace
        assert isinstance(plan, Plan), "nothing runs on a GPU that is not there"
        assert space is not None
        scratch, calls = Scratch(space[aligned(plan.workspace) :], DType.UINT8), list[Thunk]()
        operands, masks = [*buffers.inputs[: len(self.operands)]], buffers.inputs[len(self.operands) :]
        added = [scratch.take(4 * mask.size).view("float32").reshape(mask.shape) for mask in masks]
        calls += [elementwise.bound(_ADDED, [mask], [one]) for mask, one in zip(masks, added, strict=True)]
        results, wide = [*buffers.outputs], self._widened(buffers.layouts)
        for index in wide:
            kind = node.types[index]
            results[index] = scratch.take(2 * kind.size).view(operands[0].dtype).reshape(kind.shape)
        calls += self.called(plan, [*operands, *added], results, scratch, space)
        calls += [
            elementwise.copy(results[index], made)
            for index in wide
            if (made := buffers.outputs[index]) is not None
        ]  # fmt: skip
        return in_turn(calls)

    def called(self, plan: Plan, operands: list[Any], results: list[Any], scratch: Scratch, space: Any) -> list[Thunk]:
        """The library's call, before and after which rows of queries that look nowhere are seen to."""
        raise NotImplementedError  # abstract: subclasses say


def _seeing(x: Any, total: Any, made: Any) -> Thunk:
    """A call that writes x, (N, T, heads…, V), with zeros for queries that look nowhere; total: (N, heads…, T)."""
    along = total.transpose(0, total.ndim - 1, *range(1, total.ndim - 1))[..., None]
    return elementwise.bound(_SEEING, [x, along], [made])


@cache
def _varied(one: AttentionKernel, pick: str) -> AttentionKernel:
    """A kernel that does the same by another plan."""
    made = copy(one)
    made.pick = pick
    return made


@kernel(Attention, backend="cudnn", rank=10)
class AttentionMeans(AttentionKernel):
    """y and the logarithm of the sum of each softmax."""

    kind = Means
    operands = (True, True, True)
    results = (True, False)

    def further(self, node: Node) -> int:
        """The sums, where nobody else wants them."""
        return node.types[1].nbytes

    def called(self, plan: Plan, operands: list[Any], results: list[Any], scratch: Scratch, space: Any) -> list[Thunk]:
        y, total = results
        if total is None:
            shape = (y.shape[0], *y.shape[2:-1], y.shape[1])
            total = scratch.take(4 * (y.size // y.shape[-1])).view("float32").reshape(shape)
        calls = [plan.bind(operands, [y, total], space)]
        return calls if len(operands) == len(self.operands) else [*calls, _seeing(y, total, y)]


@kernel(AttentionGrad, backend="cudnn", rank=10)
class AttentionGradients(AttentionKernel):
    """dq, dk and dv."""

    kind = Gradients
    operands = (True, True, True, True, False, True)
    results = (True, True, True)

    def further(self, node: Node) -> int:
        """Results that nobody reads, all in one place, and the gradient without that of queries that look nowhere."""
        masked = len(node.inputs) > len(self.operands)
        unread = aligned(2 * max(kind.size for kind in node.types))
        return unread + (2 * node.inputs[5].type.size if masked else 0)

    def called(self, plan: Plan, operands: list[Any], results: list[Any], scratch: Scratch, space: Any) -> list[Thunk]:
        calls, total, dy = list[Thunk](), operands[4], operands[5]
        if len(operands) > len(self.operands):
            operands[5] = scratch.take(2 * dy.size).view(dy.dtype).reshape(dy.shape)
            calls.append(_seeing(dy, total, operands[5]))
        unread = scratch.take(2 * max(one.size for one in operands[:3])).view(dy.dtype)
        return [*calls, plan.bind(operands, [unread if one is None else one for one in results], space)]


@kernel(AttentionGrad, backend="cudnn", rank=11)
class UnorderedAttentionGradients(AttentionGradients):
    """As `AttentionGradients`, added up in any order."""

    deterministic = False
