"""Find the layers or operators that given values depend on, in a model of any format."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

Step = TypeVar("Step")


def needed_steps(
    steps: Sequence[Step],
    values: Iterable[Hashable],
    reads: Callable[[Step], Iterable[Hashable]],
    results: Callable[[Step], Iterable[Hashable]],
) -> list[Step]:
    """The steps of a computation that the values depend on. Each step comes after those whose results it reads."""
    needed, needed_reversed = set(values), []
    for step in reversed(steps):
        if not needed.isdisjoint(results(step)):
            needed_reversed.append(step)
            needed.update(reads(step))
    return needed_reversed[::-1]
