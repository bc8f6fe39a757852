"""Sums over workers: at once, or started early and joined late.

By itself each op computes what it does on one worker, where a sum over all workers is the value itself; the backend
`workers` has the kernels that ask the others. An `encoding` says in which form the values travel
(`parallel/encodings.py`); "" is as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from netspec.graph.onnx_map import NoOnnx
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value

NO_ONNX = NoOnnx("it is of a training on several workers, of which ONNX knows nothing")
WEIGHT = "$weight"
"""Input of a training step: what the samples of this worker, or of this batch of several, count."""
ORDER = TensorType((), DType.BOOL)
"""Type of a value that says nothing: it makes one node run after another."""


@dataclass(frozen=True)
class Sending:
    """How workers send each other a value that they sum up."""

    encoding: str = ""
    split: Op | None = None
    """Splits a value into what the encoding can tell and the rest, which is kept and added to the next one."""
    momentum: float = 0.0
    """Share of what was added to the last value that is added to this one, before it is split: Lin et al. 2018."""


class Communication(Op):
    """Base of the ops by which workers speak."""

    pattern: ClassVar[str] = "all_reduce"
    """Who sends what to whom: a name in `parallel/messages.py`."""
    encoding: str
    holds: tuple[str, ...]
    """Names of what it sends, for whoever reads a plan."""
    in_a_row: ClassVar[bool] = False
    """Whether values travel as one piece of memory in which each is at an aligned place, unless they are encoded."""

    def carried(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        """Those of the operands' types of which a worker sends the values; nothing where another op has sent them."""
        return types

    @property
    def awaited(self) -> bool:
        """Whether all wait at it: of such ops all workers run one after another in the same sequence.

        What was run before is a further operand.
        """
        return False


@dataclass(frozen=True)
class Placed(Communication):
    """Base of the ops whose messages may wait for others: all workers send them in one sequence."""

    place: int = field(default=0, kw_only=True)
    """In that sequence, as the pass `in_sequence` finds it."""


@dataclass(frozen=True)
class AllReduce(Placed):
    """The sum of all workers' x. With `late` nobody needs it before the update: it may share a message with others."""

    late: bool = False
    encoding: str = ""
    holds: tuple[str, ...] = ()
    traits = Traits(pure=False)
    onnx = NO_ONNX

    @property
    def awaited(self) -> bool:
        return not self.late

    def infer(self, x: TensorType, *before: TensorType) -> TensorType:
        """x[, what was awaited before] → as x."""
        self.check(x.dtype.is_float, "only floats are summed over workers", got=x)
        return x

    def carried(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return types[:1]

    def overwritable(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        return inputs[:1]

    def forward(self, xp: Xp, x: Array, *before: Array) -> Array:
        return x

    def vjp(self, y: Value, dy: Value) -> Grads:
        # Every worker's loss depends on the sum, and so on each worker's x.
        summed = AllReduce(self.late)(dy)  # in full: what an encoding leaves out is no gradient's
        return (summed, *[None] * (len(y.inputs) - 1))

    def flops(self, x: TensorType, *before: TensorType) -> int:
        return x.size


@dataclass(frozen=True)
class _Bucket(Communication):
    """Base of the two halves of an all-reduce of several values, which lie side by side and travel as one."""

    count: int
    encoding: str = ""
    holds: tuple[str, ...] = ()
    in_a_row: ClassVar[bool] = True
    onnx = NO_ONNX

    def _checked(self, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
        values = tuple(types[: self.count])
        self.check(len(values) == self.count, "a bucket holds as many values as it says", expected=str(self.count))
        self.check(len({kind.dtype for kind in values}) == 1, "the values of a bucket are of one type")
        return values

    def overwritable(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        """Each result lies where its operand lay."""
        return inputs[result : result + 1] if result < self.count else ()

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        summed = [None if dy is None else AllReduce(late=True)(dy) for dy in dys[: self.count]]
        return [*summed, *[None] * (len(ys[0].inputs) - self.count)]

    def flops(self, *types: TensorType) -> int:
        return sum(kind.size for kind in types[: self.count])


@dataclass(frozen=True)
class StartAllReduce(_Bucket):
    """Send `count` values on their way. Results: the values, which nobody may read before they are joined; an order.

    A further operand is the order of the bucket before: all workers start theirs in the same sequence.
    """

    traits = Traits(pure=False, starts=True)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """x₁ … xₙ[, order] → y₁ … yₙ, order."""
        return *self._checked(types), ORDER

    def carried(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return types[: self.count]

    def row(self, inputs: Sequence[Value]) -> Sequence[Value]:
        return inputs[: self.count]

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        return *arrays[: self.count], xp.ones((), dtype=bool)


@dataclass(frozen=True)
class JoinAllReduce(_Bucket):
    """Wait for `count` values that were sent on their way: the sums of all workers'."""

    traits = Traits(pure=False)

    def carried(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return ()

    def infer(self, *types: TensorType) -> tuple[TensorType, ...] | TensorType:
        """y₁ … yₙ → their sums."""
        values = self._checked(types)
        return values if self.count > 1 else values[0]

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...] | Array:
        return arrays if self.count > 1 else arrays[0]
