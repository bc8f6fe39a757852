"""Folders of images with boxes: a survey of the annotations, and a small anchor-free detector."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from netspec.data.base import Array
from netspec.data.file_kinds import IMAGES
from netspec.data.sources.detection_folder import DetectionFolder
from netspec.errors import InputError, counted, listing
from netspec.tools.init.class_folders import PARTS, class_listing, files_below, rare_class_warnings
from netspec.tools.init.files import (
    NORMALIZATION,
    Files,
    comment,
    document,
    entries,
    entry,
    hold_out,
    items,
)
from netspec.tools.init.images import ImageSample, open_sample
from netspec.tools.init.project import Project

HEAD = 2**16
"""Number of bytes of a JSON file in which COCO's annotations are recognized."""
FILE_NAME = re.compile(rb'"file_name"\s*:\s*"([^"]+)"')
YOLO_LINE = re.compile(rb"\s*\d+(\s+(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?){4}\s*$")
"""A line of YOLO's text files: the number of a class and the four numbers of a box, such as `0 0.5 0.5 1e-05 0.25`."""
MAX_TEXTS = 100
"""Number of images next to which YOLO's text files are looked for."""
MAX_BOXES = 10_000
"""Maximum number of boxes that are read from an image; `max_boxes` accepts no more."""
SIDES = (96, 128, 192, 256, 320)
"""Sides to which images are resized."""
SMALL_BOX = 12
"""Number of pixels that nine of ten boxes have on their longer side after resizing."""
STRIDES = (16, 8, 4)
"""Sides of the cells in pixels."""
WIDTHS = (16, 32, 64, 96)
"""Number of channels after each halving of the resolution."""
STEPS = 750
"""Minimum number of steps of a training."""
MIN_BOXES_PER_CLASS = 20
"""A class of fewer boxes than this is reported."""


@dataclass
class BoxSurvey:
    """Findings about the images and boxes of the training data."""

    parts: dict[str, dict[str, Any]]
    """The fields of the source of each part: `train`, and `validation` and `test` if they are stored."""
    counts: dict[str, int]
    """Number of boxes of each class."""
    sides: Array
    """Longer side of each box in fractions of the image."""
    images: int
    most: int
    """Maximum number of boxes in an image, over all parts."""
    crowds: bool
    """Whether some boxes enclose several objects, or are difficult."""
    damaged: list[str]
    sample: ImageSample
    """Findings about the images that were opened."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the input of the net."""
        sizes = self.sample.sizes
        if len(set(sizes)) == 1 and max(sizes[0]) <= SIDES[0] and not any(side % STRIDES[0] for side in sizes[0]):
            return sizes[0]
        longest = float(np.median([max(size) for size in sizes])) if sizes else SIDES[-1]
        needed = min(longest, SMALL_BOX / max(1e-3, self._quantile(0.1)))
        side = next((side for side in SIDES if side >= needed), SIDES[-1])
        return side, side

    @property
    def stride(self) -> int:
        """Side of a cell in pixels: the largest one that fits twice into a box of median size."""
        median = self._quantile(0.5) * max(self.size)
        return next((stride for stride in STRIDES if 2 * stride <= median), STRIDES[-1])

    @property
    def largest(self) -> float:
        """Longer side that nine of ten boxes do not exceed, in cells."""
        return self._quantile(0.9) * max(self.size) / self.stride

    def _quantile(self, share: float) -> float:
        return float(np.quantile(self.sides, share)) if len(self.sides) else 0.2


def box_parts(path: Path) -> dict[str, dict[str, Any]] | None:
    """Return the fields of the sources of a folder of images with boxes, by part; None if it has no annotations.

    Paths are relative to `path`, and empty for the folder itself.
    """
    if any((path / "Annotations").glob("*.xml")):
        return _voc_parts(path)
    data_file = next((path / name for name in ("data.yaml", "data.yml") if (path / name).is_file()), None)
    if data_file is not None:
        return _yolo_parts(data_file)
    documents = [file for pattern in ("*.json", "*/*.json") for file in sorted(path.glob(pattern)) if _is_coco(file)]
    return _coco_parts(path, documents) if documents else _text_parts(path)


def _voc_parts(path: Path) -> dict[str, dict[str, Any]]:
    lists = path / "ImageSets" / "Main"
    names = {
        part: next((name for name in choices if (lists / f"{name}.txt").is_file()), None)
        for part, choices in {"train": ("train", "trainval"), **PARTS}.items()
    }
    return {part: {"split": name} for part, name in names.items() if name} if names["train"] else {"train": {}}


