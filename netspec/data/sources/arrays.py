"""`{source: npy}`, `{source: npz}`, `{source: hdf5}`: arrays of numbers, the first axis of which counts the samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt

from netspec.data.base import Dataset, Source, blamed_on
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.paths import FilePath, resolve_path

ElementType = Literal[
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"
]
Files = FilePath | Annotated[list[FilePath], Field(min_length=1)]


class ArraySource(Source):
    """Arrays in files; whoever wrote them chose their types and shapes, which may be changed here."""

    dtypes: dict[str, ElementType] = Field(default_factory=dict)
    """other element types for some fields, as `{label: int32}`; a value that the type does not hold is an error"""
    shapes: dict[str, list[NonNegativeInt]] = Field(default_factory=dict)
    """other shapes for some fields, with as many numbers: `{label: []}` of `[1]`"""

    def opened(self) -> Dataset:
        """The arrays as they are in the files."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is opened")

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """The arrays, in the types and shapes asked for."""
        dataset = self.opened()
        if not self.dtypes and not self.shapes:
            return dataset
        from netspec.data.readers.row_arrays import Recast

        with blamed_on(self, "source"):
            return Recast(dataset, self.dtypes, self.shapes)


def paths_in(source: Source, field: str, *inside: str | int) -> list[Path]:
    """The files in a field that holds one or a list of them."""
    value: Any = getattr(source, field)
    for step in inside:
        value = value[step]
    if isinstance(value, list):
        return [resolve_path(source, field, *inside, number) for number in range(len(value))]
    return [resolve_path(source, field, *inside)]


@SOURCES.register
class Npy(ArraySource):
    """Arrays of `.npy` files, as `numpy.save` writes them; the first axis of each counts the samples.

    Fields: those that `files` names. Rows are read batch by batch, so the files may be larger than memory (those in
    Fortran's order are read whole). Arrays of Python objects are refused: nothing is ever unpickled.
    """

    source: Literal["npy"] = "npy"
    foreign_fields: ClassVar[dict[str, str]] = {"path": "here it is `files`, which name a field each"}
    files: Annotated[dict[str, Files], Field(min_length=1)]
    """the file of each field, relative to this file; or its files, one behind the other, as many for every field"""

    samples: ClassVar = (
        {"files": {"image": "images.npy", "label": "labels.npy"}},
        {"files": {"x": ["x_0.npy", "x_1.npy"], "y": ["y_0.npy", "y_1.npy"]}, "dtypes": {"y": "int32"}},
    )

    def opened(self) -> Dataset:
        """The files' headers; rows are read batch by batch."""
        from netspec.data.readers.npy import open_npy

        with blamed_on(self, "files"):
            return open_npy({name: paths_in(self, "files", name) for name in self.files})


@SOURCES.register
class Npz(ArraySource):
    """The arrays of one or more `.npz` files, as `numpy.savez` writes them; the first axis of each counts the samples.

    Fields: the arrays by their names. The files are read whole. Arrays of Python objects are refused: nothing is ever
    unpickled.
    """

    source: Literal["npz"] = "npz"
    path: Files
    """path of the file, relative to this file; or of several, one behind the other"""
    arrays: Annotated[list[str], Field(min_length=1)] | None = None
    """the arrays to take; default: all"""

    samples: ClassVar = ({"path": "train.npz"}, {"path": ["a.npz", "b.npz"], "arrays": ["image", "label"]})

    def opened(self) -> Dataset:
        """The files, read whole."""
        from netspec.data.readers.npz import open_npz_files

        with blamed_on(self, "path"):
            return open_npz_files(paths_in(self, "path"), self.arrays)


@SOURCES.register
class Hdf5(ArraySource):
    """Arrays of HDF5 files; the first axis of each counts the samples.

    Fields: the arrays by their names, those inside of groups with a slash (`inputs: {image: train/images}`). Rows are
    read batch by batch, compressed chunks too, so the files may be larger than memory: with `shuffle: {window: …}` a
    chunk is unpacked for many samples at a time. For Caffe's labels, which are floats: `dtypes: {label: int32}`, and if
    they have an axis of their own, `shapes: {label: []}`.
    """

    source: Literal["hdf5"] = "hdf5"
    foreign_fields: ClassVar[dict[str, str]] = {"datasets": "here it is `arrays`", "top": "here it is `arrays`"}
    path: Files
    """path of the file, relative to this file; or of several, one behind the other; or of a `.txt` file that names one
    in each line, as Caffe's layer HDF5Data has it"""
    arrays: Annotated[list[str], Field(min_length=1)] | None = None
    """the arrays to take; default: all at the top of the file, outside of groups"""

    samples: ClassVar = (
        {"path": "train.h5"},
        {"path": "train_list.txt", "arrays": ["data", "label"], "dtypes": {"label": "int32"}, "shapes": {"label": []}},
    )

    def opened(self) -> Dataset:
        """The files, opened; rows are read batch by batch."""
        from netspec.data.readers.hdf5 import listed_files, open_hdf5

        with blamed_on(self, "path"):
            paths = paths_in(self, "path")
            if len(paths) == 1 and paths[0].suffix == ".txt":
                paths = listed_files(paths[0])
            return open_hdf5(paths, self.arrays)
