"""Folders of images, one for each class: a survey of their files, and a small convolutional net."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

from netspec.errors import listing
from netspec.schema.yaml.flow_style import flow
from netspec.tools.init.files import (
    NORMALIZATION,
    Files,
    class_folders,
    class_losses,
    comment,
    data_location,
    document,
    entry,
    files_of_classes,
    has_files,
    hold_out,
    items,
    name_of,
    nested_classes,
    patient_epochs,
    relative,
    training,
)
from netspec.tools.init.trunk import IMAGENET, SCALING, Trunk, head

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})
PARTS = {"validation": ("validation", "val", "valid"), "test": ("test",)}
"""Names of folders that hold a split of their own, next to `train`."""
MAX_OPENED, MAX_SECONDS, MAX_BYTES = 2_000, 5.0, 2**26
"""Limits of the sample that is opened: files, seconds, and bytes."""
SIDES = (28, 32, 48, 64, 96, 128)
"""Sides to which images are resized."""
RARE = 20
"""A class of fewer images than this is reported."""


@dataclass
class ImageSurvey:
    """Findings about the images in the class folders."""

    counts: dict[str, int]
    """Number of images of each class."""
    sizes: list[tuple[int, int]] = field(default_factory=list)
    """Height and width of each image of the sample."""
    gray: bool = True
    unreadable: list[str] = field(default_factory=list)
    duplicates: int = 0
    opened: int = 0
    nested: list[str] = field(default_factory=list)
    """Warning about folders in the class folders."""

    @property
    def images(self) -> int:
        """Number of images in all classes."""
        return sum(self.counts.values())


def has_images(folder: Path) -> bool:
    """Return whether a folder has class folders with images, or `train` with such folders."""
    root = folder / "train" if (folder / "train").is_dir() else folder
    return any(has_files(child, SUFFIXES) for child in class_folders(root))


def survey(root: Path) -> ImageSurvey:
    """List the images of each class, and open some, spread over all classes. Raises `InputError` for one class."""
    files = files_of_classes(root, "images", SUFFIXES)
    result = ImageSurvey({name: len(class_files) for name, class_files in files.items()})
    result.nested = nested_classes(root, files)
    per_class = max(1, MAX_OPENED // len(files))
    sample = [
        file
        for class_files in files.values()
        for file in class_files[:: max(1, len(class_files) // per_class)][:per_class]
    ]
    open_sample(sample, result)
    return result


def open_sample(sample: list[Path], result: ImageSurvey) -> None:
    """Add findings about images that are opened, until a limit is reached."""
    from PIL import Image

    deadline, read, seen = time.monotonic() + MAX_SECONDS, 0, Counter[str]()
    for number, file in enumerate(sorted(sample, key=lambda file: sha256(str(file).encode()).digest())):
        if read > MAX_BYTES or (number > len(result.counts) and time.monotonic() > deadline):
            break
        result.opened += 1
        try:
            content = file.read_bytes() if file.stat().st_size <= MAX_BYTES else b""
            with Image.open(file) as image:
                result.sizes.append((image.height, image.width))
                result.gray &= image.mode in ("L", "1", "I;16", "LA")
                if content:
                    image.load()
        except Exception as error:  # Pillow raises any class for a damaged file
            result.unreadable.append(f"{file} ({str(error)[:60]})")
            continue
        read += len(content)
        seen[sha256(content).hexdigest()] += 1
    result.duplicates = sum(count - 1 for count in seen.values())


def side_of(image_survey: ImageSurvey) -> int:
    """Return the side to which images are resized: close to that of the images, at most 64 or 96 for many images."""
    side = median(min(size) for size in image_survey.sizes) if image_survey.sizes else 64
    most = 96 if image_survey.images > 20_000 else 64
    return min((candidate for candidate in SIDES if candidate <= most), key=lambda candidate: abs(candidate - side))


def image_files(path: Path, folder: Path, net: str, trunk: Trunk | None = None) -> Files:
    """Return the files for a folder of images: for a net on a trunk, or for a small net of its own."""
    root = path / "train" if (path / "train").is_dir() else path
    image_survey = survey(root)
    same = len(set(image_survey.sizes)) == 1
    side = side_of(image_survey)
    size = image_survey.sizes[0] if same and max(image_survey.sizes[0]) <= 96 else (side, side)
    channels = 1 if image_survey.gray else 3
    files = Files("image classification", "", "", *_findings(image_survey))
    if trunk is not None:
        size, channels = trunk.size, trunk.channels
        files.findings.append(
            f"trunk {trunk.folder}: {trunk.layers} layers, for images of {' × '.join(map(str, size))}"
        )
        if not trunk.preparation_known:
            files.warnings.append(
                "the trunk does not say how its images were prepared; see `transforms` in the training file"
            )
        files.net = _net_on_trunk(name_of(path), folder, trunk, image_survey)
    else:
        files.net = _net(name_of(path), size, channels, image_survey)
    files.train = _train(path, root, folder, net, size, channels, image_survey, trunk)
    return files


def _findings(image_survey: ImageSurvey) -> tuple[list[str], list[str]]:
    counts = image_survey.counts
    named = listing([f"{name} {count:,}" for name, count in counts.items()], 10)
    kind = "gray" if image_survey.gray else "color"
    heights, widths = ([size[axis] for size in image_survey.sizes] for axis in (0, 1))
    spans = f"{min(heights)} × {min(widths)} to {max(heights)} × {max(widths)}" if image_survey.sizes else "unknown"
    findings = [
        f"{image_survey.images:,} images of {len(counts)} classes: {named}",
        f"{kind} images, {spans} pixels (height × width), in a sample of {image_survey.opened:,}",
    ]  # fmt: skip
    warnings = list(image_survey.nested)
    rare = [name for name, count in counts.items() if count < RARE]
    if rare:
        warnings.append(f"classes of fewer than {RARE} images: {listing(rare, 5)}")

    if max(counts.values()) > 10 * min(counts.values()):
        warnings.append("the largest class has over ten times as many images as the smallest one")
    if image_survey.unreadable:
        warnings.append(
            f"{len(image_survey.unreadable):,} of {image_survey.opened:,} images cannot be read and are left out: "
            f"{listing(image_survey.unreadable, 3)}"
        )
    if image_survey.duplicates:
        warnings.append(
            f"{image_survey.duplicates:,} of {image_survey.opened:,} images are duplicates; in both training and "
            "test data, they make results look too good"
        )
    return findings, warnings


def _head(side: int) -> list[tuple[dict[str, Any], str]]:
    """Return the layers between the last stage, whose images have this side, and the outputs."""
    if side > 7:
        why = "position in the image matters little, and this needs no parameters"
        return [({"type": "GlobalAveragePooling2D"}, why), ({"type": "Dropout", "rate": 0.3}, "against overfitting")]
    return [
        ({"type": "Flatten"}, ""),
        ({"type": "Dropout", "rate": 0.3}, "against overfitting"),
        (
            {"type": "Dense", "units": 128, "activation": "relu"},
            f"keeps the position in the image, one of {side} × {side}",
        ),
    ]


def _net(name: str, size: tuple[int, int], channels: int, image_survey: ImageSurvey) -> str:
    blocks, side = 0, min(size)
    while side >= 8 and blocks < 4:
        blocks, side = blocks + 1, side // 2
    blocks = max(blocks, 1)
    widths = [min(32 * 2**number, 128 if image_survey.images < 20_000 else 256) for number in range(blocks)]
    logits = {"name": "logits", "type": "Dense", "units": len(image_survey.counts)}
    lines = [
        *comment(f"A small convolutional net for {len(image_survey.counts)} classes of images."),
        "netspec: 1",
        f"name: {name}",
        "inputs:",
        *entry("image", {"shape": [channels, *size]}, "channels, height, width", 2),
        *entry("label", {"shape": [], "dtype": "int32"}, "", 2),
        "layers:",
    ]
    for number, filters in enumerate(widths):
        why = f"stage {number + 1}: two convolutions of {filters} channels, then half the resolution"
        conv = {"type": "Conv2D", "filters": filters, "kernel_size": 3, "padding": "same", "use_bias": False}
        group = [(layer, "") for layer in (conv, NORMALIZATION, {"type": "ReLU"})] * 2
        lines += [*comment(why, 2), *items([*group, ({"type": "MaxPooling2D", "pool_size": 2}, "")], 2)]
    lines += items([*_head(side), (logits, "one output for each class")], 2)
    lines += class_losses()
    return document(lines)


def _net_on_trunk(name: str, folder: Path, trunk: Trunk, image_survey: ImageSurvey) -> str:
    classes = len(image_survey.counts)
    layers = [({"type": "Permute", "dims": [2, 3, 1]}, "the trunk takes rows, columns, channels")] * trunk.channels_last
    layers.append(({"name": "trunk", "type": "trunk"}, "its weights: `init_from` in the training file"))
    lines = [
        *comment(f"A trained trunk with a new head for {classes} classes of images."),
        "netspec: 1",
        f"name: {name}",
        "inputs:",
        *entry(
            "image", {"shape": [trunk.channels, *trunk.size]}, "channels, height, width: as the trunk needs them", 2
        ),
        *entry("label", {"shape": [], "dtype": "int32"}, "", 2),
        "blocks:",
        *entry("trunk", trunk.block(folder), "the layers of the trained net, without its head", 2),
        "layers:",
        *items([*layers, *head(trunk, classes)], 2),
        *class_losses(),
    ]
    return document(lines)


def _transforms(channels: int, size: tuple[int, int]) -> list[tuple[dict[str, Any], str]]:
    shift = max(1, round(min(size) * 0.07))
    crop = {"type": "RandomCrop", "height": size[0], "width": size[1], "padding": shift}
    steps: list[tuple[dict[str, Any], str]] = [(crop, f"shift by up to {shift} pixels, at random, in training only")]
    if channels == 3:
        steps.append(({"type": "RandomFlip", "mode": "horizontal"}, "remove it if left and right matter, as in text"))
    return steps


def _preparation(trunk: Trunk | None) -> list[tuple[dict[str, Any], str]]:
    """Return the transforms of all splits: those between bytes and the input of the net."""
    if trunk is None:
        return [({"type": "Rescaling", "scale": 1 / 255}, "pixels are 0 to 255")]
    why = (
        "as in the training of the trunk"
        if trunk.preparation_known
        else (
            "a guess: the trunk does not say how its images were prepared. Others are common: "
            + "; ".join(flow(list(steps)) for steps in (SCALING, IMAGENET) if steps != trunk.preparation)
        )
    )
    return [(step, why if index == 0 else "") for index, step in enumerate(trunk.preparation)]


def _train(
    path: Path, root: Path, folder: Path, net: str, size: tuple[int, int], channels: int, image_survey: ImageSurvey,
    trunk: Trunk | None,
) -> str:  # fmt: skip
    fields: list[tuple[str, Any, str]] = [("classes", list(image_survey.counts), "labels 0, 1, … in this order")]
    same = set(image_survey.sizes) == {size}
    why = "that of all images; others are resized to it" if same else "larger is slower, and may be better"
    why = why if trunk is None else "those of the trunk"
    fields.append(("size", list(size), f"height and width: {why}"))
    if channels == 1:
        fields.append(("channels", 1, "all images of the sample are gray" if trunk is None else "as the trunk has it"))
    if image_survey.unreadable:
        fields.append(("on_error", "skip", "some images cannot be read: they are left out, and counted in the log"))
    declared = {
        part: next((root.parent / name for name in names if root != path and (path / name).is_dir()), None)
        for part, names in PARTS.items()
    }
    batch = 64 if image_survey.images > 2_000 else 32
    lines = [
        *comment(f"Trains the net in {net} on the images in {data_location(path, folder)}."),
        "netspec: 1", f"net: {net}", "data:", "  train:",
        *entry("source", "image_folder", "", 4),
        *entry("path", relative(root, folder), "a folder for each class", 4),
    ]  # fmt: skip
    for key, value, why in fields:
        lines += entry(key, value, why, 4)
    missing = [part for part, file in declared.items() if file is None]
    if missing:
        lines += entry("split", *hold_out(image_survey.images, stratify="label", parts=missing), 4)
    lines += [*entry("batch_size", batch, "", 4), *entry("shuffle", True, "", 4), "    transforms:"]
    preparation = _preparation(trunk)
    lines += items([*_transforms(channels, size), *preparation], 6)
    for part, file in declared.items():
        if file is not None:
            lines += [f"  {part}:", "    source: image_folder", f"    path: {flow(relative(file, folder))}"]
            lines += [line for key, value, _ in fields for line in entry(key, value, "", 4)]
            lines += [
                *entry("batch_size", 100, "", 4),
                *entry("transforms", [step for step, _ in preparation], "", 4),
            ]
    if trunk is not None:
        lines += ["", *comment("The weights of the trunk, which stay as they are: `freeze`. Only the head is trained.")]
        lines += [
            "init_from:",
            *(line for key, value in trunk.init_from(folder).items() for line in entry(key, value, "", 2)),
        ]
    patience = patient_epochs(image_survey.images, batch, 6)
    epochs = 30 if image_survey.images > 20_000 else 60 if image_survey.images > 2_000 else max(120, 6 * patience)
    monitor = "accuracy" if patience == 6 else "loss"
    return document([*lines, *training(monitor=monitor, epochs=epochs, patience=patience)])
