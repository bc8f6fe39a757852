"""Batch normalization for training and its gradient by cuDNN, channels-last. It does not support the inference form.

The library reads operands once and keeps them on the chip as far as they fit; our own kernels read them twice. Fused
prologues and epilogues run as separate kernels. If these move many bytes, which `estimated_seconds` counts, our own
kernels are faster. All sums have a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, ClassVar

from netspec.backends.common.channel_norm import (
    ChannelNormKernel,
    fusion_reject_reason,
    normalization_op,
    operand_bytes,
)
from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.scratch import ScratchMemory
from netspec.backends.cuda.cudnn.normalization_graph import (
    NormalizationGradientGraph,
    NormalizationGraph,
    NormalizationTrainingGraph,
)
from netspec.backends.cuda.cudnn.planned_kernel import PlannedKernel
from netspec.backends.cuda.cudnn.plans import CudnnPlan, Tensor, no_plan_reason
from netspec.backends.cuda.kernels.batch_normalization import ByColumns, GradientKernel, TrainingKernel
from netspec.backends.cuda.kernels.elementwise import bound
from netspec.backends.cuda.scalar_code import scalar_code, why_untraceable
from netspec.graph.cost_model import machine_model
from netspec.graph.execution_plan import align_up
from netspec.graph.fused import EpilogueFused, Fused, FusedStep, PrologueFused
from netspec.graph.kernel import Buffers, Example, Thunk, data_layouts, kernel, narrow_data_only, transfer_seconds
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.batch_normalization import BatchNormalizationGrad, BatchNormalizationTraining, ChannelwiseOp
from netspec.graph.ops.elementwise import Add, Greater, Mul, Where, scalar
from netspec.graph.ops.source import Fill
from netspec.graph.ops.unary import Relu
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node, Value

AT_ONCE = 16
"""Bytes that a thread of the library reads at once: the channels must be a multiple."""
VECTORS = 3
"""Number of vectors in scratch memory, in addition to the library's workspace."""


class NormalizationKernel(PlannedKernel, ChannelNormKernel):
    """Base class."""

    supports_inplace: ClassVar[bool] = False  # the library does not document that results may overwrite operands
    base: ClassVar[type[ChannelwiseOp]]
    own_kernel: ClassVar[type[ByColumns]]
    """Our own kernel for the same node. It runs if the large result is not read, which the library always writes."""

    def described(self, node: Node, x: Tensor) -> NormalizationGraph:
        """The operation to plan."""
        raise NotImplementedError  # abstract

    def called(self, node: Node, buffers: Buffers, plan: CudnnPlan, scratch: ScratchMemory, space: Any) -> list[Thunk]:
        """The calls of the prologue, the library, and the epilogue."""
        raise NotImplementedError  # abstract

    def extra_traffic(self, node: Node, signature: LayoutSignature) -> tuple[int, int]:
        """Bytes moved in addition to operands and results, and the number of launches."""
        raise NotImplementedError  # abstract

    def intermediate_bytes(self, node: Node, layouts: LayoutSignature) -> int:
        """Bytes of an intermediate value with the shape of x."""
        return 0

    def reject_reason(self, op: Op, *types: TensorType) -> str | None:
        x = types[0]
        if x.dtype != DType.FLOAT32:
            return f"cuDNN normalizes float32, not {x.dtype}"
        reason = fusion_reject_reason(self.base, op, types, why_untraceable)
        if reason is not None:
            return reason
        if normalization_op(op).axis != 1:
            return f"the channels are axis {normalization_op(op).axis}, not 1"
        return _uneven(x, DType.FLOAT32) or no_plan_reason(self._candidate(op, Tensor.of(x, _last(x)), past_relu=False))

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return data_layouts(node, _last(node.inputs[0].type))

    def low_precision_signature(self, node: Node, preferred: LayoutSignature) -> LayoutSignature | None:
        signature, x = narrow_data_only(node, preferred), node.inputs[0].type
        first = signature.inputs[0]
        if not self._alike(node, signature) or _uneven(x, first.stored_dtype(x)) is not None:
            return None
        return None if no_plan_reason(self.described(node, Tensor.of(x, first))) else signature

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        extra, launches = self.extra_traffic(node, signature)
        return launches * machine_model().call_seconds + transfer_seconds(operand_bytes(node, signature) + extra)

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        plan_bytes = self.plan_bytes(node, signature) + self.intermediate_bytes(node, signature)
        vectors = VECTORS * align_up(node.inputs[1].type.nbytes)
        return max(plan_bytes + vectors, self.own_kernel().workspace(node, signature))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        if buffers.outputs[0] is None:
            return self.own_kernel().bind(node, buffers)
        plan, space = self.plan(node, buffers.layouts), buffers.workspace
        assert space is not None
        scratch = ScratchMemory(space[align_up(plan.workspace) :], node.inputs[0].dtype)
        return chain(self.called(node, buffers, plan, scratch, space))

    def _alike(self, node: Node, signature: LayoutSignature) -> bool:
        """Whether all large arrays of the library's call have the layout of x."""
        return signature.outputs[0] == signature.inputs[0]

    def operation(self, node: Node, layouts: LayoutSignature) -> NormalizationGraph:
        return self.described(node, Tensor.of(node.inputs[0].type, layouts.inputs[0]))

    def _candidate(self, op: Op, x: Tensor, *, past_relu: bool) -> NormalizationGraph:
        raise NotImplementedError  # abstract