def _yolo_parts(data_file: Path) -> dict[str, dict[str, Any]]:
    from netspec.data.readers.boxes.yolo import read_data_file

    data = read_data_file(data_file)
    parts = {"train": {"annotations": data_file.name, "split": "train"}}
    for part, choices in PARTS.items():
        name = next((name for name in choices if isinstance(data.get(name), str)), None)
        if name is not None and data[name] not in [data.get(fields["split"]) for fields in parts.values()]:
            parts[part] = {"annotations": data_file.name, "split": name}
    return parts


def _text_parts(path: Path) -> dict[str, dict[str, Any]] | None:
    """Return the parts of YOLO's text files without a `data.yaml`: in `labels`, or next to the images."""
    images, labels = path / "images", path / "labels"
    if images.is_dir() and labels.is_dir() and any(map(_is_yolo, files_below(labels, {".txt"}))):
        train = images / "train"
        folders = {part: next((images / name for name in names if train.is_dir() and (images / name).is_dir()), None)
                   for part, names in PARTS.items()}  # fmt: skip
        folders = {"train": train if train.is_dir() else images, **folders}
        return {part: {"path": file.relative_to(path).as_posix()} for part, file in folders.items() if file is not None}
    texts = (file.with_suffix(".txt") for file in sorted(path.iterdir()) if file.suffix.lower() in IMAGES.suffixes)
    return {"train": {}} if any(map(_is_yolo, islice(texts, MAX_TEXTS))) else None


def _is_yolo(file: Path) -> bool:
    """Return whether a text file begins with a class number and the four numbers of a box."""
    if not file.is_file():
        return False
    with file.open("rb") as text:
        return YOLO_LINE.match(text.readline(HEAD)) is not None


def _coco_parts(path: Path, documents: list[Path]) -> dict[str, dict[str, Any]]:
    """Return the parts by the names of the files. Raises `InputError` if none or several may be the training data."""
    part_of = {file: _part_named_in(file.relative_to(path)) for file in documents}
    train = [file for file, part in part_of.items() if part in ("train", None)]
    if len(train) > 1:
        train = [file for file in train if part_of[file] == "train"]
    elif len(documents) == 1:
        train = documents
    if len(train) != 1:
        names = listing([file.relative_to(path).as_posix() for file in documents], 5)
        raise InputError(
            f"{path} has several files of annotations", expected="one for training, such as one with `train` in its "
            "name, and others with `val` or `test` in their names", got=names,
        )  # fmt: skip
    stored = {part: next((file for file in documents if part_of[file] == part and file not in train), None)
              for part in PARTS}  # fmt: skip
    files = {"train": train[0], **{part: file for part, file in stored.items() if file is not None}}
    return {part: {**_coco_images(path, file), "annotations": file.relative_to(path).as_posix()}
            for part, file in files.items()}  # fmt: skip


def _part_named_in(file: Path) -> str | None:
    """Return the part of the data that a word in the name of a file, or else of the closest folder, stands for."""
    for name in (file.stem, *reversed(file.parent.parts)):
        words = [word.lower() for word in re.findall("[A-Z]?[a-z]+|[A-Z]+", name)]
        for part, part_names in {"train": ("train", "trainval"), **PARTS}.items():
            if any(word in part_names for word in words):
                return part
    return None


def _is_coco(file: Path) -> bool:
    with file.open("rb") as document:
        return b'"images"' in document.read(HEAD)


def _coco_images(path: Path, file: Path) -> dict[str, str]:
    """Return the field `path` of the folder with the first image of a file of annotations; empty for `path` itself."""
    with file.open("rb") as document:
        first = FILE_NAME.search(document.read(HEAD))
    if first is None:
        return {}
    name = first.group(1).decode("utf-8", "replace")
    folders = [path, file.parent, *(child for child in sorted(path.glob("*")) if child.is_dir())]
    folders += [child for child in sorted(path.glob("images/*")) if child.is_dir()]
    folder = next((folder for folder in folders if (folder / name).is_file()), path)
    return {} if folder == path else {"path": folder.relative_to(path).as_posix()}


