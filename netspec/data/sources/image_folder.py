"""`{source: image_folder}`: one folder a class, with that class's image files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.data.base import ClassNames, Dataset, FieldType, Source, blamed_on
from netspec.schema.data import SOURCES
from netspec.schema.paths import FilePath, resolve_path
from netspec.schema.spec import describe, problem


def _as_size(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value, value]
    sizes = list(value) if isinstance(value, (list, tuple)) else []
    if len(sizes) != 2 or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
        raise problem("not a size of images", expected="[height, width] in pixels", got=describe(value))
    return tuple(sizes)


Size = Annotated[tuple[int, int], BeforeValidator(_as_size, json_schema_input_type=int | list[int])]


@SOURCES.register
class ImageFolder(Source):
    """Image files (JPEG, PNG, WebP, BMP) in one folder a class.

    Fields: `image` `[channels, H, W]` of uint8; `label` `[]` of int32, the class's place in `classes`. The order of the
    samples is that of the classes, then of the file paths. Files whose names start with a dot are passed over.
    """

    source: Literal["image_folder"] = "image_folder"
    path: FilePath
    """the folder that holds the folders of the classes, relative to this file"""
    size: Size | None = None
    """`[height, width]` that images are resized to; needed unless all have the same size already"""
    channels: Literal[1, 3] = 3
    """3: colour (red, green, blue); 1: grey. Transparency is dropped"""
    interpolation: Literal["bilinear", "nearest", "bicubic", "lanczos"] = "bilinear"
    """how images are resized"""
    classes: ClassNames | None = None
    """the class folders in the order of their labels; default: all of them, sorted by name"""

    samples: ClassVar = ({"path": "photos/train", "classes": ["cat", "dog"]},)

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """The list of files; images are read batch by batch."""
        from netspec.data.readers.images import ImageFolderDataset

        with blamed_on(self, "path"):
            return ImageFolderDataset(
                resolve_path(self, "path"),
                size=self.size,
                channels=self.channels,
                interpolation=self.interpolation,
                classes=self.classes,
            )

    def known_fields(self) -> Mapping[str, FieldType] | None:
        """The shape of the images where they are resized."""
        if self.size is None:
            return None
        return {"image": FieldType((self.channels, *self.size), "uint8"), "label": FieldType((), "int32")}