def _last(x: TensorType) -> Layout:
    """Channels innermost."""
    return Layout.channels_last(x.rank) if x.rank > 2 else PLAIN


def _uneven(x: TensorType, stored: DType) -> str | None:
    """Return why the library does not support this number of channels; None if it does."""
    multiple = AT_ONCE // stored.itemsize
    return f"{x.shape[1]} channels; cuDNN needs a multiple of {multiple} in {stored}" if x.shape[1] % multiple else None


_X, _CHANNELS = (TensorType(shape, DType.FLOAT32) for shape in ((6, 8, 5, 4), (8,)))
"""A sample that the library accepts in any layout."""


@kernel(BatchNormalizationTraining, EpilogueFused, backend="cudnn", rank=10)
class BatchNormalizationTrainingKernel(NormalizationKernel):
    """Normalize with the mean and variance of the batch; the epilogue runs in place."""

    base = BatchNormalizationTraining
    own_kernel = TrainingKernel

    def samples(self) -> Sequence[Example]:
        op, types = BatchNormalizationTraining(), (_X, _CHANNELS, _CHANNELS)
        return (op, types), (EpilogueFused(op, 3, (FusedStep(Add(), (0, 1)), FusedStep(Relu(), (2,)))), (*types, _X))

    def described(self, node: Node, x: Tensor) -> NormalizationGraph:
        return self._candidate(node.op, x, past_relu=False)

    def _candidate(self, op: Op, x: Tensor, *, past_relu: bool) -> NormalizationGraph:
        return NormalizationTrainingGraph(
            x, normalization_op(op).epsilon, deterministic=self.deterministic, pick=self.pick
        )

    def extra_traffic(self, node: Node, signature: LayoutSignature) -> tuple[int, int]:
        """The epilogue reads and writes the result once more; the variance takes a separate launch."""
        follows = isinstance(node.op, EpilogueFused)
        return 2 * signature.outputs[0].nbytes(node.types[0]) * follows, 2 + follows

    def called(self, node: Node, buffers: Buffers, plan: CudnnPlan, scratch: ScratchMemory, space: Any) -> list[Thunk]:
        (x, gamma, beta, *extras), (y, mean, variance) = buffers.inputs, buffers.outputs
        op, dtype = normalization_op(node.op), node.inputs[0].dtype
        mean, inverse = scratch.take(gamma.size) if mean is None else mean, scratch.take(gamma.size)
        calls = [plan.bind([x, gamma, beta], [y, mean, inverse], space)]
        if variance is not None:  # rounding may make a variance negative if it is far below epsilon
            lines = f"const {dtype} found = 1 / (a0 * a0) - ({dtype}){float(op.epsilon).hex()};"
            calls.append(bound(((lines,), ("found < 0 ? 0 : found",)), [inverse], [variance]))
        if isinstance(node.op, EpilogueFused):
            code = scalar_code(node.op.epilogue(len(extras)), dtype, *(value.dtype for value in node.inputs[3:]))
            calls.append(bound(code, [y, *extras], [y]))
        return calls


