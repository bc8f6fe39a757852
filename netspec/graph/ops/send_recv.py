"""Point-to-point messages between workers.

On each worker the ops form one sequence, given by the order token that each op returns and the next one reads, so it is
known in advance which worker waits for which. An op by itself sends nothing and receives zeros; the kernels of
`netspec.distributed` communicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.graph.op import Array, NoGradient, Traits, Xp
from netspec.graph.ops.all_reduce import NO_ONNX, ORDER_TOKEN
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class Send(NoGradient):
    """Start to send x to a worker, after the previous message with this tag has arrived. Result: an order token.

    x must not be overwritten before it has arrived, so the next send with the tag reads it too.
    """

    to: int
    tag: int
    traits = Traits(pure=False)
    onnx = NO_ONNX

    def infer(self, x: TensorType, *before: TensorType) -> TensorType:
        """x[, dependencies …] → order."""
        return ORDER_TOKEN

    def forward(self, xp: Xp, x: Array, *before: Array) -> Array:
        return xp.ones((), dtype=bool)


@dataclass(frozen=True)
class WaitSends(NoGradient):
    """Wait until all messages on these (worker, tag) channels have arrived. Result: an order token."""

    channels: tuple[tuple[int, int], ...]
    traits = Traits(pure=False)
    onnx = NO_ONNX

    def infer(self, *before: TensorType) -> TensorType:
        """[dependencies …] → order."""
        return ORDER_TOKEN

    def forward(self, xp: Xp, *before: Array) -> Array:
        return xp.ones((), dtype=bool)


@dataclass(frozen=True)
class StartReceive(NoGradient):
    """Start to receive a message from a worker. Results: the value, valid after the join, and an order token."""

    source: int
    tag: int
    type: TensorType
    traits = Traits(pure=False)
    onnx = NO_ONNX

    def infer(self, *before: TensorType) -> tuple[TensorType, TensorType]:
        """[dependencies …] → x, order."""
        return self.type, ORDER_TOKEN

    def forward(self, xp: Xp, *before: Array) -> tuple[Array, Array]:
        return xp.zeros(self.type.shape, dtype=str(self.type.dtype)), xp.ones((), dtype=bool)


@dataclass(frozen=True)
class JoinReceive(NoGradient):
    """Wait for a message from a worker. Results: the value and an order token."""

    source: int
    tag: int
    traits = Traits(pure=False)
    onnx = NO_ONNX

    def infer(self, x: TensorType, *before: TensorType) -> tuple[TensorType, TensorType]:
        """x[, dependencies …] → x, order."""
        return x, ORDER_TOKEN

    def inplace_operands(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        """The value overwrites the operand."""
        return inputs[:1] if result == 0 else ()

    def forward(self, xp: Xp, x: Array, *before: Array) -> tuple[Array, Array]:
        return x, xp.ones((), dtype=bool)


@dataclass(frozen=True)
class WithDependencies(NoGradient):
    """Return x once all dependencies are computed."""

    traits = Traits(pure=False)
    onnx = NO_ONNX

    def infer(self, x: TensorType, *before: TensorType) -> TensorType:
        """x[, dependencies …] → like x."""
        return x

    def forward(self, xp: Xp, x: Array, *before: Array) -> Array:
        return x
