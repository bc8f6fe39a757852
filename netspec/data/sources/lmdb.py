"""`{source: lmdb}`: an LMDB of Caffe's Datums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from netspec.data.base import Dataset, Source, blamed_on
from netspec.data.sources.image_folder import Size
from netspec.errors import InputError
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.paths import FilePath, resolve_path


@SOURCES.register
class Lmdb(Source):
    """An LMDB of Caffe's Datums, as `convert_imageset` writes it; in the order of the keys.

    Fields: `image` of the shape that the first Datum has, of uint8, or of float32 where it holds floats; `label` `[]`
    of int32. Encoded images (JPEG, PNG) are decoded as red, green, blue, or as `order` says; raw ones are as they were
    written, by Caffe's own tools blue, green, red. Needs the package `lmdb`: `pip install netspec[lmdb]`.
    """

    source: Literal["lmdb"] = "lmdb"
    foreign_fields: ClassVar[dict[str, str]] = {"backend": "here it is `source`; there is no LevelDB"}
    path: FilePath
    """the folder of the LMDB, or its file if it has none, relative to this file"""
    size: Size | Literal["varied"] | None = None
    """`[height, width]` that encoded images are resized to; `varied`: each image keeps its own, for a transform to crop
    or resize; default: all have that of the first"""
    channels: Literal[1, 3] = 3
    """of encoded images; 3: colour, 1: grey"""
    order: Literal["rgb", "bgr"] = "rgb"
    """of the colours of encoded images; `bgr`: blue, green, red, as Caffe reads them"""
    interpolation: Literal["bilinear", "nearest", "bicubic", "lanczos"] = "bilinear"
    """how encoded images are resized"""

    samples: ClassVar = ({"path": "train_lmdb"}, {"path": "ilsvrc12_train_lmdb", "size": [256, 256], "order": "bgr"})

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """The keys; Datums are read batch by batch."""
        try:
            from netspec.data.readers.lmdb_datums import DatumDataset
        except ModuleNotFoundError as error:
            if error.name != "lmdb":
                raise
            raise InputError(
                "the package `lmdb` is not installed", hint="pip install 'netspec[lmdb]'", location=self.where("source")
            ) from None
        with blamed_on(self, "path"):
            return DatumDataset(
                resolve_path(self, "path"), size=self.size, channels=self.channels, interpolation=self.interpolation,
                order=self.order, skip=self.on_error == "skip",
            )  # fmt: skip
