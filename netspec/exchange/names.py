"""Check the names of arrays in a file, and make names unique."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from netspec.errors import InputError, Problem


def check_names(path: str | Path, names: Iterable[str], expected: str) -> None:
    """Raise `InputError` for names of arrays that other formats cannot store.

    A valid name is not empty, and contains no control characters and no lone surrogates.
    """
    wrong = [
        name
        for name in names
        if not name
        or any(ord(char) < 0x20 or char == "\x7f" for char in name)
        or (not name.isascii() and name.encode("utf-8", "replace") != name.encode("utf-8", "surrogatepass"))
    ]
    if wrong:
        raise InputError(
            Problem(f"{path}: {name!r} cannot be the name of an array"[:300], expected=expected,
                    hint="rename it in the program that wrote the file") for name in wrong
        )  # fmt: skip


class UniqueNames:
    """Makes names unique: one that is taken gets a number (`conv`, `conv_1`, `conv_2`, …)."""

    def __init__(self, reserved: Iterable[str] = (), first: int = 1) -> None:
        """`reserved` are names in use; `first` is the number that the second use of a name gets."""
        self._taken = set(reserved)
        self._first = first
        self._next: dict[str, int] = {}

    def __call__(self, preferred: str, parts: Sequence[str] = ()) -> str:
        """The preferred name, or the next free one. With each suffix in `parts` (`.0`, `.1`), it must be free too."""
        name, count = preferred, self._next.get(preferred, self._first)
        while not self._taken.isdisjoint([name, *(f"{name}{part}" for part in parts)]):
            name = f"{preferred}_{count}"
            count += 1
        self._next[preferred] = count
        self._taken.update([name, *(f"{name}{part}" for part in parts)])
        return name

    def take(self, names: Iterable[str]) -> None:
        """Reserve names that are used elsewhere."""
        self._taken.update(names)


def layer_of_state(state: str, layers: Collection[str]) -> str:
    """The layer that a state belongs to, or an empty text; both names may contain slashes."""
    parts = state.split("/")
    paths = ("/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
    return next((path for path in paths if path in layers), "")
