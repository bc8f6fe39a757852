"""Batch normalization for training and its gradient, channels-last. The library has no code for that for inference.

It reads operands once and keeps them on the chip, as far as they fit, where kernels of our own read them twice. What
follows or precedes it is a kernel of our own all the same, so that ours is the faster one where there is much of that:
`seconds` counts what is read and written. All sums are added up in the same order each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Any, ClassVar

from netspec.backends.channels import OverChannelsKernel, Scratch, inner, moved, why_not_around
from netspec.backends.cuda.elementwise import bound
from netspec.backends.cuda.normalization import ByColumns, GradientKernel, TrainingKernel
from netspec.backends.cuda.scalar import scalar_code, why_untraceable
from netspec.backends.cudnn.normalizations import Gradient, Normalization, Training
from netspec.backends.cudnn.past_relu import PastRelu
from netspec.backends.cudnn.plans import Plan, Tensor, names, planned, sure
from netspec.backends.moves import in_turn
from netspec.graph.fused import Anchored, Fed, Step
from netspec.graph.kernel import Buffers, Example, Kernel, Thunk, kernel, large_narrowed, moving
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.op import Op
from netspec.graph.ops.elementwise import Add, Mul
from netspec.graph.ops.functions import Relu
from netspec.graph.ops.normalization import BatchNormalizationGrad, BatchNormalizationTraining, OverChannels
from netspec.graph.plan import aligned
from netspec.graph.rates import rates
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

AT_ONCE = 16
"""Bytes that a thread of the library reads at once: channels come in so many."""
VECTORS = 3
"""Room for so many vectors beside the library's workspace."""


class NormalizationKernel(OverChannelsKernel):
    """Base of both."""

    overwrites: ClassVar[bool] = False  # nobody says that results may lie where operands do
    base: ClassVar[type[OverChannels]]
    own: ClassVar[type[ByColumns]]
    """The kernel of ours that does the same, also where nobody reads the large result: this one always writes it."""
    pick: str | None = None
    """The name of its plan; default: the one that the library thinks fastest."""

    @property
    def label(self) -> str:
        return super().label + ("" if self.pick is None else f" by {self.pick}")

    def described(self, node: Node, x: Tensor) -> Normalization:
        """What is to be planned."""
        raise NotImplementedError  # abstract: subclasses say

    def called(self, node: Node, buffers: Buffers, plan: Plan, scratch: Scratch, space: Any) -> list[Thunk]:
        """The calls: the library's, and what goes with it."""
        raise NotImplementedError  # abstract: subclasses say

    def passes(self, node: Node, lying: Signature) -> tuple[int, int]:
        """Bytes that are moved beside operands and results, each once, and the number of launches."""
        raise NotImplementedError  # abstract: subclasses say

    def large(self, node: Node, layouts: Signature) -> int:
        """Bytes of a further value like x that is written down."""
        return 0

    def why_not(self, op: Op, *types: TensorType) -> str | None:
        x = types[0]
        if x.dtype != DType.FLOAT32:
            return f"cuDNN normalizes float32, not {x.dtype}"
        reason = why_not_around(self.base, op, types, why_untraceable)
        if reason is not None:
            return reason
        if inner(op).axis != 1:
            return f"the channels are axis {inner(op).axis}, not 1"
        return _uneven(x, DType.FLOAT32) or _unplanned(self._asked(op, Tensor.of(x, _last(x)), past_relu=False))

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        x = node.inputs[0].type
        lying = [_last(x) if value.shape == x.shape else PLAIN for value in (*node.inputs, *node.outputs)]
        return Signature(tuple(lying[: len(given)]), tuple(lying[len(given) :]))

    def narrowed(self, node: Node, wanted: Signature) -> Signature | None:
        found, x = large_narrowed(node, wanted), node.inputs[0].type
        first = found.inputs[0]
        if not self._alike(node, found) or _uneven(x, first.stored(x)) is not None:
            return None
        return None if isinstance(planned(self.described(node, Tensor.of(x, first))), str) else found

    def variants(self, node: Node, lying: Signature) -> Sequence[Kernel]:
        """By other plans."""
        what = self._what(node, lying)
        return [] if isinstance(planned(what), str) else [_varied(self, name) for name in names(what)]

    def seconds(self, node: Node, lying: Signature) -> float:
        further, launches = self.passes(node, lying)
        return launches * rates().call + moving(moved(node, lying) + further)

    def workspace(self, node: Node, layouts: Signature) -> int:
        mine = aligned(sure(self._what(node, layouts)).workspace) + self.large(node, layouts)
        vectors = VECTORS * aligned(node.inputs[1].type.nbytes)
        return max(mine + vectors, self.own().workspace(node, layouts))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        if buffers.outputs[0] is None:
            return self.own().bind(node, buffers)
        plan, space = sure(self._what(node, buffers.layouts)), buffers.workspace
        assert isinstance(plan, Plan), "nothing runs on a GPU that is not there"
        assert space is not None
        scratch = Scratch(space[aligned(plan.workspace) :], node.inputs[0].dtype)
        return in_turn(self.called(node, buffers, plan, scratch, space))

    def _alike(self, node: Node, lying: Signature) -> bool:
        """Whether what the library reads and writes beside x lies as that does."""
        return lying.outputs[0] == lying.inputs[0]

    def _what(self, node: Node, lying: Signature) -> Normalization:
        return self.described(node, Tensor.of(node.inputs[0].type, lying.inputs[0]))

    def _asked(self, op: Op, x: Tensor, *, past_relu: bool) -> Normalization:
        raise NotImplementedError  # abstract: subclasses say


