"""`{source: npy}`, `{source: npz}`, `{source: hdf5}`: numeric arrays whose first axis is the sample axis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt

from netspec.data.base import Dataset, Source, Survey, located_at
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.paths import FilePath, resolve_path

ElementType = Literal[
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"
]
Files = FilePath | Annotated[list[FilePath], Field(min_length=1)]


class ArraySource(Source):
    """Base of sources that read arrays from files. Types and shapes may be changed."""

    dtypes: dict[str, ElementType] = Field(default_factory=dict)
    """Other element types for some fields, such as `{label: int32}`. A value that the type cannot represent is an
    error."""
    shapes: dict[str, list[NonNegativeInt]] = Field(default_factory=dict)
    """Other shapes for some fields, with the same number of elements: `{label: []}` for `[1]`."""

    def opened(self) -> Dataset:
        """Open the arrays as they are in the files."""
        raise NotImplementedError(f"{type(self).__name__} has no `opened`")

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Open the arrays with the requested types and shapes."""
        dataset = self.opened()
        if not self.dtypes and not self.shapes:
            return dataset
        from netspec.data.readers.row_arrays import Recast

        with located_at(self, "source"):
            return Recast(dataset, self.dtypes, self.shapes)

    def survey(self) -> Survey:
        """Open the arrays, whose samples are not read, and read the labels."""
        from netspec.data.surveys import survey_of, undivided

        whole = undivided(self)
        return survey_of(self, whole.open())


def paths_in(source: Source, field: str, *inside: str | int) -> list[Path]:
    """Return the files in a field that holds one or a list of them."""
    value: Any = getattr(source, field)
    for step in inside:
        value = value[step]
    if isinstance(value, list):
        return [resolve_path(source, field, *inside, number) for number in range(len(value))]
    return [resolve_path(source, field, *inside)]


@SOURCES.register
class Npy(ArraySource):
    """Arrays of `.npy` files, as `numpy.save` writes them. The first axis of each is the sample axis.

    Fields: the names in `files`. Rows are read batch by batch, so the files may be larger than memory (those in Fortran
    order are read in full). Arrays of Python objects are refused: nothing is ever unpickled.
    """

    source: Literal["npy"] = "npy"
    foreign_fields: ClassVar[dict[str, str]] = {"path": "use `files`, a mapping from fields to files"}
    files: Annotated[dict[str, Files], Field(min_length=1)]
    """The file of each field, relative to this file. Or several files per field, the same number for each, read one
    after the other."""

    samples: ClassVar = (
        {"files": {"image": "images.npy", "label": "labels.npy"}},
        {"files": {"x": ["x_0.npy", "x_1.npy"], "y": ["y_0.npy", "y_1.npy"]}, "dtypes": {"y": "int32"}},
    )

    def opened(self) -> Dataset:
        """Open the files and read their headers. Rows are read batch by batch."""
        from netspec.data.readers.npy import open_npy

        with located_at(self, "files"):
            return open_npy({name: paths_in(self, "files", name) for name in self.files})


@SOURCES.register
class Npz(ArraySource):
    """Arrays of one or more `.npz` files, as `numpy.savez` writes them. The first axis of each is the sample axis.

    Fields: the arrays by their names. The files are read in full. Arrays of Python objects are refused: nothing is ever
    unpickled.
    """

    source: Literal["npz"] = "npz"
    path: Files
    """Path of the file, relative to this file. Or several files, read one after the other."""
    arrays: Annotated[list[str], Field(min_length=1)] | None = None
    """The arrays to read; by default all."""

    samples: ClassVar = ({"path": "train.npz"}, {"path": ["a.npz", "b.npz"], "arrays": ["image", "label"]})

    def opened(self) -> Dataset:
        """Read the files in full."""
        from netspec.data.readers.npz import open_npz_files

        with located_at(self, "path"):
            return open_npz_files(paths_in(self, "path"), self.arrays)

    def survey(self) -> Survey:
        """Read the headers of the arrays; small files in full."""
        from netspec.data.readers.npz import npz_fields
        from netspec.data.surveys import QUICK, total_size

        with located_at(self, "path"):
            paths = paths_in(self, "path")
            fields = npz_fields(paths[0], self.arrays)
            if total_size(paths) <= QUICK // 8:
                return super().survey()
        if self.dtypes or self.shapes:
            return Survey()
        return Survey(fields, classes=self.known_classes(), read="the headers of the arrays")


@SOURCES.register
class Hdf5(ArraySource):
    """Arrays of HDF5 files. The first axis of each is the sample axis.

    Fields: the arrays by their names, those in groups with a slash (`inputs: {image: train/images}`). Rows are read
    batch by batch, also from compressed chunks, so the files may be larger than memory: with `shuffle: {window: …}` a
    chunk is unpacked for many samples at a time. For labels of Caffe, which are floats, set `dtypes: {label: int32}`,
    and if they have an axis of length 1, `shapes: {label: []}`.
    """

    source: Literal["hdf5"] = "hdf5"
    foreign_fields: ClassVar[dict[str, str]] = {"datasets": "use `arrays`", "top": "use `arrays`"}
    path: Files
    """Path of the file, relative to this file. Or several files, read one after the other; or a `.txt` file that names
    one in each line, as for Caffe's HDF5Data."""
    arrays: Annotated[list[str], Field(min_length=1)] | None = None
    """The arrays to read; by default all at the top level of the file, outside of groups."""

    samples: ClassVar = (
        {"path": "train.h5"},
        {"path": "train_list.txt", "arrays": ["data", "label"], "dtypes": {"label": "int32"}, "shapes": {"label": []}},
    )

    def opened(self) -> Dataset:
        """Open the files. Rows are read batch by batch."""
        from netspec.data.readers.hdf5 import listed_files, open_hdf5

        with located_at(self, "path"):
            paths = paths_in(self, "path")
            if len(paths) == 1 and paths[0].suffix == ".txt":
                paths = listed_files(paths[0])
            return open_hdf5(paths, self.arrays)
