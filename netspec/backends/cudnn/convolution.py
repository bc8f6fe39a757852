"""Convolutions, transposed ones and their gradients, channels-last, with 1 to 3 axes of places.

Of those that add up in another order each time the library has some for gradients, in float32 and in tf32.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Any

from netspec.backends.cuda import elementwise
from netspec.backends.cuda.contraction import ContractionKernel, anchor_of
from netspec.backends.cudnn.convolutions import Convolution, Kind
from netspec.backends.cudnn.plans import Assumed, Plan, Tensor, names, planned, sure
from netspec.backends.moves import in_turn
from netspec.graph.fused import Anchored
from netspec.graph.kernel import Kernel, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.op import Op
from netspec.graph.plan import aligned
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node
from netspec.layers.convolution import Conv, ConvInputGrad, ConvWeightGrad


def last(kind: TensorType) -> Layout:
    """Channels innermost."""
    return Layout.channels_last(kind.rank)


def written_as_read(layouts: Signature) -> bool:
    """Whether the result lies in the element type of the operands, the only one that the library writes."""
    return layouts.outputs[0].dtype == layouts.inputs[0].dtype


class ConvolutionKernel(ContractionKernel):
    """Base of all: one plan of the library."""

    library = "cuDNN"
    channel = 1
    unrounded = False
    kind: Kind
    pick: str | None = None
    """The name of its plan; default: the one that the library thinks fastest."""
    apart: bool = False
    """Whether a bias is left to what follows."""

    @property
    def label(self) -> str:
        apart = ", the bias apart" if self.apart else ""
        return super().label + ("" if self.pick is None else f" by {self.pick}{apart}")

    def variants(self, node: Node, lying: Signature) -> Sequence[Kernel]:
        """By other plans, and where it adds a bias, by plans without that."""
        found = list[Kernel]()
        for apart in (False, True)[: 1 + (self.body(node)[0] is not None)]:
            one = _varied(self, None, apart)
            what = one._described(node, lying)
            if not isinstance(planned(what), str):
                found += [_varied(self, name, apart) for name in names(what)]
        return found

    def adds_bias(self, op: Op, dtype: DType) -> bool:
        return not self.apart and isinstance(op, Conv) and dtype == DType.FLOAT32

    def declines(self, op: Op, types: Sequence[TensorType]) -> str | None:
        conv = op if isinstance(op, Conv) else getattr(op, "conv", None)
        if not isinstance(conv, Conv) or isinstance(op, Conv) != (self.kind is Kind.FORWARD):
            return f"the anchor is {op.name}"
        a, b = types[:2]
        made = op.infer(a, b)
        assert isinstance(made, TensorType)
        found = planned(self.described(op, (a, b, made), (last(a), last(b), last(made)), biased=False))
        return f"cuDNN has no plan: {found}" if isinstance(found, str) else None

    def described(self, op: Op, types: Sequence[TensorType], layouts: Sequence[Layout], *, biased: bool) -> Convolution:
        """What is to be planned for two operands and the result."""
        conv = op if isinstance(op, Conv) else op.conv  # type: ignore[attr-defined]  # `declines` has looked
        a, b, y = map(Tensor.of, types, layouts)
        asked = {"deterministic": self.deterministic, "tf32": self.tf32}
        return Convolution(self.kind, conv.window, a, b, y, biased, pick=self.pick, **asked)

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        y = node.types[0]
        inputs = [last(value.type) for value in node.inputs[:2]]
        inputs += [last(y) if value.shape == y.shape else PLAIN for value in node.inputs[2:]]
        return Signature(tuple(inputs), (last(y),))

    def narrowed(self, node: Node, wanted: Signature) -> Signature | None:
        found = super().narrowed(node, wanted)
        if found is None:
            return None
        if self.body(node)[0] is not None and not written_as_read(found):
            return None
        return None if isinstance(planned(self._described(node, found)), str) else found

    def own_workspace(self, node: Node, layouts: Signature) -> int:
        more = 0 if written_as_read(layouts) else node.types[0].size * layouts.inputs[0].stored(node.types[0]).itemsize
        return aligned(self.plan(node, layouts).workspace) + more

    def contraction(self, node: Node, layouts: Signature, operands: Sequence[Any], y: Any, space: Any | None) -> Thunk:
        plan = self.plan(node, layouts)
        assert isinstance(plan, Plan), "nothing runs on a GPU that is not there"
        if written_as_read(layouts):
            return plan.bind(operands, [y], space)
        assert space is not None
        flat = space[aligned(plan.workspace) :][: y.size * operands[0].itemsize].view(operands[0].dtype)
        made = layouts.outputs[0].arranged(flat, node.types[0])
        return in_turn([plan.bind(operands, [made], space), elementwise.copy(made, y)])

    def plan(self, node: Node, layouts: Signature) -> Plan | Assumed:
        """That of a node whose operands and results lie so. Raises `RuntimeError` where there is none."""
        return sure(self._described(node, layouts))

    def _described(self, node: Node, layouts: Signature) -> Convolution:
        types = (node.inputs[0].type, node.inputs[1].type, node.types[0])
        lying = (*layouts.inputs[:2], layouts.outputs[0].as_stored(layouts.inputs[0].dtype))
        return self.described(anchor_of(node.op), types, lying, biased=self.body(node)[0] is not None)


@cache
def _varied(one: ConvolutionKernel, pick: str | None, apart: bool) -> ConvolutionKernel:
    """A kernel that does the same, in another way."""
    made = copy(one)
    made.pick, made.apart = pick, apart
    return made


@kernel(Conv, Anchored, backend="cudnn", rank=10)
class Forward(ConvolutionKernel):
    """y = x ∗ w, + bias."""

    kind = Kind.FORWARD


@kernel(ConvInputGrad, Anchored, backend="cudnn", rank=10)
class InputGradient(ConvolutionKernel):
    """dx from dy and w; a transposed convolution."""

    kind = Kind.INPUT


@kernel(ConvWeightGrad, backend="cudnn", rank=10)
class WeightGradient(ConvolutionKernel):
    """dw from dy and x."""

    kind = Kind.WEIGHT


@kernel(Conv, Anchored, backend="cudnn", rank=14)
class RoundedForward(Forward):
    """As `Forward`, of operands as tf32."""

    tf32 = True


@kernel(ConvInputGrad, Anchored, backend="cudnn", rank=14)
class RoundedInputGradient(InputGradient):
    """As `InputGradient`, of operands as tf32."""

    tf32 = True


@kernel(ConvWeightGrad, backend="cudnn", rank=14)
class RoundedWeightGradient(WeightGradient):
    """As `WeightGradient`, of operands as tf32."""

    tf32 = True


@kernel(ConvInputGrad, Anchored, backend="cudnn", rank=11)
class UnorderedInputGradient(InputGradient):
    """As `InputGradient`, added up in any order."""

    deterministic = False


@kernel(ConvWeightGrad, backend="cudnn", rank=11)
class UnorderedWeightGradient(WeightGradient):
    """As `WeightGradient`, added up in any order."""

    deterministic = False


@kernel(ConvInputGrad, Anchored, backend="cudnn", rank=15)
class UnorderedRoundedInputGradient(RoundedInputGradient):
    """As `RoundedInputGradient`, added up in any order."""

    deterministic = False


@kernel(ConvWeightGrad, backend="cudnn", rank=15)
class UnorderedRoundedWeightGradient(RoundedWeightGradient):
    """As `RoundedWeightGradient`, added up in any order."""

    deterministic = False
