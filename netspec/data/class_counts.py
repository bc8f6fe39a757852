"""Number of targets of each class in a dataset: labels of samples, or pixels of masks."""

from __future__ import annotations

from collections import Counter

import numpy as np

from netspec.data.base import Array, DamagedSamples, Dataset, Samples
from netspec.errors import InputError

_CHUNK = 64
"""Number of samples that are read at a time, if the field is an array."""


def count_classes(dataset: Dataset, name: str, samples: int, *, skip: bool) -> dict[int, int]:
    """Return how often each class index occurs in the field `name` of the first `samples` samples, by index.

    With `skip`, damaged samples do not count. Raises `InputError` for streams, or if the field is not of integers.
    """
    kind = dataset.fields.get(name)
    integers = kind is not None and np.dtype(kind.dtype).kind in "iu"
    if not integers or dataset.window is not None:
        raise InputError(
            f"the classes of `{name}` cannot be counted",
            expected="samples that are read by index, with class indices (integers) in this field",
            got="a stream"
            if dataset.window is not None
            else f"`{name}`: {kind}"
            if kind is not None
            else f"the fields {', '.join(dataset.fields)}",
        )
    assert kind is not None
    if not kind.shape:
        return dict(sorted(_counts(dataset.values_of(name)[:samples]).items()))
    counts: Counter[int] = Counter()
    for start in range(0, samples, _CHUNK):
        for values in _read(dataset, name, np.arange(start, min(start + _CHUNK, samples)), skip=skip):
            counts += _counts(np.asarray(values))
    return dict(sorted(counts.items()))


def _counts(values: Array) -> Counter[int]:
    classes, counts = np.unique(values, return_counts=True)
    return Counter(dict(zip(classes.tolist(), counts.tolist(), strict=True)))


def _read(dataset: Dataset, name: str, indices: Array, *, skip: bool) -> Samples:
    """Return the field of samples, without damaged ones if `skip`."""
    try:
        return dataset.read_field(name, indices) if len(indices) else []
    except DamagedSamples as error:
        if not skip:
            raise
        return _read(dataset, name, np.delete(indices, list(error.rows)), skip=skip)