def survey(path: Path, parts: dict[str, dict[str, Any]]) -> BoxSurvey:
    """Read the annotations, and open some images. Raises `InputError` if there are no boxes."""
    opened = {}
    for part, fields in parts.items():
        located = fields | {name: str(path / fields[name]) for name in ("path", "annotations") if name in fields}
        source = DetectionFolder.model_validate(
            {"path": str(path), **located, "max_boxes": MAX_BOXES, "on_error": "skip", "batch_size": 1}
        )
        opened[part] = source.open()
    train = opened["train"]
    indices = np.arange(len(train))
    boxes, labels = (np.asarray(train.read_field(name, indices)) for name in ("boxes", "labels"))
    is_box = labels >= 0
    if not is_box.any():
        raise InputError(f"{path} has no boxes", expected="annotations of boxes")
    sides = np.maximum(boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1])[is_box]
    classes = list(train.classes["labels"])
    most = max(int((np.asarray(data.read_field("labels", np.arange(len(data)))) >= 0).sum(1).max())
               for data in opened.values())  # fmt: skip
    crowds = bool(np.asarray(train.read_field("crowd", indices)).any())
    counts = dict(zip(classes, np.bincount(labels[is_box], minlength=len(classes)).tolist(), strict=True))
    damaged = [text for data in opened.values() for text in data.damaged]
    sample = open_sample(list(files_below(path, IMAGES.suffixes)))
    return BoxSurvey(parts, counts, sides, len(train), max(most, 1), crowds, damaged, sample)


