"""States that layers create: their initial values, shards and updates; and ranges of integer inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol, Self

from netspec.graph.value import Value


class Initial(Protocol):
    """The first value of a state. Initializer specs implement it, and `ConstantInitial`."""

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """A NumPy array that depends only on (seed, name, shape, dtype)."""
        ...

    def reject_reason(self, shape: tuple[int, ...]) -> str | None:
        """Return why there are no initial values of this shape; None if there are."""
        return None


@dataclass(frozen=True)
class ConstantInitial(Initial):
    """A state that starts with one repeated value."""

    value: float = 0.0

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """An array filled with the value."""
        import numpy as np

        return np.full(shape, self.value, dtype)


@dataclass(frozen=True)
class ShardSpec:
    """A worker's shard of a state: a span of one axis, or of the flattened array."""

    shape: tuple[int, ...]
    """Shape of the full array."""
    axis: int | None
    """The axis that is divided; None: the flattened array."""
    bounds: tuple[int, ...]
    """Worker r has the elements from bounds[r] to bounds[r + 1] along the axis, which may be none."""
    rank: int
    """Rank of the worker that has this shard."""

    @property
    def start(self) -> int:
        """First index of the shard along the axis."""
        return self.bounds[self.rank]

    @property
    def stop(self) -> int:
        """Index after the last one of the shard along the axis."""
        return self.bounds[self.rank + 1]

    @property
    def is_empty(self) -> bool:
        """Whether the shard has no elements; the worker then has no such state."""
        return self.start == self.stop

    @property
    def is_full(self) -> bool:
        """Whether the shard is the full array."""
        return (self.start, self.stop) == (0, self.full_length)

    @property
    def full_length(self) -> int:
        """Length of the full array along the axis."""
        return prod(self.shape) if self.axis is None else self.shape[self.axis]

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of the shard: a vector if the array is flattened, but the full shape if the shard is the full array."""
        count = self.stop - self.start
        if self.is_full:
            return self.shape
        return (count,) if self.axis is None else (*self.shape[: self.axis], count, *self.shape[self.axis + 1 :])

    def for_rank(self, rank: int) -> ShardSpec:
        """The shard of another worker."""
        return replace(self, rank=rank)

    def slice_of(self, full: Any) -> Any:
        """The shard of a full NumPy array; a copy only if necessary."""
        if self.axis is None:
            return full.reshape(-1)[self.start : self.stop].reshape(self.local_shape)
        return full[(slice(None),) * self.axis + (slice(self.start, self.stop),)]

    def assemble(self, shards: Sequence[Any]) -> Any:
        """The full array from the shards (NumPy arrays) of all workers, in the order of ranks."""
        import numpy as np

        if self.axis is None:
            return np.concatenate([shard.reshape(-1) for shard in shards]).reshape(self.shape)
        return np.concatenate(shards, axis=self.axis)


@dataclass(frozen=True)
class StateInfo:
    """A state's first value, and whether and how training changes it."""

    value: Value
    initial: Initial
    role: str
    """`parameter` (given by the user's layers), `statistic` (a moving average), `slot` (of a solver), `gradient` (a
    sum), `residual` (the part of a gradient not sent yet), `center` (shared by all workers), `gathered` (the full
    array of a state of which each worker has a shard)."""
    trainable: bool = False
    learning_rate_multiplier: float = 1.0
    weight_decay_multiplier: float = 1.0
    constraint: Projection | None = None
    initialized_from: str | None = None
    """The state whose first value this one copies."""
    shard: ShardSpec | None = None
    """The shard of the state that this worker has, of the type of `value`; None: it has the full array."""
    gathers: str | None = None
    """The sharded state that this one is the full copy of, as of the last `WorkerSession.synchronized_view`."""


class Totals(Protocol):
    """Statistics of the samples seen so far, in NumPy; their size does not depend on the number of samples."""

    def merged(self, other: Self) -> Self:
        """The statistics of both sets of samples together."""
        ...

    def values(self) -> Sequence[Any]:
        """The values of the states, in the order of `Adapted.states`."""
        ...


@dataclass(frozen=True)
class Adapted:
    """States whose values are computed by one pass over the training data, before the first step."""

    states: tuple[str, ...]
    """Their names in the net."""
    results: tuple[Value, ...]
    """Values computed for each batch, in the inference form."""
    totals: Callable[..., Totals]
    """Creates totals from the arrays of these results."""


@dataclass(frozen=True)
class Domain:
    """Integers that a layer accepts from an input; the loader checks every sample against it."""

    low: int
    high: int
    """The first integer above the range."""
    why: str
    also: frozenset[int] = frozenset()
    """Integers outside of the range that are also accepted."""
    setting: tuple[str, str] | None = None
    """Layer and field that set the number of classes, if the integers are classes."""

    def within(self, other: Domain) -> Domain:
        """The integers that both domains accept."""
        also = {number for number in self.also | other.also if number in self and number in other}
        return Domain(max(self.low, other.low), min(self.high, other.high), self.why, frozenset(also), self.setting)

    def __contains__(self, number: int) -> bool:
        """Whether the integer is accepted."""
        return self.low <= number < self.high or number in self.also


class Penalty(Protocol):
    """A penalty on a parameter, added to the loss."""

    def penalty(self, weight: Value) -> Value:
        """The scalar penalty."""
        ...


class Projection(Protocol):
    """A projection of a parameter after each step."""

    def project(self, weight: Value) -> Value:
        """The nearest allowed value, of the same type."""
        ...

    def reject_reason(self, shape: tuple[int, ...]) -> str | None:
        """Return why a parameter of this shape cannot have the constraint; None if it can."""
        ...
