"""A dataset of arrays in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from netspec.data.base import Array
from netspec.data.readers.row_arrays import ColumnDataset, InMemory


class ArrayDataset(ColumnDataset):
    """Named arrays whose first axis counts the samples."""

    def __init__(
        self,
        arrays: Mapping[str, Array],
        *,
        digest: str,
        describe: Callable[[int], str],
        identify: Callable[[int], tuple[str, str | int]] | None = None,
    ) -> None:
        columns = {name: InMemory(array) for name, array in arrays.items()}
        super().__init__(columns, digest=digest, describe=describe)
        self._identify = identify

    def identify(self, index: int) -> tuple[str, str | int]:
        """Return what identifies a sample in a list of predictions."""
        return super().identify(index) if self._identify is None else self._identify(index)
