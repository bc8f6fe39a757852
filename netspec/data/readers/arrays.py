"""A dataset of arrays in memory, which most sources end in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Array, Dataset, FieldType

if TYPE_CHECKING:
    from netspec.errors import Problem


class ArrayDataset(Dataset):
    """Named arrays whose first axis counts the samples."""

    def __init__(
        self,
        arrays: Mapping[str, Array],
        *,
        digest: str,
        describe: Callable[[int], str],
        identify: Callable[[int], tuple[str, str | int]] | None = None,
        classes: Mapping[str, tuple[str, ...]] | None = None,
        learned: Mapping[str, Any] | None = None,
        skipped: int = 0,
        damaged: Sequence[str] = (),
        non_integer_labels: Mapping[str, Sequence[Problem]] | None = None,
    ) -> None:
        self._arrays = dict(arrays)
        self._length = len(next(iter(self._arrays.values())))
        self._describe, self._identify = describe, identify
        self.fields = {name: FieldType(array.shape[1:], array.dtype.name) for name, array in self._arrays.items()}
        self.classes = dict(classes or {})
        self.learned = dict(learned or {})
        self.skipped, self.damaged, self.non_integer_labels = skipped, damaged, dict(non_integer_labels or {})
        self.digest = digest

    def __len__(self) -> int:
        return self._length

    def read(self, indices: Array) -> dict[str, Array]:
        """The samples at `indices`, one array a field."""
        return {name: np.take(array, indices, axis=0) for name, array in self._arrays.items()}

    def read_field(self, name: str, indices: Array) -> Array:
        """Return one array of the samples at `indices`."""
        return np.take(self._arrays[name], indices, axis=0)

    def values_of(self, name: str) -> Array:
        """Return the array."""
        return self._arrays[name]

    def reads_alone(self, name: str) -> bool:
        """Return true: the arrays are in memory."""
        return True

    def describe(self, index: int) -> str:
        """Return the origin of sample `index`."""
        return self._describe(index)

    def identify(self, index: int) -> tuple[str, str | int]:
        """Return what tells a sample from others in a list of predictions."""
        return super().identify(index) if self._identify is None else self._identify(index)
