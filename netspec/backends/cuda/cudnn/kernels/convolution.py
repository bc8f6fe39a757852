"""Convolutions, transposed convolutions and their gradients, channels-last, with 1 to 3 spatial axes.

The library has nondeterministic plans for gradients in float32 and tf32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.common.copy_kernels import chain
from netspec.backends.cuda.contraction import ContractionKernel, anchor_of
from netspec.backends.cuda.cudnn.convolution_graph import ConvolutionGraph, ConvolutionKind
from netspec.backends.cuda.cudnn.planned_kernel import PlannedKernel, with_attributes
from netspec.backends.cuda.cudnn.plans import Tensor, no_plan_reason
from netspec.backends.cuda.kernels import elementwise
from netspec.graph.execution_plan import align_up
from netspec.graph.fused import EpilogueFused
from netspec.graph.kernel import Kernel, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node


def last(kind: TensorType) -> Layout:
    """The layout with channels innermost."""
    return Layout.channels_last(kind.rank)


def written_as_read(layouts: LayoutSignature) -> bool:
    """Whether the result has the element type of the operands, the only one that the library writes."""
    return layouts.outputs[0].dtype == layouts.inputs[0].dtype


class ConvolutionKernel(PlannedKernel, ContractionKernel):
    """Base class: a plan of the library."""

    library = "cuDNN"
    channel = 1
    unrounded = False
    kind: ConvolutionKind
    separate_bias: bool = False
    """Whether the epilogue adds the bias."""

    @property
    def label(self) -> str:
        return super().label + (", separate bias" if self.separate_bias else "")

    def tuning_variants(self, node: Node, signature: LayoutSignature) -> Sequence[Kernel]:
        """Return kernels that run other plans, including plans without the bias if the kernel adds one."""
        variants = list[Kernel]()
        for separate_bias in (False, True)[: 1 + (self.body(node)[0] is not None)]:
            kernel = with_attributes(self, separate_bias=separate_bias)
            variants += PlannedKernel.tuning_variants(kernel, node, signature)
        return variants

    def adds_bias(self, op: Op, dtype: DType) -> bool:
        return not self.separate_bias and isinstance(op, Conv) and dtype == DType.FLOAT32

    def decline_reason(self, op: Op, types: Sequence[TensorType]) -> str | None:
        conv = op if isinstance(op, Conv) else getattr(op, "conv", None)
        if not isinstance(conv, Conv) or isinstance(op, Conv) != (self.kind is ConvolutionKind.FORWARD):
            return f"the anchor is {op.name}"
        a, b = types[:2]
        result = op.infer(a, b)
        assert isinstance(result, TensorType)
        return no_plan_reason(self.described(op, (a, b, result), (last(a), last(b), last(result)), biased=False))

    def described(
        self, op: Op, types: Sequence[TensorType], layouts: Sequence[Layout], *, biased: bool
    ) -> ConvolutionGraph:
        """The operation to plan for two operands and the result."""
        conv = op if isinstance(op, Conv) else op.conv  # type: ignore[attr-defined]  # `decline_reason` has looked
        a, b, y = map(Tensor.of, types, layouts)
        options = {"deterministic": self.deterministic, "tf32": self.tf32}
        return ConvolutionGraph(self.kind, conv.window, a, b, y, biased, pick=self.pick, **options)

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        y = node.types[0]
        inputs = [last(value.type) for value in node.inputs[:2]]
        inputs += [last(y) if value.shape == y.shape else PLAIN for value in node.inputs[2:]]
        return LayoutSignature(tuple(inputs), (last(y),))

    def low_precision_signature(self, node: Node, preferred: LayoutSignature) -> LayoutSignature | None:
        signature = super().low_precision_signature(node, preferred)
        if signature is None:
            return None
        if self.body(node)[0] is not None and not written_as_read(signature):
            return None
        return None if no_plan_reason(self.operation(node, signature)) else signature

    def own_workspace(self, node: Node, layouts: LayoutSignature) -> int:
        more = (
            0
            if written_as_read(layouts)
            else node.types[0].size * layouts.inputs[0].stored_dtype(node.types[0]).itemsize
        )
        return self.plan_bytes(node, layouts) + more

    def contraction(
        self, node: Node, layouts: LayoutSignature, operands: Sequence[Any], y: Any, space: Any | None
    ) -> Thunk:
        plan = self.plan(node, layouts)
        if written_as_read(layouts):
            return plan.bind(operands, [y], space)
        assert space is not None
        flat = space[align_up(plan.workspace) :][: y.size * operands[0].itemsize].view(operands[0].dtype)
        result = layouts.outputs[0].view_elements(flat, node.types[0])
        return chain([plan.bind(operands, [result], space), elementwise.copy(result, y)])

    def operation(self, node: Node, layouts: LayoutSignature) -> ConvolutionGraph:
        types = (node.inputs[0].type, node.inputs[1].type, node.types[0])
        signature = (*layouts.inputs[:2], layouts.outputs[0].with_dtype(layouts.inputs[0].dtype))
        return self.described(anchor_of(node.op), types, signature, biased=self.body(node)[0] is not None)


@kernel(Conv, EpilogueFused, backend="cudnn", rank=10, tf32=True)
class ConvForwardKernel(ConvolutionKernel):
    """y = x ∗ w, + bias."""

    kind = ConvolutionKind.FORWARD


@kernel(ConvInputGrad, EpilogueFused, backend="cudnn", rank=10, tf32=True, nondeterministic=True)
class ConvInputGradientKernel(ConvolutionKernel):
    """dx from dy and w; a transposed convolution."""

    kind = ConvolutionKind.INPUT


@kernel(ConvWeightGrad, backend="cudnn", rank=10, tf32=True, nondeterministic=True)
class ConvWeightGradientKernel(ConvolutionKernel):
    """dw from dy and x."""

    kind = ConvolutionKind.WEIGHT
