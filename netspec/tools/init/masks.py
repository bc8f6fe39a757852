"""Folders of images and masks: a survey of the pairs, and a small U-Net that finds the class of each pixel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from netspec.data.file_kinds import IMAGES, MASKS
from netspec.data.readers.mask_pairs import listed_names
from netspec.errors import InputError, counted, listing
from netspec.tools.init.class_folders import files_below, has_files, split_entry, training_folder
from netspec.tools.init.files import (
    NORMALIZATION,
    Files,
    document,
    entry,
    explained_entries,
    items,
    patient_epochs,
    training,
)
from netspec.tools.init.images import MAX_BYTES, ImageSample
from netspec.tools.init.project import Project

IMAGE_FOLDERS, MASK_FOLDERS = ("images", "image", "imgs", "img", "JPEGImages"), ("masks", "mask", "SegmentationClass")
"""Names of the folders."""
MAX_OPENED = 500
"""Number of image and mask pairs that are opened at most."""
MAX_CLASSES = 64
"""If masks have more pixel values than this, the values are not class indices."""
IGNORED = 255
"""Pixel value that belongs to no class."""
SIDES = (32, 64, 96, 128)
"""Sides to which images are resized; the net halves them up to four times."""
WIDTHS = (16, 32, 64, 96, 96)
"""Number of channels at each resolution of the net, from the full one on."""


class MaskFolders(NamedTuple):
    """The folders of images and masks."""

    root: Path
    """Their common parent folder."""
    images: str
    masks: str


@dataclass
class MaskSurvey:
    """Findings about the pairs of a folder."""

    pairs: list[tuple[Path, Path]]
    suffix: str
    """Text in the name of a mask after the name of its image, such as `_mask`."""
    unpaired: int
    """Number of images without a mask."""
    sample: ImageSample = field(default_factory=ImageSample)
    """Findings about the images that were opened."""
    pixels: Counter[int] = field(default_factory=Counter)
    """Number of pixels of each value in the masks of the sample."""
    names: tuple[str, ...] = ()
    """The lines of `classes.txt`, if there is one."""

    @property
    def values(self) -> list[int]:
        """The pixel values of the classes, in order."""
        values = sorted(self.pixels)
        return values if values == [0, IGNORED] else [value for value in values if value != IGNORED]

    @property
    def count(self) -> int:
        """Number of classes: the number of names, or else of indices up to the largest one in the sample."""
        return len(self.names) or (len(self.values) if self.needs_mapping else max(self.values) + 1)

    @property
    def needs_mapping(self) -> bool:
        """Whether pixel values must be mapped to class indices: black and white masks, or values far apart."""
        far_apart = not self.names and max(self.values) >= 2 * len(self.values) + 8
        return self.values == [0, IGNORED] or far_apart

    @property
    def classes(self) -> list[str]:
        """The names of the classes, or placeholders."""
        placeholders = (
            ["background", "object"] if self.count == 2 else [f"class_{index}" for index in range(self.count)]
        )
        return list(self.names or placeholders)


def mask_folders(path: Path) -> MaskFolders | None:
    """Return the folders of images and masks in `path`, or in `train` in it; None if there are none."""
    root = training_folder(path)
    images, masks = (
        next((name for name in names if (root / name).is_dir()), None) for names in (IMAGE_FOLDERS, MASK_FOLDERS)
    )
    if images is None or masks is None or not has_files(root / masks, MASKS):
        return None
    return MaskFolders(root, images, masks)


def survey(folders: MaskFolders) -> MaskSurvey:
    """Pair images and masks, and open some of the pairs. Raises `InputError` if there are none."""
    root, images, masks = folders
    files = {_name(file, root / images): file for file in files_below(root / images, IMAGES.suffixes)}
    by_name = {_name(file, root / masks): file for file in files_below(root / masks, MASKS.suffixes)}
    suffix = _suffix(files, by_name)
    pairs = [(file, by_name[name + suffix]) for name, file in files.items() if name + suffix in by_name]
    if not pairs:
        raise InputError(
            f"no image in {root / images} has a mask in {root / masks}",
            expected="a mask of the same name, or with a suffix, for each image",
            got=f"{counted(len(files), 'image')}, {counted(len(by_name), 'mask')}",
        )
    classes = root / "classes.txt"
    names = tuple(listed_names(classes)) if classes.is_file() else ()
    result = MaskSurvey(pairs, suffix, len(files) - len(pairs), names=names)
    _open_sample(pairs, result)
    if not result.pixels:
        raise InputError(f"no mask in {root / masks} can be read", got=listing(result.sample.unreadable, 3))
    if len(result.values) > MAX_CLASSES:
        raise InputError(
            f"the pixels of masks in {root / masks} are not class indices",
            expected=f"at most {MAX_CLASSES} values, 0, 1, 2, …", got=f"{len(result.values)} values",
        )  # fmt: skip
    return result


def _name(file: Path, folder: Path) -> str:
    return file.relative_to(folder).with_suffix("").as_posix()


def _suffix(images: dict[str, Path], masks: dict[str, Path]) -> str:
    """Return the text that most names of masks have after the name of their image."""
    suffixes = Counter[str]()
    for name in list(images)[:20]:
        suffixes.update(mask[len(name) :] for mask in masks if mask.startswith(name))
    return max(suffixes, key=lambda suffix: (suffixes[suffix], -len(suffix)), default="")


def _open_sample(pairs: list[tuple[Path, Path]], result: MaskSurvey) -> None:
    import numpy as np
    from PIL import Image

    from netspec.data.readers.decode import read_mask

    sample, read = result.sample, 0
    for image, mask in sorted(pairs, key=lambda pair: sha256(pair[0].name.encode()).digest())[:MAX_OPENED]:
        if read > MAX_BYTES:
            break
        sample.opened += 1
        try:
            with Image.open(image) as opened:
                sample.add(opened)
            content = image.read_bytes()
            read += len(content) + mask.stat().st_size
            sample.duplicates.add(sha256(content).digest(), str(image))
            values, counts = np.unique(read_mask(mask, str(mask)), return_counts=True)
        except Exception as error:  # Pillow raises any class for a damaged file
            sample.unreadable.append(str(error).split("\n")[0].removeprefix("error: "))
            continue
        result.pixels.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def mask_files(project: Project, folders: MaskFolders) -> Files:
    """Return the files for a folder of images and masks."""
    mask_survey = survey(folders)
    sizes = mask_survey.sample.sizes
    side = min(SIDES, key=lambda side: abs(side - median(min(size) for size in sizes)))
    same = len(set(sizes)) == 1
    fits = same and max(sizes[0]) <= max(SIDES) and not any(length % 8 for length in sizes[0])
    size = sizes[0] if fits else (side, side)
    files = Files("semantic segmentation", "", "", *_findings(mask_survey))
    files.net = _net(project, size, mask_survey)
    files.train = _train(project, folders, size, mask_survey)
    return files


def _findings(mask_survey: MaskSurvey) -> tuple[list[str], list[str]]:
    total = sum(count for value, count in mask_survey.pixels.items() if value in mask_survey.values)
    shares = {
        mask_survey.values.index(value) if mask_survey.needs_mapping else value: mask_survey.pixels[value] / total
        for value in mask_survey.values
    }
    named = ", ".join(f"{mask_survey.classes[index]} {share:.1%}" for index, share in list(shares.items())[:10])
    sample = mask_survey.sample
    findings = [
        f"{len(mask_survey.pairs):,} images with masks of {mask_survey.count} classes; pixels: {named}",
        sample.summary,
    ]
    warnings = []
    if not mask_survey.names:
        warnings.append("the names of the classes are unknown: write them into `classes` in train.yaml")
    if mask_survey.unpaired:
        warnings.append(f"left out: {counted(mask_survey.unpaired, 'image')} without a mask")
    warnings += [*sample.unreadable_warnings("pairs"), *sample.duplicates.warnings()]
    rare = [mask_survey.classes[index] for index, share in shares.items() if share < 0.01]
    if rare:
        warnings.append(
            f"classes of less than 1% of the pixels: {listing(rare, 5)}; `class_weight: balanced` in the loss may help"
        )
    return findings, warnings


def _net(project: Project, size: tuple[int, int], mask_survey: MaskSurvey) -> str:
    depth = next(depth for depth in (4, 3) if not any(length % 2**depth for length in size) or depth == 3)
    depth = min(depth, 3 if min(size) < 64 else 4)
    widths = project.space.scaled_widths(WIDTHS, "channels at the full resolution")
    lines = [
        *project.net_head(
            f"A small U-Net for {mask_survey.count} classes of pixels: it halves the resolution {depth} times, "
            "then doubles it as often, and joins features of the same resolution."
        ),
        *entry("image", {"shape": [1 if mask_survey.sample.gray else 3, *size]}, "channels, height, width", 2),
        *entry("mask", {"shape": list(size), "dtype": "int32"}, f"the class of each pixel; {IGNORED}: none", 2),
        "blocks:",
        "  convolutions:   # two convolutions, each with normalization",
        "    params: {filters}",
        "    layers:",
        *items([(layer, "") for layer in 2 * _CONVOLUTION], 6),
        "layers:",
    ]
    for level, filters in enumerate(widths[:depth], 1):
        why = f"1/{2 ** (level - 1)} of the resolution" if level > 1 else "the full resolution"
        layers: list[tuple[dict[str, Any], str]] = [
            ({"name": f"down{level}", "type": "convolutions", "filters": filters}, why),
            ({"type": "MaxPooling2D", "pool_size": 2}, ""),
        ]
        lines += items(layers, 2)
    lines += items([({"type": "convolutions", "filters": widths[depth]}, f"1/{2**depth} of the resolution")], 2)
    for level in range(depth, 0, -1):
        filters = widths[level - 1]
        up = {"name": f"up{level}", "type": "Conv2DTranspose", "filters": filters, "kernel_size": 2, "strides": 2}
        join = {"type": "Concatenate", "from": [f"up{level}", f"down{level}"], "axis": 1}
        lines += items([(up, ""), (join, ""), ({"type": "convolutions", "filters": filters}, "")], 2)
    pair, pixels = ["logits", "mask"], {"axis": 1, "ignore_class": IGNORED}
    loss = {"type": "SparseCategoricalCrossentropy", "from": pair, "from_logits": True, **pixels}
    iou = {
        "type": "MeanIoU",
        "name": "mean_iou",
        "from": pair,
        "num_classes": mask_survey.count,
        "sparse_y_pred": False,
        **pixels,
    }
    accuracy = {"type": "SparseCategoricalAccuracy", "name": "accuracy", "from": pair, **pixels}
    logits = {"name": "logits", "type": "Conv2D", "filters": mask_survey.count, "kernel_size": 1}
    lines += items([(logits, "a score for each class and pixel")], 2)
    lines += [
        "losses:",
        *items([(loss, "")], 2),
        "metrics:",
        *items([(iou, "the mean over classes"), (accuracy, "")], 2),
    ]
    return document(lines)


_CONVOLUTION: list[dict[str, Any]] = [
    {"type": "Conv2D", "filters": "${filters}", "kernel_size": 3, "padding": "same", "use_bias": False},
    NORMALIZATION,
    {"type": "ReLU"},
]


def _train(project: Project, folders: MaskFolders, size: tuple[int, int], mask_survey: MaskSurvey) -> str:
    fields = _fields(folders, size, mask_survey)
    lines = [
        *project.train_head(f"on the images and masks in {project.location}"),
        *entry("source", "segmentation_folder", "", 4),
        *entry("path", project.path_of(folders.root), f"with the folders {folders.images} and {folders.masks}", 4),
        *explained_entries(fields, 4),
        *split_entry(project.data, len(mask_survey.pairs)),
    ]
    transforms: Sequence[tuple[dict[str, Any], str]] = [
        (
            {"type": "RandomFlip", "mode": "horizontal"},
            "also flips the mask; remove it if left and right differ in meaning",
        ),
        ({"type": "RandomRotation", "factor": 0.03, "fill_mode": "constant"}, f"up to 11°; new corners are {IGNORED}"),
        ({"type": "Rescaling", "scale": 1 / 255}, "pixels are 0 to 255"),
    ]
    batch = 16 if len(mask_survey.pairs) > 500 else 8
    lines += [
        *entry("batch_size", batch, "", 4),
        *entry("shuffle", True, "", 4),
        "    transforms:",
        *items(transforms, 6),
    ]
    lines += project.stored_splits("segmentation_folder", fields, batch, [transforms[-1][0]])
    epochs = 30 if len(mask_survey.pairs) > 5_000 else 60 if len(mask_survey.pairs) > 500 else 120
    patience = patient_epochs(len(mask_survey.pairs), batch, 8)
    return document([*lines, *training(monitor="mean_iou", epochs=epochs, patience=patience, space=project.space)])


def _fields(folders: MaskFolders, size: tuple[int, int], mask_survey: MaskSurvey) -> list[tuple[str, Any, str]]:
    """Return the fields of the source that all parts share, each with its reason."""
    fields: list[tuple[str, Any, str]] = []
    if folders.images != "images":
        fields.append(("images", folders.images, ""))
    if folders.masks != "masks":
        fields.append(("masks", folders.masks, ""))
    if mask_survey.suffix:
        fields.append(("mask_suffix", mask_survey.suffix, "text after the name of the image"))
    if mask_survey.needs_mapping:
        fields.append(("mask_values", mask_survey.values, "the pixel values of the classes"))
    fields.append(("classes", mask_survey.classes, "in the order of their indices"))
    same = set(mask_survey.sample.sizes) == {size}
    fields.append(
        ("size", list(size), "the size of all images" if same else "larger is slower, and finds finer shapes")
    )
    if mask_survey.sample.gray:
        fields.append(("channels", 1, "all images of the sample are gray"))
    if mask_survey.unpaired or mask_survey.sample.unreadable:
        fields.append(("on_error", "skip", "some pairs are incomplete: they are left out, and counted in the log"))
    return fields
