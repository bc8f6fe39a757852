"""`SharedLoaders`: trainings that run in turns read equal data once, and prepare each batch once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

from netspec.data.batches import Batch, Cursor
from netspec.data.loader import Loader, open_loader
from netspec.schema.specs.data import SplitFields


class SharedLoaders:
    """The open data of several trainings. Use it as a context manager, which ends all iterations."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._open: list[tuple[SplitFields, dict[str, Any], Loader, _SharedBatches]] = []

    def open(self, split: SplitFields, **arguments: Any) -> Loader:
        """Return a loader with a separate position, as `open_loader` does with these arguments."""
        for opened, others, loader, batches in self._open:
            if opened == split and _are_equal(others, arguments):
                return _SharedLoader(loader, batches)
        loader = self._stack.enter_context(open_loader(split, **arguments))
        self._open.append((split, arguments, loader, _SharedBatches(loader)))
        return _SharedLoader(loader, self._open[-1][-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def _are_equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether arguments of `open_loader` are equal. Learned values are large, so they must be the same object."""
    learned, other_learned = a.get("learned"), b.get("learned")
    return learned is other_learned and {**a, "learned": None} == {**b, "learned": None}


class _SharedBatches:
    """The training batches of a loader: each is kept until another one is read."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._batches: Iterator[Batch] | None = None
        self._last: tuple[Cursor, Batch] | None = None

    def at(self, cursor: Cursor) -> Batch:
        """Return the batch at a position."""
        if self._last is not None and self._last[0] == cursor:
            return self._last[1]
        position = cursor.epoch, cursor.position, cursor.step
        if self._batches is None or self._loader.position != position:
            self._loader.seek(*position)
            self._batches = iter(self._loader)
        batches, self._batches = self._batches, None  # an iteration that fails has ended
        self._last = cursor, next(batches)
        self._batches = batches
        return self._last[1]


class _SharedLoader(Loader):
    """A loader that shares the data of another one, but has its own position."""

    def __init__(self, loader: Loader, batches: _SharedBatches) -> None:
        vars(self).update(vars(loader))  # a shallow copy: everything but the position is shared
        self._batches = batches
        self._cursor, self._open, self._training = Cursor(), [], None

    def __iter__(self) -> Iterator[Batch]:
        while True:
            batch = self._batches.at(self._cursor)
            self._cursor = self._cursor.after(batch, self.samples)
            yield batch