def _last(x: TensorType) -> Layout:
    """Channels innermost."""
    return Layout.channels_last(x.rank) if x.rank > 2 else PLAIN


def _uneven(x: TensorType, stored: DType) -> str | None:
    """Why the library cannot read so many channels; None if it can."""
    many = AT_ONCE // stored.itemsize
    return f"{x.shape[1]} channels; cuDNN wants multiples of {many} in {stored}" if x.shape[1] % many else None


def _unplanned(what: Normalization) -> str | None:
    found = planned(what)
    return f"cuDNN has no plan: {found}" if isinstance(found, str) else None


@cache
def _varied(one: NormalizationKernel, pick: str) -> NormalizationKernel:
    """A kernel that does the same by another plan."""
    made = copy(one)
    made.pick = pick
    return made


_X, _CHANNELS = (TensorType(shape, DType.FLOAT32) for shape in ((6, 8, 5, 4), (8,)))
"""A sample that the library takes, however its operands lie."""


@kernel(BatchNormalizationTraining, Anchored, backend="cudnn", rank=10)
class TrainingNormalization(NormalizationKernel):
    """Mean and variance are those of the batch; what follows is done in the result's place."""

    base = BatchNormalizationTraining
    own = TrainingKernel

    def samples(self) -> Sequence[Example]:
        op, types = BatchNormalizationTraining(), (_X, _CHANNELS, _CHANNELS)
        return (op, types), (Anchored(op, 3, (Step(Add(), (0, 1)), Step(Relu(), (2,)))), (*types, _X))

    def described(self, node: Node, x: Tensor) -> Normalization:
        return self._asked(node.op, x, past_relu=False)

    def _asked(self, op: Op, x: Tensor, *, past_relu: bool) -> Normalization:
        return Training(x, inner(op).epsilon, deterministic=self.deterministic, pick=self.pick)

    def passes(self, node: Node, lying: Signature) -> tuple[int, int]:
        """The result is read and written once more by what follows; the variance is a launch."""
        follows = isinstance(node.op, Anchored)
        return 2 * lying.outputs[0].nbytes(node.types[0]) * follows, 2 + follows

    def called(self, node: Node, buffers: Buffers, plan: Plan, scratch: Scratch, space: Any) -> list[Thunk]:
        (x, gamma, beta, *extras), (y, mean, variance) = buffers.inputs, buffers.outputs
        op, dtype = inner(node.op), node.inputs[0].dtype
        mean, inverse = scratch.take(gamma.size) if mean is None else mean, scratch.take(gamma.size)
        calls = [plan.bind([x, gamma, beta], [y, mean, inverse], space)]
        if variance is not None:  # rounding may leave less than nothing of one that is far smaller than epsilon
            lines = f"const {dtype} found = 1 / (a0 * a0) - ({dtype}){float(op.epsilon).hex()};"
            calls.append(bound(((lines,), ("found < 0 ? 0 : found",)), [inverse], [variance]))
        if isinstance(node.op, Anchored):
            code = scalar_code(node.op.epilogue(len(extras)), dtype, *(value.dtype for value in node.inputs[3:]))
            calls.append(bound(code, [y, *extras], [y]))
        return calls


