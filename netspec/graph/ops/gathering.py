"""Rows of all workers, gathered early and joined late: the factors of gradients that are products over samples.

By itself each op computes what it does on one worker, where the rows of the others are zeros; the backend `workers` has
the kernels that ask them. Zeros add nothing to a product over rows, so that a worker may have fewer rows than another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from netspec.graph.onnx_map import NoOnnx
from netspec.graph.op import Array, NoGradient, Traits, Xp
from netspec.graph.ops.communication import ORDER, Placed
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class Factors:
    """What a product over the rows of a batch is made of, (rows, inputs)ᵀ · (rows, units), for each sample."""

    positions: int
    """Rows of a sample: 1, or the length of a sequence."""
    inputs: int
    units: int
    left: int
    """Which value this factor is: a number that several products have in common if they share it."""
    right: int


Choice: TypeAlias = Callable[[str, Sequence[Factors]], bool]
"""Whether a gradient is made of gathered factors: from the name of the layer, and the products that are its terms."""


@dataclass(frozen=True)
class Factoring:
    """How workers make gradients of each other's factors."""

    workers: int
    most: int
    """Samples of the worker that has the most."""
    products: Mapping[str, Sequence[Factors]]
    """For each parameter whose gradient is made so, the products that are its terms."""


@dataclass(frozen=True)
class _Gathering(NoGradient, Placed):
    """Base of the ops here. They stand behind all gradients, so that nobody asks for theirs."""

    pattern = "all_gather"
    encoding = ""
    onnx = NoOnnx("it is of a training on several workers, of which ONNX knows nothing")


@dataclass(frozen=True)
class _Rows(_Gathering):
    workers: int
    most: int
    holds: tuple[str, ...] = ()

    def _whole(self, x: TensorType) -> TensorType:
        """The rows of all."""
        self.check(x.rank == 2 and x.dtype.is_float, "rows of a matrix of floats are gathered", got=x)
        self.check(x.shape[0] <= self.most, "a worker has too many rows", expected=f"{self.most} or fewer", got=x)
        return x.with_shape(self.workers * self.most, x.shape[1])

    def carried(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        """With the zeros below."""
        return [types[0].with_shape(self.most, types[0].shape[1])]

    def _alone(self, xp: Xp, x: Array) -> Array:
        """As if the others had nothing."""
        made = xp.zeros((self.workers * self.most, x.shape[1]), x.dtype)
        made[: x.shape[0]] = x
        return made

    def flops(self, x: TensorType, *order: TensorType) -> int:
        return 0


@dataclass(frozen=True)
class GatherRows(_Rows):
    """Rows of all workers one below the other, as many zeros below each worker's as make them `most`."""

    traits = Traits(pure=False)

    def infer(self, x: TensorType) -> TensorType:
        """x: (rows, columns) → (workers · most, columns)."""
        return self._whole(x)

    def forward(self, xp: Xp, x: Array) -> Array:
        return self._alone(xp, x)


@dataclass(frozen=True)
class StartGatherRows(_Rows):
    """Send rows on their way. Results: those of all, which nobody may read before they are joined; an order.

    A further operand is the order of what was started before.
    """

    traits = Traits(pure=False, starts=True)

    def infer(self, x: TensorType, *order: TensorType) -> tuple[TensorType, ...]:
        """x[, order] → y, order."""
        return self._whole(x), ORDER

    def forward(self, xp: Xp, x: Array, *order: Array) -> tuple[Array, ...]:
        return self._alone(xp, x), xp.ones((), dtype=bool)


@dataclass(frozen=True)
class JoinGatherRows(_Gathering):
    """Wait for rows that were sent on their way."""

    holds: tuple[str, ...] = ()
    traits = Traits(pure=False)

    def infer(self, y: TensorType) -> TensorType:
        """y → y."""
        return y

    def carried(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return ()

    def overwritable(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        """It lies where its operand lay."""
        return inputs

    def forward(self, xp: Xp, y: Array) -> Array:
        return y

    def flops(self, y: TensorType) -> int:
        return 0
