"""`{source: segmentation_folder}`: images with masks, which hold the class of each pixel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.data.base import ClassNames, Dataset, FieldType, Survey, hint_at_skip, located_at
from netspec.data.file_kinds import IMAGES
from netspec.data.sources.image_folder import HEADERS, ImageFileSource
from netspec.errors import InputError
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.hold_out import HoldOut, StoredPart
from netspec.schema.specs.paths import FilePath, resolve_path
from netspec.schema.specs.spec import describe, problem

if TYPE_CHECKING:
    from netspec.data.readers.masks import MaskValues

Pixel = Annotated[int, Field(ge=0, le=255)]
PixelValues = Annotated[list[Pixel], Field(min_length=2)]


@SOURCES.register
class SegmentationFolder(ImageFileSource):
    """Images (JPEG, PNG, WebP, BMP, GIF, TIFF) with a mask for each (PNG, BMP, GIF, TIFF).

    For semantic segmentation. Fields: `image` `[channels, H, W]` of uint8; `mask` `[H, W]` of uint8, the class index of
    each pixel. Masks have a palette or gray levels (GIF: gray levels); their values are class indices, unless
    `mask_values` is set. The mask of `images/a.jpg` is `masks/a.png`. Transforms that move or resize the
    image move the mask in the same way, without mixing its values; pixels from outside the image become `ignore_class`.
    """

    source: Literal["segmentation_folder"] = "segmentation_folder"
    foreign_fields: ClassVar[dict[str, str]] = {
        "root": "use `path`",
        "directory": "use `path`",
        "image_dir": "use `images`",
        "img_dir": "use `images`",
        "mask_dir": "use `masks`",
        "ann_dir": "use `masks`",
        "labels": "use `masks`",
        "seg_map_suffix": "use `mask_suffix`, without `.png`",
        "image_size": "use `size`",
        "class_names": "use `classes`",
        "ignore_index": "use `ignore_class`, as in losses",
        "num_classes": "not needed: name the `classes`",
    }
    path: FilePath
    """The folder that contains the folders of images and of masks. Relative to this file."""
    images: str = "images"
    """The folder of the images in `path`; images in its subfolders count too."""
    masks: str = "masks"
    """The folder of the masks in `path`, with the same subfolders; may be the same folder if `mask_suffix` is set."""
    mask_suffix: str = ""
    """Text between the name of the image and the suffix of its mask: `_mask` for `a.jpg` and `a_mask.png`."""
    split: Annotated[str | HoldOut | None, StoredPart(str | None)] = None
    """A part of the data: the images that `SPLIT.txt` in `path` lists, else the folder `SPLIT` in `path`, with the
    folders of images and masks, else the subfolders `SPLIT` of these folders. Or, in `train`, which images are held
    out, as in `{validation: 0.15}`."""
    list: FilePath | None = None
    """A text file with one image name per line, relative to `images`; the suffix may be left out."""
    mask_values: PixelValues | None = None
    """The pixel values of the classes in masks, in the order of the classes: `[0, 255]` for black and white. By default
    pixels are class indices."""
    ignore_class: Pixel = 255
    """Pixel value of masks that belongs to no class. Give the loss and the metrics the same `ignore_class`."""
    classes: ClassNames | None = None
    """The class names in the order of their indices. By default the lines of `class_file`; without names, the net
    determines the number of classes."""
    class_file: FilePath | None = None
    """A text file with one class name per line. By default `classes.txt` in `path`, if it exists."""

    samples: ClassVar = (
        {"path": "streets", "classes": ["background", "road", "car"], "size": [128, 128]},
        {"path": "VOC2012", "images": "JPEGImages", "masks": "SegmentationClass", "list": "train.txt"},
        {"path": "scans", "images": ".", "masks": ".", "mask_suffix": "_mask", "mask_values": [0, 255]},
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.classes is not None and self.class_file is not None:
            raise problem("`classes` and `class_file` cannot both be set", field="class_file", expected="one of them")
        if self.classes and self.mask_values and len(self.classes) != len(self.mask_values):
            raise problem(
                "each class needs one pixel value", field="mask_values", expected=f"{len(self.classes)} values",
                got=str(len(self.mask_values)),
            )  # fmt: skip
        if self.mask_values and len(set(self.mask_values)) < len(self.mask_values):
            raise problem(
                "`mask_values` has a value twice", field="mask_values", expected="each value once",
                got=describe(self.mask_values),
            )  # fmt: skip
        if self.images == self.masks and not self.mask_suffix:
            raise problem(
                "images and masks are in the same folder", field="masks",
                expected="`mask_suffix`, which distinguishes masks from images",
            )  # fmt: skip
        return self

    def class_folder(self) -> Path | None:
        """Return None: pixels have classes, samples have none."""
        return None

    def known_classes(self) -> Mapping[str, int]:
        """Return the number of classes if the spec or a file names them."""
        try:
            count = len(self._class_names()) or len(self.mask_values or ())
        except InputError:
            return {}
        return {"mask": count} if count else {}

    def survey(self) -> Survey:
        """Find the masks of the first images, and compare their sizes."""
        return self.survey_of_headers(self._samples(HEADERS))

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Find the mask of each image, and compare their sizes. Images are read batch by batch."""
        return self._samples()

    def _samples(self, most: int | None = None) -> Dataset:
        """Return the samples, or at most `most` of them."""
        from netspec.data.readers.file_samples import unlabeled
        from netspec.data.readers.images import check_images
        from netspec.data.readers.mask_pairs import paired_files
        from netspec.data.readers.masks import MaskFiles, SegmentationFiles, check_values

        skip = self.on_error == "skip"
        if self._unlabeled:
            return self.image_files(unlabeled(self._unlabeled, IMAGES), skip=skip)
        values = self._values()
        folder, names = self._part()
        with located_at(self, "path"):
            files, masks = paired_files(
                folder(self.images), folder(self.masks), self.mask_suffix, names, skip=skip, most=most
            )
            if most is not None:
                with hint_at_skip(self):
                    files, masks = check_images(files, masks, skip=skip)
            check_values(masks, values)
            images = self.image_files(files, skip=skip)
            shape = images.fields["image"].shape[1:]
            return SegmentationFiles(images, MaskFiles(masks, shape, self.size, values, skip=skip), values)

    def _part(self) -> tuple[Callable[[str], Path], Sequence[str] | None]:
        """Return a function of the folders' names that returns the folders, and the names in a list."""
        from netspec.data.readers.mask_pairs import listed_names

        root, part = resolve_path(self, "path"), self.stored_part()
        if self.list is not None:
            with located_at(self, "list"):
                if part is not None:
                    raise InputError("`list` and `split` cannot be combined", expected="one of them")
                return root.joinpath, listed_names(resolve_path(self, "list"))
        if part is None:
            return root.joinpath, None
        with located_at(self, "split"):
            if (root / f"{part}.txt").is_file():
                return root.joinpath, listed_names(root / f"{part}.txt")
        if (root / part).is_dir():
            return (root / part).joinpath, None
        return lambda name: root / name / part, None

    def _class_names(self) -> tuple[str, ...]:
        """Return the names of the classes; empty if there are none."""
        if self.classes is not None:
            return tuple(self.classes)
        path = resolve_path(self, "path") / "classes.txt"
        if self.class_file is not None:
            path = resolve_path(self, "class_file")
        elif not path.is_file():
            return ()
        from netspec.data.readers.mask_pairs import listed_names

        with located_at(self, "class_file"):
            names = tuple(listed_names(path))
            if len(set(names)) < len(names):
                raise InputError(f"{path} names a class twice", expected="each class once")
            return names

    def _values(self) -> MaskValues:
        from netspec.data.readers.masks import MaskValues

        names = self._class_names()
        if self.mask_values and names and len(names) != len(self.mask_values):
            raise InputError(
                "each class needs one pixel value", location=self.where("mask_values"), path="mask_values",
                expected=f"{len(names)} values", got=str(len(self.mask_values)),
            )  # fmt: skip
        if len(names) > 256:
            raise InputError(
                "there are more classes than pixel values", location=self.where("classes"), path="classes",
                expected="at most 256", got=str(len(names)),
            )  # fmt: skip
        return MaskValues(self.ignore_class, self.mask_values, names)

    def known_fields(self) -> Mapping[str, FieldType] | None:
        """Return the fields if the images are resized."""
        if self.size is None or self._unlabeled:
            return None
        return {"image": FieldType((self.channels, *self.size), "uint8"), "mask": FieldType(self.size, "uint8")}
