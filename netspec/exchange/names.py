"""Names that no two things of a file have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Names:
    """Hands out names that nothing has yet: one that is taken gets a number (`conv`, `conv_1`, `conv_2`, …)."""

    def __init__(self, taken: Iterable[str] = (), first: int = 1) -> None:
        """`taken` are names that are there, `first` is the number of the second of a name."""
        self._taken = set(taken)
        self._first = first
        self._next: dict[str, int] = {}

    def __call__(self, wanted: str, parts: Sequence[str] = ()) -> str:
        """The name wanted, or the next one. `parts` are endings with which it must be free too (`.0`, `.1`)."""
        name, count = wanted, self._next.get(wanted, self._first)
        while not self._taken.isdisjoint([name, *(f"{name}{part}" for part in parts)]):
            name = f"{wanted}_{count}"
            count += 1
        self._next[wanted] = count
        self._taken.update([name, *(f"{name}{part}" for part in parts)])
        return name

    def take(self, names: Iterable[str]) -> None:
        """Names that are given elsewhere."""
        self._taken.update(names)
