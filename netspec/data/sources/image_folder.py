"""`{source: image_folder}`: image files, in one folder per class or named in a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.data.base import ClassNames, Dataset, FieldType, Source, Survey, hint_at_skip, located_at
from netspec.data.file_kinds import IMAGES, FileKind
from netspec.data.sources.files import FIRST, MAX_LINES, FileSource
from netspec.errors import InputError, counted
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.hold_out import HoldOut, StoredPart
from netspec.schema.specs.paths import FilePath, resolve_path
from netspec.schema.specs.spec import describe, problem

if TYPE_CHECKING:
    from netspec.data.readers.file_samples import Listing
    from netspec.data.readers.images import ImageFiles

HEADERS = 100
"""Number of images whose headers a survey reads."""


def _as_size(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value, value]
    sizes = list(value) if isinstance(value, (list, tuple)) else []
    if len(sizes) != 2 or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
        raise problem("has an invalid value", expected="[height, width] in pixels", got=describe(value))
    return tuple(sizes)


Size = Annotated[tuple[int, int], BeforeValidator(_as_size, json_schema_input_type=int | list[int])]


class ImageFileSource(FileSource):
    """Base of sources of image files: how images are decoded and resized."""

    path: FilePath
    """The folder of the images. Relative to this file."""
    size: Size | None = None
    """`[height, width]` to which images are resized; one integer is the side of a square. By default they keep their
    own sizes."""
    channels: Literal[1, 3] = 3
    """3: color (red, green, blue); 1: gray. Transparency is dropped."""
    interpolation: Literal["bilinear", "nearest", "bicubic", "lanczos"] = "bilinear"
    """Interpolation for resizing images."""

    def file_kind(self) -> FileKind:
        """Return the kind of image files."""
        return IMAGES

    def image_files(self, listing: Listing, *, skip: bool) -> ImageFiles:
        """Return the images of a listing as samples."""
        from netspec.data.readers.images import ImageFiles

        with hint_at_skip(self):
            return ImageFiles(
                listing, size=self.size, channels=self.channels, interpolation=self.interpolation, skip=skip
            )

    def survey_of_headers(self, samples: Dataset) -> Survey:
        """Return the facts about some of the samples, of whose images only the headers were read."""
        read = f"the headers of {counted(len(samples), 'image')} of {resolve_path(self, 'path').name}"
        return Survey(
            samples.fields, annotations=samples.annotations, classes=self.known_classes(), read=read,
            damaged=samples.damaged, ragged_examples=samples.ragged_examples,
        )  # fmt: skip


@SOURCES.register
class ImageFolder(ImageFileSource):
    """Image files (JPEG, PNG, WebP, BMP, GIF, TIFF), in one folder per class or named in a list.

    Fields: `image` `[channels, H, W]` of uint8; `label` `[]` of int32, the index of the class in `classes`, or the
    number in the list. Samples are ordered by class, then by path; or as in the list. Files whose names start with a
    dot are skipped, and so are images outside the class folders. Images keep their own sizes unless `size` is set: add
    a transform that crops or resizes them.
    """

    source: Literal["image_folder"] = "image_folder"
    foreign_fields: ClassVar[dict[str, str]] = {
        "directory": "use `path`",
        "root": "use `path`",
        "root_folder": "use `path`",
        "image_size": "use `size`",
        "class_names": "use `classes`",
    }
    path: FilePath
    """The folder that contains the class folders, or to which paths in a list are relative. Relative to this file."""
    split: Annotated[str | HoldOut | None, StoredPart(str | None)] = None
    """A part of the folder: its list `SPLIT.csv` or `SPLIT.txt` if there is one, else the class folders in `SPLIT`.
    Or, in `train`, which images are held out, as in `{validation: 0.15, stratify: label}`."""
    list: FilePath | None = None
    """A list of the images instead of class folders: a `.csv` file with the columns `path` and `label` (numbers, names,
    or absent), else a path, a space and a number in each line, as in Caffe. Names are those of the training split.

    `split` can name any column of a `.csv` file."""
    classes: ClassNames | None = None
    """The class names in the order of their labels; by default all that occur, sorted as text (`10` before `2`)."""

    samples: ClassVar = (
        {"path": "photos/train", "classes": ["cat", "dog"]},
        {"path": "photos", "list": "photos/train.txt", "size": [224, 224]},
    )

    def class_folder(self) -> Path | None:
        """Return the folder of the class folders, if there are any."""
        if self.list is not None or self._list_of_split() is not None:
            return None
        return resolve_path(self, "path") / (self.stored_part() or "")

    def _list_of_split(self) -> Path | None:
        """Return the list `SPLIT.csv` or `SPLIT.txt` of the images of the split, if there is one."""
        part = self.stored_part()
        lists = [] if part is None else [resolve_path(self, "path") / f"{part}.{suffix}" for suffix in ("csv", "txt")]
        return next((file for file in lists if file.is_file()), None)

    def classes_without_samples(self) -> Mapping[str, Sequence[str]] | None:
        """Return the declared class names, or those of the class folders."""
        return self.classes_of_folders()

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """List the files. Images are read batch by batch."""
        skip = self.on_error == "skip"
        listing = self._listing(learned, skip=skip)
        with located_at(self, "path"):
            return self.image_files(listing, skip=skip)

    def first_files(self) -> Listing:
        """Return some of the images."""
        most = max(FIRST, HEADERS // self.known_classes().get("label", 1))
        return self._listing(None, skip=self.on_error == "skip", most=most)

    def survey_of(self, listing: Listing) -> Survey:
        """Return the type of the images and the label, and the damage that the headers of some images show."""
        from netspec.data.readers.images import check_images

        skip = self.on_error == "skip"
        with located_at(self, "path"):
            some = listing.only(range(0, len(listing.files), -(-len(listing.files) // HEADERS)))
            with hint_at_skip(self):
                (some,) = check_images(some, skip=skip)
            return self.survey_of_headers(self.image_files(some, skip=skip))

    def _listing(self, learned: Mapping[str, Any] | None, *, skip: bool, most: int | None = None) -> Listing:
        from netspec.data.readers.file_lists import listed_files
        from netspec.data.readers.file_samples import class_folders, unlabeled

        if self._unlabeled:
            return unlabeled(self._unlabeled, IMAGES)
        root, part = resolve_path(self, "path"), self.stored_part()
        listed = partial(
            listed_files, root=root, classes=self.classes, kind=IMAGES, skip=skip, learned=learned,
            most=None if most is None else MAX_LINES, hold_out=self.hold_out,
        )  # fmt: skip
        if self.list is not None:
            with located_at(self, "list"):
                if part is not None:
                    raise InputError("`list` and `split` cannot be combined", expected="one of them")
                return listed(resolve_path(self, "list"))
        with located_at(self, "path"):
            if (file := self._list_of_split()) is not None:
                return listed(file)
            return class_folders(root if part is None else root / part, self.classes, IMAGES, most)

    def known_fields(self) -> Mapping[str, FieldType] | None:
        """Return the fields if the images are resized and have labels."""
        if self.size is None or self.list is not None or self.stored_part() is not None or self._unlabeled:
            return None
        return {"image": FieldType((self.channels, *self.size), "uint8"), "label": FieldType((), "int32")}


def images_like(split: Source, paths: Sequence[Path]) -> list[Source]:
    """Return a source of image files like the images of another source: with the same size and channels.

    Empty if a path is neither an image nor a folder, or if the source has no field `image` of uint8.
    """
    sources = ImageFolder(path=FilePath("."), batch_size=split.batch_size).with_files(paths, ("image",))
    field = (split.known_fields() or split.open().fields).get("image") if sources else None
    if field is None or field.dtype != "uint8" or len(field.shape) != 3 or field.shape[0] not in (1, 3):
        return []
    channels, *size = field.shape
    fields = {
        "channels": channels, "size": None if None in size else tuple(size), "transforms": split.transforms,
        "inputs": split.inputs,
    }  # fmt: skip
    return [source.model_copy(update=fields) for source in sources]
