"""`{source: detection_folder}`: images with boxes, annotated in COCO's, Pascal VOC's or YOLO's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from netspec.data.base import ClassNames, Dataset, FieldType, Survey, hint_at_skip, located_at
from netspec.data.file_kinds import IMAGES
from netspec.data.sources.image_folder import HEADERS, ImageFileSource
from netspec.errors import InputError
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.hold_out import HoldOut, StoredPart
from netspec.schema.specs.paths import FilePath, resolve_path

if TYPE_CHECKING:
    from netspec.data.readers.boxes.annotated import AnnotationSet, Findings

Format = Literal["coco", "voc", "yolo"]


@SOURCES.register
class DetectionFolder(ImageFileSource):
    """Image files with boxes around objects, annotated in COCO's, Pascal VOC's or YOLO's format.

    Fields: `image` `[channels, H, W]` of uint8; `boxes` `[max_boxes, 4]` of float32, each box as left, top, right and
    bottom edge in fractions of the image's width and height (Keras's `rel_xyxy`); `labels` `[max_boxes]` of int32, the
    index of each box's class in `classes`; `crowd` `[max_boxes]` of int32, 1 for boxes around several objects (COCO's
    `iscrowd`) or difficult ones (VOC), which losses and metrics ignore. An image with fewer boxes is padded with
    boxes `[0, 0, 0, 0]` of the class -1. Images without boxes are samples too. Transforms that move or resize the image
    move its boxes in the same way; a box is dropped if less than a fifth of it remains.
    """

    source: Literal["detection_folder"] = "detection_folder"
    foreign_fields: ClassVar[dict[str, str]] = {
        "annotation_file": "use `annotations`",
        "ann_file": "use `annotations`",
        "image_folder": "use `path`",
        "root": "use `path`",
        "names": "use `classes`",
        "box_format": "boxes are always left, top, right, bottom in fractions of the image",
    }
    path: FilePath
    """The folder of the images, or of a dataset in the layout of Pascal VOC (`JPEGImages`, `Annotations`) or of
    Ultralytics (`data.yaml`). Relative to this file."""
    annotations: FilePath | None = None
    """A JSON file (COCO), a folder of XML files (Pascal VOC), or a folder of text files or a `data.yaml` (YOLO).
    Default: found in `path`: `Annotations`, `data.yaml` or a single JSON file; else YOLO's text files next to the
    images, or in the folder `labels` instead of `images`."""
    format: Format | None = None
    """The format of the annotations; default: by their suffix."""
    split: Annotated[str | HoldOut | None, StoredPart(str | None)] = None
    """A part of the dataset: the images in `ImageSets/Main/SPLIT.txt` (VOC), or in the folder that `data.yaml` names
    for SPLIT (YOLO; default: `train`). Or, in `train`, which images are held out, as in `{validation: 0.15}`."""
    max_boxes: Annotated[int, Field(ge=1, le=10000)] = 100
    """Number of boxes of each sample, with padding; an image with more boxes counts as damaged."""
    classes: ClassNames | None = None
    """The class names in the order of their labels. Default: COCO's categories by id, the names in `data.yaml` (YOLO),
    or all names that occur, sorted (VOC)."""

    samples: ClassVar = (
        {"path": "photos", "annotations": "photos/instances.json", "max_boxes": 20},
        {"path": "VOC2007", "split": "trainval", "size": [300, 300]},
        {"path": "photos", "annotations": "labels", "format": "yolo", "classes": ["cat", "dog"]},
    )

    def class_folder(self) -> Path | None:
        """Return None: boxes have classes, samples have none."""
        return None

    def known_classes(self) -> Mapping[str, int]:
        """Return the number of declared classes."""
        return {"labels": len(self.classes)} if self.classes else {}

    def known_fields(self) -> Mapping[str, FieldType] | None:
        """Return the fields if the images are resized and have boxes."""
        if self.size is None or self._unlabeled:
            return None
        return {
            "image": FieldType((self.channels, *self.size), "uint8"),
            "boxes": FieldType((self.max_boxes, 4), "float32"),
            "labels": FieldType((self.max_boxes,), "int32"),
            "crowd": FieldType((self.max_boxes,), "int32"),
        }

    def survey(self) -> Survey:
        """Look for the annotations, and read those of the first images. COCO's file is only read if it is small."""
        from netspec.data.surveys import QUICK, total_size

        with located_at(self, self._annotations_field):
            path = self._annotations_path()
            if self._format(path) != "coco" or total_size([path]) <= QUICK:
                return self.survey_of_headers(self._samples(None, HEADERS))
        return super().survey()

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Read the annotations. Images are read batch by batch."""
        from netspec.data.readers.file_samples import unlabeled
        from netspec.data.readers.list_labels import CLASSES

        with located_at(self, "path" if self._unlabeled else self._annotations_field):
            if self._unlabeled:
                return self.image_files(unlabeled(self._unlabeled, IMAGES), skip=self.on_error == "skip")
            return self._samples(None if learned is None else learned.get(CLASSES))

    def _samples(self, trained: Sequence[str] | None, most: int | None = None) -> Dataset:
        """Return the samples, or at most `most` of them. `trained` are the classes of the training split."""
        from netspec.data.readers.boxes.annotated import Findings
        from netspec.data.readers.boxes.dataset import BoxedImages, boxed_images
        from netspec.data.readers.images import check_images

        skip, findings = self.on_error == "skip", Findings()
        annotations = self._annotations(findings, most)
        annotations = replace(annotations, images=annotations.images[:most])
        listing, arrays = boxed_images(annotations, findings, self.classes, trained, self.max_boxes, skip=skip)
        if most is not None:
            with hint_at_skip(self):
                (listing,) = check_images(listing, skip=skip)
        return BoxedImages(
            listing, arrays, annotations.category_ids, size=self.size, channels=self.channels,
            interpolation=self.interpolation, skip=skip,
        )  # fmt: skip

    @property
    def _annotations_field(self) -> str:
        """The field that leads to the annotations."""
        return "path" if self.annotations is None else "annotations"

    def _annotations_path(self) -> Path:
        """Return the file or folder of the annotations."""
        root = resolve_path(self, "path")
        return _found_annotations(root) if self.annotations is None else resolve_path(self, "annotations")

    def _format(self, path: Path) -> Format:
        return self.format or _format_of(path)

    def _annotations(self, findings: Findings, most: int | None) -> AnnotationSet:
        """Read the annotations in their format; those of at most `most` images if each has a file."""
        root, path = resolve_path(self, "path"), self._annotations_path()
        match self._format(path):
            case "coco":
                from netspec.data.readers.boxes.coco import read_coco

                self._refuse_part("a COCO file has no parts", "one file for each part")
                return read_coco(path, root, findings)
            case "voc":
                return self._read_voc(root, path, findings, most)
            case "yolo":
                return self._read_yolo(root, path, findings, most)

    def _refuse_part(self, message: str, expected: str) -> None:
        if self.stored_part() is not None:
            with located_at(self, "split"):
                raise InputError(message, expected=expected, got=str(self.stored_part()))

    def _read_voc(self, root: Path, path: Path, findings: Findings, most: int | None) -> AnnotationSet:
        from netspec.data.files import existing
        from netspec.data.readers.boxes.voc import read_voc

        files, part = sorted(existing(path, folder=True).glob("*.xml")), self.stored_part()
        if part is not None:
            with located_at(self, "split"):
                listed = existing(root / "ImageSets" / "Main" / f"{part}.txt").read_text(encoding="utf-8").split()
            files = [existing(path / f"{name}.xml") for name in listed]
        if not files:
            raise InputError(f"{path} holds no annotations", expected="files whose names end in .xml")
        images = root / "JPEGImages"
        return read_voc(files[:most], images if images.is_dir() else root, findings)

    def _read_yolo(self, root: Path, path: Path, findings: Findings, most: int | None) -> AnnotationSet:
        from netspec.data.files import existing
        from netspec.data.readers.boxes.yolo import find_names, folders_of, labels_of, read_names, read_yolo
        from netspec.data.readers.file_samples import unlabeled

        if path.suffix.lower() in (".yaml", ".yml"):
            with located_at(self, self._annotations_field if self.stored_part() is None else "split"):
                images, labels = folders_of(path, self.stored_part("train") or "train")
            names: list[str] | None = self.classes or read_names(path)
        else:
            self._refuse_part("text files have no parts", "`annotations` with a data.yaml, or one folder for each part")
            images, labels = root, labels_of(root) if path == root else existing(path, folder=True)
            names = self.classes or find_names(labels, Path(commonpath([root, labels])))
        return read_yolo(unlabeled([images], self.file_kind()).files[:most], images, labels, names, findings)


def _found_annotations(root: Path) -> Path:
    """Return the annotations of a folder without `annotations`."""
    from netspec.data.files import existing

    existing(root, folder=True)
    existing_paths = [root / name for name in ("Annotations", "data.yaml", "data.yml") if (root / name).exists()]
    documents = sorted(root.glob("*.json"))
    if existing_paths:
        return existing_paths[0]
    if len(documents) > 1:
        raise InputError(
            f"{root} holds several JSON files", expected="`annotations` with one of them",
            got=", ".join(file.name for file in documents[:10]),
        )  # fmt: skip
    return documents[0] if documents else root


def _format_of(path: Path) -> Format:
    """Return the format of annotations by their suffix."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        return "coco"
    if suffix in (".yaml", ".yml") or not path.is_dir():
        return "yolo"
    return "voc" if any(path.glob("*.xml")) else "yolo"
