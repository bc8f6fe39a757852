"""Messages from one worker to another: values that one has made and the other goes on with.

All of them are in one sequence on each worker, which the order says that each one makes and the next one reads: who
waits for whom is known before anything runs. By itself a worker sends to nobody, and receives zeros; the backend
`workers` has the kernels that carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.graph.op import Array, NoGradient, Traits, Xp
from netspec.graph.ops.communication import NO_ONNX, ORDER
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class Send(NoGradient):
    """Send x on its way to a worker, when what was sent there before with this tag has arrived. Result: an order.

    Nobody may write over x before it has arrived, so that the next one to be sent reads it too, among what is `before`.
    """

    to: int
    tag: int
    traits = Traits(pure=False)
    onnx = NO_ONNX

    def infer(self, x: TensorType, *before: TensorType) -> TensorType:
        """x[, what comes before …] → order."""
        return ORDER

    def forward(self, xp: Xp, x: Array, *before: Array) -> Array:
        return xp.ones((), dtype=bool)


@dataclass(frozen=True)
class Sent(NoGradient):
    """Wait until all that was sent to a worker with a tag, of these pairs of both, has arrived. Result: an order."""

    channels: tuple[tuple[int, int], ...]
    traits = Traits(pure=False)
    onnx = NO_ONNX

    def infer(self, *before: TensorType) -> TensorType:
        """[What comes before …] → order."""
        return ORDER

    def forward(self, xp: Xp, *before: Array) -> Array:
        return xp.ones((), dtype=bool)


@dataclass(frozen=True)
class StartReceive(NoGradient):
    """Be ready for what a worker sends with a tag. Results: it, which nobody may read before it is joined; an order."""

    source: int
    tag: int
    type: TensorType
    traits = Traits(pure=False)
    onnx = NO_ONNX

    def infer(self, *before: TensorType) -> tuple[TensorType, TensorType]:
        """[What comes before …] → x, order."""
        return self.type, ORDER

    def forward(self, xp: Xp, *before: Array) -> tuple[Array, Array]:
        return xp.zeros(self.type.shape, dtype=str(self.type.dtype)), xp.ones((), dtype=bool)


@dataclass(frozen=True)
class JoinReceive(NoGradient):
    """Wait for what a worker sends with a tag. Results: it; an order."""

    source: int
    tag: int
    traits = Traits(pure=False)
    onnx = NO_ONNX

    def infer(self, x: TensorType, *before: TensorType) -> tuple[TensorType, TensorType]:
        """x[, what comes before …] → x, order."""
        return x, ORDER

    def overwritable(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        """It stays where it came to."""
        return inputs[:1] if result == 0 else ()

    def forward(self, xp: Xp, x: Array, *before: Array) -> tuple[Array, Array]:
        return x, xp.ones((), dtype=bool)


@dataclass(frozen=True)
class After(NoGradient):
    """x, when all that comes before is there."""

    traits = Traits(pure=False)
    onnx = NO_ONNX

    def infer(self, x: TensorType, *before: TensorType) -> TensorType:
        """x[, what comes before …] → as x."""
        return x

    def forward(self, xp: Xp, x: Array, *before: Array) -> Array:
        return x
