"""What is known of the states that layers make: how they start, what may become of them, what an input must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from netspec.graph.value import Value


class Initial(Protocol):
    """How a state gets its first value. Initializer specs are such; so is a constant."""

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """A NumPy array, the same for the same (seed, name, shape)."""
        ...

    def why_not(self, shape: tuple[int, ...]) -> str | None:
        """Why there are no values of this shape, where there are none."""
        return None


@dataclass(frozen=True)
class Constant(Initial):
    """A state that starts as one repeated number."""

    value: float = 0.0

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """An array filled with the number."""
        import numpy as np

        return np.full(shape, self.value, dtype)


@dataclass(frozen=True)
class StateInfo:
    """What is known of a state besides its type: how it starts, and whether and how training changes it."""

    value: Value
    initial: Initial
    role: str
    """`parameter` (given by the user's layers), `statistic` (a moving average), `slot` (of a solver), `gradient` (a
    sum), `residual` (what a worker has not sent yet of a gradient), `center` (what workers have in common)."""
    trainable: bool = False
    learning_rate_multiplier: float = 1.0
    weight_decay_multiplier: float = 1.0
    constraint: ConstraintSpec | None = None
    follows: str | None = None
    """The state whose first value is its own too."""


class Totals(Protocol):
    """What is known of the samples seen so far, in NumPy; its size does not depend on how many they are."""

    def merged(self, other: Self) -> Self:
        """That of both sets of samples together."""
        ...

    def values(self) -> Sequence[Any]:
        """The states' values, in the order of `Adapted.states`."""
        ...


@dataclass(frozen=True)
class Adapted:
    """States that one pass over the training data gives their values, before the first step."""

    states: tuple[str, ...]
    """Their names in the net."""
    results: tuple[Value, ...]
    """What is computed of each batch, in the inference form."""
    totals: Callable[..., Totals]
    """Makes totals of the arrays of these results."""


@dataclass(frozen=True)
class Domain:
    """Whole numbers that a layer can take from an input; the loader checks every sample against it."""

    low: int
    high: int
    """The first number above."""
    why: str
    also: frozenset[int] = frozenset()
    """Numbers outside of that range that are taken too."""

    def within(self, other: Domain) -> Domain:
        """The numbers that are in both."""
        also = {one for one in self.also | other.also if self.takes(one) and other.takes(one)}
        return Domain(max(self.low, other.low), min(self.high, other.high), self.why, frozenset(also))

    def takes(self, number: int) -> bool:
        """Whether the number is one of them."""
        return self.low <= number < self.high or number in self.also


class RegularizerSpec(Protocol):
    """A penalty on a parameter, added to the loss."""

    def penalty(self, weight: Value) -> Value:
        """The scalar penalty."""
        ...


class ConstraintSpec(Protocol):
    """What a parameter is projected on after each step."""

    def project(self, weight: Value) -> Value:
        """The nearest allowed value, of the same type."""
        ...

    def why_not(self, shape: tuple[int, ...]) -> str | None:
        """Why a parameter of this shape cannot be constrained so, where it cannot."""
        ...
