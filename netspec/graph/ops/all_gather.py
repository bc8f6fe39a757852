"""All-gather of matrix rows: of the factors from which each worker computes the gradients of all samples.

Each op computes its result for a single worker, with zeros in place of other workers' rows; the kernels of
`netspec.distributed` communicate. Zeros do not change a product over rows, so a worker may have fewer rows than
another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from netspec.graph.onnx_map import NoOnnxForm
from netspec.graph.op import Array, NoGradient, Traits, Xp
from netspec.graph.ops.all_reduce import ORDER_TOKEN, OrderedCommunication
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class FactorPair:
    """The factors of a gradient that is a product over rows: (rows, inputs)ᵀ · (rows, units).

    Xie et al. 2014, "Distributed machine learning via sufficient factor broadcasting", arXiv:1409.5705.
    """

    positions: int
    """Rows per sample: 1, or the length of a sequence."""
    inputs: int
    units: int
    left: int
    """Index of the factor's value; products that share a factor have equal indices."""
    right: int


UsesFactors: TypeAlias = Callable[[str, Sequence[FactorPair]], bool]
"""Whether a gradient is computed from gathered factors, given the layer's name and the products it sums."""


@dataclass(frozen=True)
class SufficientFactorPlan:
    """Selection of gradients that workers compute from gathered factors."""

    workers: int
    max_samples: int
    """Samples of the worker with the largest batch."""
    products: Mapping[str, Sequence[FactorPair]]
    """The products that each such gradient sums, by parameter."""


@dataclass(frozen=True)
class _RowCollective(NoGradient, OrderedCommunication):
    """Base of the ops in this module. They read gradients only, so they are never differentiated."""

    pattern = "all_gather"
    encoding = ""
    onnx = NoOnnxForm("communication between workers has no ONNX operator")


@dataclass(frozen=True)
class _GatherRowsBase(_RowCollective):
    workers: int
    max_rows: int
    contents: tuple[str, ...] = ()

    def _gathered_type(self, x: TensorType) -> TensorType:
        """Type of the rows of all workers."""
        self.check(x.rank == 2 and x.dtype.is_float, "only rows of a float matrix can be gathered", got=x)
        self.check(
            x.shape[0] <= self.max_rows, "a worker has too many rows", expected=f"{self.max_rows} or fewer", got=x
        )
        return x.with_shape(self.workers * self.max_rows, x.shape[1])

    def sent_types(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        """Type of this worker's rows, padded with zeros."""
        return [types[0].with_shape(self.max_rows, types[0].shape[1])]

    def _pad_with_zeros(self, xp: Xp, x: Array) -> Array:
        """The result if all other workers have zeros."""
        y = xp.zeros((self.workers * self.max_rows, x.shape[1]), x.dtype)
        y[: x.shape[0]] = x
        return y

    def flops(self, x: TensorType, *order: TensorType) -> int:
        return 0


@dataclass(frozen=True)
class AllGatherRows(_GatherRowsBase):
    """The rows of all workers, each worker's padded with zeros to `max_rows`."""

    traits = Traits(pure=False)

    def infer(self, x: TensorType) -> TensorType:
        """x: (rows, columns) → (workers · max_rows, columns)."""
        return self._gathered_type(x)

    def forward(self, xp: Xp, x: Array) -> Array:
        return self._pad_with_zeros(xp, x)


@dataclass(frozen=True)
class StartAllGatherRows(_GatherRowsBase):
    """Start to gather rows. Results: the rows of all workers, valid after the join, and an order token.

    A further operand is the order token of the preceding start.
    """

    traits = Traits(pure=False, async_start=True)

    def infer(self, x: TensorType, *order: TensorType) -> tuple[TensorType, ...]:
        """x[, order] → y, order."""
        return self._gathered_type(x), ORDER_TOKEN

    def forward(self, xp: Xp, x: Array, *order: Array) -> tuple[Array, ...]:
        return self._pad_with_zeros(xp, x), xp.ones((), dtype=bool)


@dataclass(frozen=True)
class JoinAllGatherRows(_RowCollective):
    """Wait for gathered rows."""

    contents: tuple[str, ...] = ()
    traits = Traits(pure=False)

    def infer(self, y: TensorType) -> TensorType:
        """y → y."""
        return y

    def sent_types(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return ()

    def inplace_operands(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        """The result overwrites the operand."""
        return inputs

    def forward(self, xp: Xp, y: Array) -> Array:
        return y

    def flops(self, y: TensorType) -> int:
        return 0
