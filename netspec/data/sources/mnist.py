"""`{source: mnist}`: handwritten digits, which netspec ships; `{source: fashion_mnist}`, which is downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from netspec.data.base import Dataset, FieldType, Source, Survey, located_at
from netspec.data.known_datasets import FASHION_MNIST, KnownSet
from netspec.data.sources.known import KnownSource
from netspec.errors import InputError
from netspec.schema.bundled import zoo_root
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.hold_out import HoldOut, StoredPart
from netspec.schema.specs.paths import FilePath, resolve_path

PREFIXES = {"train": "train", "test": "t10k"}


@SOURCES.register
class Mnist(Source):
    """MNIST, which netspec ships: 60,000 images of handwritten digits for training, 10,000 for test.

    Fields: `image` `[1, 28, 28]` of uint8, 0 (paper) to 255 (ink); `label` `[]` of int32, 0 to 9.
    """

    source: Literal["mnist"] = "mnist"
    split: Annotated[Literal["train", "test"] | HoldOut, StoredPart(Literal["train", "test"])]
    """`train` or `test`: the split of the dataset; or a mapping, as in `{validation: 0.1}`, which divides `train`."""
    path: FilePath | None = None
    """Another folder with four idx files under MNIST's names (Fashion-MNIST, …); by default the shipped one."""

    samples: ClassVar = ({"split": "train"},)

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Open the two files of the split, which are read in full (47 MB for `train`)."""
        from netspec.data.readers.idx import labeled_images

        folder = zoo_root() / "data" / "mnist" if self.path is None else resolve_path(self, "path")
        prefix = PREFIXES[str(self.stored_part("train"))]
        with located_at(self, "source" if self.path is None else "path"):
            return labeled_images(_find(folder, prefix, "images", 3), _find(folder, prefix, "labels", 1))

    def known_samples(self) -> int | None:
        """Return the number of samples of MNIST; None for another folder."""
        count = FASHION_MNIST.samples[str(self.stored_part("train"))]  # Fashion-MNIST has the sizes of MNIST
        return min(count, self.limit or count) if self.path is None else None

    def known_classes(self) -> Mapping[str, int]:
        """Return the ten digits of MNIST; nothing for another folder."""
        return {} if self.path else {"label": 10}

    def known_fields(self) -> Mapping[str, FieldType] | None:
        """Return the fields of MNIST; None for another folder, whose images may have another size."""
        return None if self.path else {"image": FieldType((1, 28, 28), "uint8"), "label": FieldType((), "int32")}

    def survey(self) -> Survey:
        """Open the files of another folder."""
        from netspec.data.surveys import QUICK, survey_of, total_size, undivided

        if self.path is None or total_size(resolve_path(self, "path").glob("*.gz")) > QUICK:
            return super().survey()
        return survey_of(self, undivided(self).open())


@SOURCES.register
class FashionMnist(KnownSource):
    """Fashion-MNIST, downloaded if it is missing: 60,000 images of clothes for training, 10,000 for test.

    Fields: `image` `[1, 28, 28]` of uint8, 0 (background) to 255; `label` `[]` of int32: T-shirt/top, Trouser,
    Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot.
    """

    source: Literal["fashion_mnist"] = "fashion_mnist"
    known_set: ClassVar[KnownSet] = FASHION_MNIST
    samples: ClassVar = ({"split": "train"},)

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Open the two files of the split."""
        from netspec.data.readers.idx import labeled_images

        with located_at(self, self.blamed):
            images, labels = self.files()
            return labeled_images(images, labels, self.known_set.classes)

    def known_fields(self) -> Mapping[str, FieldType] | None:
        """Return the fields of the set."""
        return {"image": FieldType((1, 28, 28), "uint8"), "label": FieldType((), "int32")}


def _find(folder: Path, prefix: str, content: str, axes: int) -> Path:
    """Return the file under any of its usual names: gzipped or not, `-idx3` or `.idx3`."""
    names = [f"{prefix}-{content}{dot}idx{axes}-ubyte{gz}" for gz in (".gz", "") for dot in "-."]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise InputError(
        f"folder {folder} has no file {names[0]}" if folder.is_dir() else f"folder {folder} does not exist",
        expected="a folder with train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
        "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz",
    )
