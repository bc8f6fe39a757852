"""`{source: lmdb}`: an LMDB of Caffe's Datums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from netspec.data.base import Dataset, Source, Survey, located_at
from netspec.data.sources.image_folder import Size
from netspec.errors import InputError, install_command
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.paths import FilePath, resolve_path

QUICK_LMDB = 2**30
"""Bytes of an LMDB of images whose keys are read in less than a second."""


@SOURCES.register
class Lmdb(Source):
    """An LMDB of Caffe's Datums, as `convert_imageset` writes it, in the order of the keys.

    Fields: `image` with the shape of the first Datum, of uint8, or of float32 if it holds floats; `label` `[]` of
    int32. Encoded images (JPEG, PNG) are decoded to red, green, blue, or as `order` says; raw ones keep the order in
    which they were written, for Caffe's own tools blue, green, red. Needs the extra `lmdb`.
    """

    source: Literal["lmdb"] = "lmdb"
    foreign_fields: ClassVar[dict[str, str]] = {"backend": "use `source`; LevelDB is not supported"}
    path: FilePath
    """The folder of the LMDB, or its file if it has none, relative to this file."""
    size: Size | Literal["varied"] | None = None
    """`[height, width]` to which encoded images are resized. `varied`: each image keeps its size, for a transform to
    crop or resize. By default all have the size of the first."""
    channels: Literal[1, 3] = 3
    """Channels of encoded images; 3: color, 1: gray."""
    order: Literal["rgb", "bgr"] = "rgb"
    """Order of the colors of encoded images. `bgr`: blue, green, red, as Caffe reads them."""
    interpolation: Literal["bilinear", "nearest", "bicubic", "lanczos"] = "bilinear"
    """Interpolation for resizing encoded images."""

    samples: ClassVar = ({"path": "train_lmdb"}, {"path": "ilsvrc12_train_lmdb", "size": [256, 256], "order": "bgr"})

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Read the keys. Datums are read batch by batch."""
        try:
            from netspec.data.readers.lmdb_datums import DatumDataset
        except ModuleNotFoundError as error:
            if error.name != "lmdb":
                raise
            raise InputError(
                "the package `lmdb` is not installed", hint=install_command("lmdb"), location=self.where("source")
            ) from None
        with located_at(self, "path"):
            return DatumDataset(
                resolve_path(self, "path"), size=self.size, channels=self.channels, interpolation=self.interpolation,
                order=self.order, skip=self.on_error == "skip",
            )  # fmt: skip

    def survey(self) -> Survey:
        """Open the LMDB if its keys are read quickly, and the package is there."""
        from importlib.util import find_spec

        from netspec.data.surveys import survey_of, total_size, undivided

        path = resolve_path(self, "path")
        size = total_size([path / "data.mdb" if path.is_dir() else path])
        if find_spec("lmdb") is None or size > QUICK_LMDB:
            return super().survey()
        return survey_of(self, undivided(self).open())