@kernel(BatchNormalizationGrad, PrologueFused, backend="cudnn", rank=10)
class BatchNormalizationGradientKernel(NormalizationKernel):
    """Gradients in training. The library fuses the gradient of a ReLU; other prologues are our own kernels."""

    base = BatchNormalizationGrad
    own_kernel = GradientKernel

    def samples(self) -> Sequence[Example]:
        op, types = BatchNormalizationGrad(epsilon=3.0), (_X, _CHANNELS, _CHANNELS, _CHANNELS, _X)
        return (op, types), (PrologueFused(op, 4, 5, (FusedStep(Mul(), (0, 1)),)), (*types, _X))

    def described(self, node: Node, x: Tensor) -> NormalizationGraph:
        return self._candidate(node.op, x, past_relu=self._fused_relu(node, x) is not None)

    def _candidate(self, op: Op, x: Tensor, *, past_relu: bool) -> NormalizationGraph:
        return NormalizationGradientGraph(x, past_relu, deterministic=self.deterministic, pick=self.pick)

    def _alike(self, node: Node, signature: LayoutSignature) -> bool:
        dy = self._dy(node, signature)
        return super()._alike(node, signature) and (dy is None or signature.inputs[dy] == signature.inputs[0])

    def _fused_relu(self, node: Node, x: Tensor) -> ReluBackwardMatch | None:
        """The ReLU backward that the library fuses; None if there is none."""
        match = ReluBackwardMatch.of(node)
        return None if match is None or no_plan_reason(self._candidate(node.op, x, past_relu=True)) else match

    def _dy(self, node: Node, signature: LayoutSignature) -> int | None:
        """Index of the operand that the library reads as dy; None if a prologue computes dy first."""
        if not isinstance(node.op, PrologueFused):
            return 4
        relu = self._fused_relu(node, Tensor.of(node.inputs[0].type, signature.inputs[0]))
        return None if relu is None else relu.dy

    def intermediate_bytes(self, node: Node, layouts: LayoutSignature) -> int:
        """Bytes of dy, if a prologue computes it."""
        return align_up(layouts.inputs[0].nbytes(node.inputs[0].type)) if self._dy(node, layouts) is None else 0

    def extra_traffic(self, node: Node, signature: LayoutSignature) -> tuple[int, int]:
        """The prologue writes dy, then x and dy are read; the inverse standard deviation takes a separate launch."""
        if self._dy(node, signature) is not None:
            return 0, 2
        x = node.inputs[0]
        rereads = 1 if x in node.inputs[4:] else 0
        return (2 + rereads) * signature.inputs[0].nbytes(x.type), 3

    def called(self, node: Node, buffers: Buffers, plan: CudnnPlan, scratch: ScratchMemory, space: Any) -> list[Thunk]:
        (x, gamma, mean, variance, *extras), (dx, *statistics) = buffers.inputs, buffers.outputs
        dtype, epsilon = node.inputs[0].dtype, float(normalization_op(node.op).epsilon).hex()
        dy_index = self._dy(node, buffers.layouts)
        vectors = [scratch.take(gamma.size) if vector is None else vector for vector in statistics]
        inverse = scratch.take(gamma.size)
        calls = [bound(((), (f"1 / sqrt_{dtype}(a0 + ({dtype}){epsilon})",)), [variance], [inverse])]
        operands = [gamma, mean, inverse]
        if dy_index is None:
            assert isinstance(node.op, PrologueFused)
            assert scratch.workspace is not None
            flat = scratch.workspace[VECTORS * align_up(gamma.nbytes) :][: x.size * x.itemsize].view(x.dtype)
            dy = buffers.layouts.inputs[0].view_elements(flat, node.inputs[0].type)
            code = scalar_code(node.op.prologue(len(extras)), *(value.dtype for value in node.inputs[4:]))
            calls.append(bound(code, extras, [dy]))
        else:
            dy, past = buffers.inputs[dy_index], ReluBackwardMatch.of(node)
            operands += [] if past is None else [buffers.inputs[past.beta].reshape(-1)]
        return [*calls, plan.bind([x, dy, *operands], [dx, *vectors], space)]


@dataclass(frozen=True)
class ReluBackwardMatch:
    """Indices of two operands: the gradient of the ReLU's result, and the beta that is added before the ReLU."""

    dy: int
    beta: int

    @classmethod
    def of(cls, node: Node) -> ReluBackwardMatch | None:
        """Match a node that reads x, gamma, mean, variance and the operands of its prologue."""
        if not isinstance(node.op, PrologueFused) or not isinstance(node.op.op, BatchNormalizationGrad):
            return None
        x, gamma, mean, variance, *extras = node.inputs
        large = {x, *(extra for extra in extras if extra.shape == x.shape)}
        actual = _structure(node.op.prologue(len(extras)), 0, [_expression_key(extra, large) for extra in extras])
        for dy in (index for index, extra in enumerate(extras) if extra in large - {x}):
            for beta in (index for index, extra in enumerate(extras) if extra.base.shape == gamma.shape):
                expected = _expected(node.op.op, x, gamma, extras[beta].base, mean, variance, extras[dy])
                if actual == _expression_key(expected, large):
                    return cls(4 + dy, 4 + beta)
        return None


def _expected(
    op: BatchNormalizationGrad, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value, dy: Value
) -> Value:
    """The prologue that the library can fuse."""
    y = BatchNormalizationTraining(op.axis, op.epsilon).recompute((x, gamma, beta), (x, mean, variance))
    zero = scalar(0.0, x.dtype)
    return Where()(Greater()(Relu()(y), zero), dy, zero)


def _expression_key(value: Value, leaves: AbstractSet[Value]) -> Any:
    """Structure of an elementwise value: its ops, without views. Leaves and other values stand for themselves."""
    value = value if value in leaves else value.base
    if value in leaves:
        return value
    read = [_expression_key(operand, leaves) for operand in value.inputs] if value.op.traits.elementwise else []
    if isinstance(value.op, Fused):
        return _structure(value.op, value.index, read)
    return (value.op, *read) if read or isinstance(value.op, Fill) else value


def _structure(op: Fused, result: int, operands: Sequence[Any]) -> Any:
    """Structure of a result of a fused op with these operands."""
    values = list(operands)
    for step in op.body:
        values.append((step.op, *(values[index] for index in step.operands)))
    return values[op.results[result]]
