"""`{source: npz}`: arrays that NumPy wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from netspec.data.base import Dataset, Source, blamed_on
from netspec.schema.data import SOURCES
from netspec.schema.paths import FilePath, resolve_path


@SOURCES.register
class Npz(Source):
    """The arrays of one `.npz` file, as `numpy.savez` writes it; the first axis of each counts the samples.

    Fields: the arrays by their names. Arrays of Python objects are refused: nothing is ever unpickled.
    """

    source: Literal["npz"] = "npz"
    path: FilePath
    """path of the file, relative to this file"""

    samples: ClassVar = ({"path": "train.npz"},)

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """The file, read whole."""
        from netspec.data.readers.npz import open_npz

        with blamed_on(self, "path"):
            return open_npz(resolve_path(self, "path"))
