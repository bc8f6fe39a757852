"""Surveys of sources that open quickly because they read only headers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from netspec.data.base import Dataset, Source, Survey

if TYPE_CHECKING:
    from collections.abc import Iterable

QUICK = 2**25
"""Bytes of compressed files that are read in less than a second."""
MAX_LABELS = 10**7


def survey_of(source: Source, dataset: Dataset) -> Survey:
    """Return the fields and classes of an opened source, and the minimum number of classes of its integer labels."""
    import numpy as np

    exact = {name: len(names) for name, names in dataset.classes.items()} | dict(source.known_classes())
    least = {}
    for name, kind in dataset.fields.items():
        is_label = not kind.shape and np.dtype(kind.dtype).kind in "iu" and name not in exact
        if is_label and dataset.reads_alone(name) and 0 < len(dataset) <= MAX_LABELS:
            least[name] = int(dataset.values_of(name)[: source.limit].max()) + 1
    return Survey(dict(dataset.fields), classes=exact, least_classes=least, samples=len(dataset))


def undivided(source: Source) -> Source:
    """Return a source of all samples of a source that `split` divides."""
    return source.model_copy(update={"split": source.stored_part("train")}) if source.hold_out is not None else source


def total_size(paths: Iterable[Path]) -> int:
    """Return the total size of files in bytes; missing files count as empty."""
    return sum(path.stat().st_size for path in paths if path.is_file())
