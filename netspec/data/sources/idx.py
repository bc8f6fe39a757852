"""`{source: idx}`: images and labels from two idx files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from netspec.data.base import Dataset, Source, Survey, located_at
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.paths import FilePath, resolve_path


@SOURCES.register
class Idx(Source):
    """Images and labels from two idx files, the format of MNIST, gzipped or not.

    Fields: `image` with the shape found in the file, 2-dimensional images as `[1, H, W]`; `label` `[]` of int32.
    """

    source: Literal["idx"] = "idx"
    images: FilePath
    """Path of the file of images, relative to this file."""
    labels: FilePath
    """Path of the file of labels, relative to this file."""

    samples: ClassVar = ({"images": "train-images-idx3-ubyte.gz", "labels": "train-labels-idx1-ubyte.gz"},)

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Open both files. Gzipped files are read in full, others batch by batch."""
        from netspec.data.readers.idx import labeled_images

        with located_at(self, "images"):
            paths = resolve_path(self, "images"), resolve_path(self, "labels")
            return labeled_images(*paths, fields=("images", "labels"))

    def survey(self) -> Survey:
        """Open the files, unless they are large and gzipped."""
        from netspec.data.surveys import QUICK, survey_of, total_size, undivided

        paths = [resolve_path(self, "images"), resolve_path(self, "labels")]
        if any(path.suffix == ".gz" for path in paths) and total_size(paths) > QUICK:
            return super().survey()
        return survey_of(self, undivided(self).open())
