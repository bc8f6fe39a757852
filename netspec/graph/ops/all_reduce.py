"""All-reduce over workers, blocking or split into a start and a join; and the base of communication ops.

Each op computes its result for a single worker, whose sum over workers is the value itself; the kernels of
`netspec.distributed` communicate. `encoding` names the compression of the values
(`distributed/communicators/encodings.py`); "" means none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from netspec.graph.onnx_map import NoOnnxForm
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value

NO_ONNX = NoOnnxForm("communication between workers has no ONNX operator")
WEIGHT = "$weight"
"""Input of a training step: the weight of this worker's samples, or of this micro-batch."""
ORDER_TOKEN = TensorType((), DType.BOOL)
"""Type of an order token, a value without content that makes one node run after another."""


@dataclass(frozen=True)
class CommEncoding:
    """Encoding of a value that workers sum."""

    encoding: str = ""
    split: Op | None = None
    """Splits a value into an encodable part and a residual, which is added to the next value (error feedback)."""
    momentum: float = 0.0
    """Momentum correction: share of the last update that is added before the split (Lin et al. 2018,
    arXiv:1712.01887)."""


class CommunicationOp(Op):
    """Base of the ops that communicate with other workers."""

    pattern: ClassVar[str] = "all_reduce"
    """Communication pattern: a key of `PATTERNS` in `distributed/cost_model/comm_volume.py`."""
    encoding: str
    contents: tuple[str, ...]
    """Names of the values that are sent, for printed plans."""
    contiguous: ClassVar[bool] = False
    """Whether values are sent as one contiguous block of memory with aligned parts, unless they are encoded."""

    def sent_types(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        """Types of the operands whose values are sent; empty if another op has sent them."""
        return types

    @property
    def is_blocking(self) -> bool:
        """Whether all workers wait at the op; they run such ops one after another, in the same order.

        The order is enforced by a further operand: the result of the preceding op.
        """
        return False


@dataclass(frozen=True)
class OrderedCommunication(CommunicationOp):
    """Base of the ops whose messages can be delayed; all workers send them in one order."""

    position: int = field(default=0, kw_only=True)
    """Position in that order, assigned by the pass `communication_order`."""


@dataclass(frozen=True)
class AllReduce(OrderedCommunication):
    """The sum of x over all workers. If `deferred`, only the update reads it, and it may share a message."""

    deferred: bool = False
    encoding: str = ""
    contents: tuple[str, ...] = ()
    traits = Traits(pure=False)
    onnx = NO_ONNX

    @property
    def is_blocking(self) -> bool:
        return not self.deferred

    def infer(self, x: TensorType, *before: TensorType) -> TensorType:
        """x[, result of the preceding blocking op] → like x."""
        self.check(x.dtype.is_float, "only floats are summed over workers", got=x)
        return x

    def sent_types(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return types[:1]

    def inplace_operands(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        return inputs[:1]

    def forward(self, xp: Xp, x: Array, *before: Array) -> Array:
        return x

    def vjp(self, y: Value, dy: Value) -> Grads:
        # Every worker's loss depends on the sum, and so on each worker's x.
        summed = AllReduce(self.deferred)(dy)  # not encoded: the gradient has no residual
        return (summed, *[None] * (len(y.inputs) - 1))

    def flops(self, x: TensorType, *before: TensorType) -> int:
        return x.size


@dataclass(frozen=True)
class _Bucket(CommunicationOp):
    """Base of both halves of an all-reduce of several values, which are contiguous and sent as one."""

    count: int
    encoding: str = ""
    contents: tuple[str, ...] = ()
    contiguous: ClassVar[bool] = True
    onnx = NO_ONNX

    def _value_types(self, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
        values = tuple(types[: self.count])
        self.check(len(values) == self.count, "a bucket needs `count` values", expected=str(self.count))
        self.check(len({value_type.dtype for value_type in values}) == 1, "the values of a bucket must have one type")
        return values

    def inplace_operands(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        """Each result overwrites its operand."""
        return inputs[result : result + 1] if result < self.count else ()

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        summed = [None if dy is None else AllReduce(deferred=True)(dy) for dy in dys[: self.count]]
        return [*summed, *[None] * (len(ys[0].inputs) - self.count)]

    def flops(self, *types: TensorType) -> int:
        return sum(value_type.size for value_type in types[: self.count])


@dataclass(frozen=True)
class StartAllReduce(_Bucket):
    """Start to sum `count` values. Results: the values, valid after the join, and an order token.

    A further operand is the order token of the preceding bucket: all workers start buckets in the same order.
    """

    traits = Traits(pure=False, async_start=True)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """x₁ … xₙ[, order] → y₁ … yₙ, order."""
        return *self._value_types(types), ORDER_TOKEN

    def sent_types(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return types[: self.count]

    def contiguous_operands(self, inputs: Sequence[Value]) -> Sequence[Value]:
        return inputs[: self.count]

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        return *arrays[: self.count], xp.ones((), dtype=bool)


@dataclass(frozen=True)
class JoinAllReduce(_Bucket):
    """Wait for the sums of `count` values over all workers."""

    traits = Traits(pure=False)

    def sent_types(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return ()

    def infer(self, *types: TensorType) -> tuple[TensorType, ...] | TensorType:
        """y₁ … yₙ → their sums."""
        values = self._value_types(types)
        return values if self.count > 1 else values[0]

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...] | Array:
        return arrays if self.count > 1 else arrays[0]
