"""`{source: idx}`: images and labels from two idx files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from netspec.data.base import Dataset, Source, blamed_on
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.paths import FilePath, resolve_path


@SOURCES.register
class Idx(Source):
    """Images and labels from two idx files, the format of MNIST, gzipped or not.

    Fields: `image` of the shape found in the file, images of two axes as `[1, H, W]`; `label` `[]` of int32.
    """

    source: Literal["idx"] = "idx"
    images: FilePath
    """path of the file of images, relative to this file"""
    labels: FilePath
    """path of the file of labels, relative to this file"""

    samples: ClassVar = ({"images": "train-images-idx3-ubyte.gz", "labels": "train-labels-idx1-ubyte.gz"},)

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Both files; packed ones are read whole, of others the images batch by batch."""
        from netspec.data.readers.idx import labelled_images

        with blamed_on(self, "images"):
            return labelled_images(resolve_path(self, "images"), resolve_path(self, "labels"))
