"""Pieces over workers: sums of which each worker gets a part, and wholes put together from the parts of all.

Each array is laid flat and cut at the same places on all workers (`cuts`, one more than there are workers). A bucket
of several travels as one; where its arrays lie side by side, each worker's part of it is one stretch of memory. By
itself each op computes what it does where the other workers add nothing: it cuts, and puts back. Rajbhandari et al.
2020, "ZeRO", arXiv:1910.02054, section 7.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from netspec.graph.onnx_map import NoOnnx
from netspec.graph.op import Array, NoGradient, Traits, Xp
from netspec.graph.ops.communication import ORDER, Placed
from netspec.graph.types import TensorType
from netspec.graph.value import Value

_NO_ONNX = NoOnnx("it is of a training on several workers, of which ONNX knows nothing")


@dataclass(frozen=True)
class Cut(Placed, NoGradient):
    """Base of the ops that cut a bucket of arrays, or put one together."""

    cuts: tuple[tuple[int, ...], ...]
    """For each array the places at which it is cut: worker r has what lies from place r to before place r + 1."""
    rank: int
    """This worker."""
    holds: tuple[str, ...] = ()
    encoding: ClassVar[str] = ""  # type: ignore[misc]  # always as they are
    in_a_row: ClassVar[bool] = True
    onnx = _NO_ONNX

    @property
    def parts(self) -> list[tuple[int, int, int]]:
        """What this worker has: the number of the array, and from where to where; nothing is left out."""
        spans = [(number, one[self.rank], one[self.rank + 1]) for number, one in enumerate(self.cuts)]
        return [span for span in spans if span[1] < span[2]]

    def _checked(self, types: Sequence[TensorType]) -> list[TensorType]:
        """The types of the parts, where the arrays are of these types."""
        self.check(len(types) == len(self.cuts), "a bucket has as many arrays as it says", expected=str(len(self.cuts)))
        self.check(len({kind.dtype for kind in types}) == 1, "the arrays of a bucket are of one type")
        fit = all((one[0], one[-1]) == (0, kind.size) for one, kind in zip(self.cuts, types, strict=True))
        self.check(fit, "the cuts are those of other arrays", got=types[0])
        return [types[number].with_shape(stop - start) for number, start, stop in self.parts]

    def _cut(self, arrays: Sequence[Array]) -> list[Array]:
        return [arrays[number].reshape(-1)[start:stop] for number, start, stop in self.parts]

    def flops(self, *types: TensorType) -> int:
        return sum(prod(kind.shape) for kind in types[: len(self.cuts)])


@dataclass(frozen=True)
class ScatterSums(Cut):
    """This worker's parts of the sums of all workers' arrays. Results: the parts, and an order.

    The pass `data_parallel` makes a start and a join of it.
    """

    pattern: ClassVar[str] = "reduce_scatter"
    traits = Traits(pure=False)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """x₁ … xₙ → parts, order."""
        return *self._checked(types), ORDER

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        return *self._cut(arrays), xp.ones((), dtype=bool)


@dataclass(frozen=True)
class StartScatterSums(Cut):
    """Send arrays on their way to be summed up in parts. Results: the parts, to be read when they are joined; an order.

    A further operand is the order of what was sent before: all workers start theirs in the same sequence.
    """

    pattern: ClassVar[str] = "reduce_scatter"
    traits = Traits(pure=False, starts=True)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """x₁ … xₙ[, order] → parts, order."""
        return *self._checked(types[: len(self.cuts)]), ORDER

    def carried(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return types[: len(self.cuts)]

    def row(self, inputs: Sequence[Value]) -> Sequence[Value]:
        return inputs[: len(self.cuts)]

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        return *self._cut(arrays[: len(self.cuts)]), xp.ones((), dtype=bool)


@dataclass(frozen=True)
class JoinScatterSums(Cut):
    """Wait for parts of sums that were sent on their way. Results: the parts, and an order.

    Operands are the parts, the order of the start, and what was sent, which must lie where it lay until now.
    """

    pattern: ClassVar[str] = "reduce_scatter"
    traits = Traits(pure=False)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """parts, order, x₁ … xₙ → parts, order."""
        return *self._checked(types[len(self.parts) + 1 :]), ORDER

    def carried(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return ()

    def row(self, inputs: Sequence[Value]) -> Sequence[Value]:
        return inputs[: len(self.parts)]

    def overwritable(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        """Each part lies where the start has it put."""
        return inputs[result : result + 1] if result < len(self.parts) else ()

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        return *arrays[: len(self.parts)], xp.ones((), dtype=bool)


@dataclass(frozen=True)
class GatherPieces(Cut):
    """Arrays put together from the parts of all workers, over the arrays as they were. Results: these, and an order.

    Operands are this worker's parts, flat; the arrays as they were; and what must be done before, of which nothing is
    read.
    """

    pattern: ClassVar[str] = "all_gather_parts"
    traits = Traits(pure=False)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """parts, x₁ … xₙ[, what is done before] → y₁ … yₙ, order."""
        count = len(self.parts)
        parts, wholes = types[:count], types[count : count + len(self.cuts)]
        self.check(list(parts) == self._checked(wholes), "the parts are those of the arrays", got=wholes[0])
        return *wholes, ORDER

    def carried(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return types[len(self.parts) : len(self.parts) + len(self.cuts)]

    def overwritable(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        """Each array lies where it lay before."""
        place = len(self.parts) + result
        return inputs[place : place + 1] if result < len(self.cuts) else ()

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        count = len(self.parts)
        made = [one.reshape(-1).copy() for one in arrays[count : count + len(self.cuts)]]
        for part, (number, start, stop) in zip(arrays[:count], self.parts, strict=True):
            made[number][start:stop] = part
        shaped = (one.reshape(old.shape) for one, old in zip(made, arrays[count:], strict=False))
        return *shaped, xp.ones((), dtype=bool)