@kernel(BatchNormalizationGrad, Fed, backend="cudnn", rank=10)
class GradientNormalization(NormalizationKernel):
    """Gradients of the form for training. dy past a ReLU of its result is the library's work, other ways ours."""

    base = BatchNormalizationGrad
    own = GradientKernel

    def samples(self) -> Sequence[Example]:
        op, types = BatchNormalizationGrad(epsilon=3.0), (_X, _CHANNELS, _CHANNELS, _CHANNELS, _X)
        return (op, types), (Fed(op, 4, 5, (Step(Mul(), (0, 1)),)), (*types, _X))

    def described(self, node: Node, x: Tensor) -> Normalization:
        return self._asked(node.op, x, past_relu=self._past(node, x) is not None)

    def _asked(self, op: Op, x: Tensor, *, past_relu: bool) -> Normalization:
        return Gradient(x, past_relu, deterministic=self.deterministic, pick=self.pick)

    def _alike(self, node: Node, lying: Signature) -> bool:
        dy = self._dy(node, lying)
        return super()._alike(node, lying) and (dy is None or lying.inputs[dy] == lying.inputs[0])

    def _past(self, node: Node, x: Tensor) -> PastRelu | None:
        """The ReLU that the library has in it, if there is one."""
        found = PastRelu.of(node)
        return None if found is None or _unplanned(self._asked(node.op, x, past_relu=True)) else found

    def _dy(self, node: Node, lying: Signature) -> int | None:
        """Which operand the library reads as dy; None where it is made of operands first."""
        if not isinstance(node.op, Fed):
            return 4
        found = self._past(node, Tensor.of(node.inputs[0].type, lying.inputs[0]))
        return None if found is None else found.dy

    def large(self, node: Node, layouts: Signature) -> int:
        """dy, where it is made of operands."""
        return aligned(layouts.inputs[0].nbytes(node.inputs[0].type)) if self._dy(node, layouts) is None else 0

    def passes(self, node: Node, lying: Signature) -> tuple[int, int]:
        """What dy is made of is read first, dy written, and both x and dy are read then; the inverse is a launch."""
        if self._dy(node, lying) is not None:
            return 0, 2
        x = node.inputs[0]
        again = 1 if x in node.inputs[4:] else 0
        return (2 + again) * lying.inputs[0].nbytes(x.type), 3

    def called(self, node: Node, buffers: Buffers, plan: Plan, scratch: Scratch, space: Any) -> list[Thunk]:
        (x, gamma, mean, variance, *extras), (dx, *found) = buffers.inputs, buffers.outputs
        dtype, epsilon = node.inputs[0].dtype, float(inner(node.op).epsilon).hex()
        place = self._dy(node, buffers.layouts)
        vectors = [scratch.take(gamma.size) if one is None else one for one in found]
        inverse = scratch.take(gamma.size)
        calls = [bound(((), (f"1 / sqrt_{dtype}(a0 + ({dtype}){epsilon})",)), [variance], [inverse])]
        operands = [gamma, mean, inverse]
        if place is None:
            assert isinstance(node.op, Fed)
            flat = scratch.workspace[VECTORS * aligned(gamma.nbytes) :][: x.size * x.itemsize].view(x.dtype)
            dy = buffers.layouts.inputs[0].arranged(flat, node.inputs[0].type)
            code = scalar_code(node.op.prologue(len(extras)), *(value.dtype for value in node.inputs[4:]))
            calls.append(bound(code, extras, [dy]))
        else:
            dy, past = buffers.inputs[place], PastRelu.of(node)
            operands += [] if past is None else [buffers.inputs[past.beta].reshape(-1)]
        return [*calls, plan.bind([x, dy, *operands], [dx, *vectors], space)]