def box_files(project: Project, parts: dict[str, dict[str, Any]]) -> Files:
    """Return the files for a folder of images with boxes."""
    boxes = survey(project.data, parts)
    files = Files("object detection", "", "")
    low, middle, high = (np.quantile(boxes.sides, share) for share in (0.1, 0.5, 0.9))
    rows, columns = (side // boxes.stride for side in boxes.size)
    shape = f"{boxes.size[0]} × {boxes.size[1]}"
    files.findings = [
        f"{boxes.images:,} images, boxes of {class_listing(boxes.counts)}",
        f"longer side of a box: {middle:.0%} of the image (median), {low:.0%} to {high:.0%} for eight of ten boxes",
        f"a grid of {rows} × {columns} cells, for images of {shape} pixels",
    ]
    files.warnings += rare_class_warnings(boxes.counts, MIN_BOXES_PER_CLASS, "boxes")
    files.warnings += boxes.sample.duplicates.warnings()
    if boxes.damaged:
        files.warnings.append(
            f"{counted(len(boxes.damaged), 'image')} with damaged annotations are left out: {listing(boxes.damaged, 3)}"
        )
    files.net = _net(project, boxes)
    files.train = _train(project, boxes)
    return files


def _net(project: Project, boxes: BoxSurvey) -> str:
    inputs = ["boxes", "labels", *(["crowd"] if boxes.crowds else [])]
    channels = 1 if boxes.sample.gray else 3
    widths = project.space.scaled_widths(WIDTHS, "channels at half the resolution")
    lines = [
        *project.net_head(f"A small anchor-free detector of {len(boxes.counts)} kinds of objects."),
        *entry("image", {"shape": [channels, *boxes.size]}, "channels, height, width", 2),
        *entry("boxes", {"shape": [boxes.most, 4]}, "the largest number of boxes in an image; others are padded", 2),
        *entry("labels", {"shape": [boxes.most], "dtype": "int32"}, "", 2),
    ]
    if boxes.crowds:
        lines += entry("crowd", {"shape": [boxes.most], "dtype": "int32"}, "1 for boxes that are not counted", 2)
    stages = boxes.stride.bit_length() - 1
    lines.append("layers:")
    for number, filters in enumerate(widths[:stages]):
        why = f"stage {number + 1}: half the resolution"
        group = [*_convolution(filters, strides=2, source="image" if not number else None)]
        group += _convolution(filters) if number else []
        lines += [*comment(why, 2), *items(group, 2)]
    width = widths[stages - 1]
    lines += comment("at the resolution of the grid: each cell sees more of its surroundings", 2)
    lines += items([layer for _ in range(2) for layer in _convolution(width)], 2)
    if boxes.largest > 5:
        dilated = [layer for rate in (2, 4) for layer in _convolution(width, dilation_rate=rate)]
        lines += [*comment(f"dilated, since boxes are up to {boxes.largest:.0f} cells wide", 2), *items(dilated, 2)]
    head = {"name": "head", "type": "Conv2D", "filters": 4 + len(boxes.counts), "kernel_size": 1}
    size = boxes.size[0] // boxes.stride, boxes.size[1] // boxes.stride
    lines += items([
        (head, f"a box and a score of each class for each of {size[0]} × {size[1]} cells of {boxes.stride} pixels"),
        ({"name": "detections", "type": "AnchorFreeBoxes"}, ""),
    ], 2)  # fmt: skip
    lines += entry("losses", [{"type": "AnchorFreeDetection", "from": ["head", *inputs]}])
    pair = {"from": ["detections", *inputs]}
    lines += ["metrics:", *items([
        ({"type": "MeanAveragePrecision", "name": "mAP", **pair}, "as COCO computes it"),
        ({"type": "MeanAveragePrecision", "name": "mAP50", **pair, "iou_thresholds": [0.5]}, ""),
    ], 2)]  # fmt: skip
    return document(lines)


def _convolution(filters: int | str, source: str | None = None, **fields: int) -> list[tuple[dict[str, Any], str]]:
    """Return a convolution with normalization and activation."""
    conv: dict[str, Any] = {"type": "Conv2D", "filters": filters, "kernel_size": 3, **fields, "padding": "same"}
    conv |= {"use_bias": False, **({"from": source} if source else {})}
    return [(conv, ""), (NORMALIZATION, ""), ({"type": "ReLU"}, "")]


def _train(project: Project, boxes: BoxSurvey) -> str:
    path, space = project.data, project.space
    height, width = boxes.size
    same = set(boxes.sample.sizes) == {boxes.size}
    resize = {"type": "Resizing", "height": height, "width": width, "pad_to_aspect_ratio": True}
    why = "larger is slower, and better for small boxes; the aspect ratio is kept"
    prepare: list[tuple[dict[str, Any], str]] = [] if same else [(resize, why)]
    augment: list[tuple[dict[str, Any], str]] = [
        (
            {"type": "RandomTranslation", "height_factor": 0.1, "width_factor": 0.1},
            "in training only; the boxes move too",
        ),
        ({"type": "RandomFlip", "mode": "horizontal"}, "remove it if left and right matter, as in text"),
    ]
    scale: list[tuple[dict[str, Any], str]] = [({"type": "Rescaling", "scale": 1 / 255}, "pixels are 0 to 255")]

    def source(fields: dict[str, Any]) -> dict[str, Any]:
        described = {"source": "detection_folder", "path": project.path_of(path), **fields}
        described |= {name: project.path_of(path / fields[name]) for name in ("path", "annotations") if name in fields}
        described |= {"classes": list(boxes.counts), "max_boxes": boxes.most}
        described |= {"channels": 1} if boxes.sample.gray else {}
        return described | ({"on_error": "skip"} if boxes.damaged else {})

    reasons = {"classes": "labels 0, 1, … in this order", "max_boxes": "as in the net"}
    batch = 32 if boxes.images > 1_000 else 16
    lines = project.train_head(f"on the images with boxes in {project.location}")
    missing = [part for part in PARTS if part not in boxes.parts]
    train, share = boxes.parts["train"], dict[str, Any]()
    if missing:
        share, why = hold_out(boxes.images, parts=missing)
        share |= {"of": train["split"]} if "split" in train else {}
        train = {key: value for key, value in train.items() if key != "split"}
    lines += entries(source(train), 4, reasons)
    if share:
        lines += entry("split", share, why, 4)
    lines += [*entry("batch_size", batch, "", 4), *entry("shuffle", True, "", 4), "    transforms:"]
    lines += items([*prepare, *augment, *scale], 6)
    for part in PARTS:
        if part in boxes.parts:
            lines += [f"  {part}:", *entries(source(boxes.parts[part]), 4)]
            lines += entry("batch_size", 50, "", 4)
            lines += entry("transforms", [step for step, _ in [*prepare, *scale]], "", 4)
    trained = round(boxes.images * (1 - sum(share.get(part, 0) for part in missing)))
    per_epoch = ceil(trained / batch)
    epochs = max(12, ceil(STEPS / per_epoch))
    rate = {"type": "CosineDecay", "initial": 0.003}
    space.field("solver.learning_rate.initial", {"low": 0.001, "high": 0.01, "log": True})
    why = f"{epochs * per_epoch:,} steps; more improve the result, above all with few images"
    return document([
        *lines, "", "solver:", *entry("type", "Adam", "", 2), *entry("learning_rate", rate, "falls to 0 at the end", 2),
        "", "train:", *entry("max_epochs", epochs, why, 2),
        *entry("test_every", max(per_epoch, 50), "", 2),
        *entry("monitor", "mAP", "it decides which weights are the best", 2),
        *space.search_lines(),
    ])  # fmt: skip
