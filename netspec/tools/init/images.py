"""Images of classes, in folders or a list: a survey of their files, and a small convolutional net."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import median
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from netspec.data.file_kinds import IMAGES
from netspec.errors import InputError, counted, listing
from netspec.schema.yaml.flow_style import flow
from netspec.tools.init.class_folders import (
    NO_LISTS,
    ClassFiles,
    class_files,
    rare_class_warnings,
    split_entry,
    training_folder,
)
from netspec.tools.init.convolutions import convolution_stages
from netspec.tools.init.files import (
    Duplicates,
    Files,
    class_losses,
    comment,
    document,
    entries,
    entry,
    explained_entries,
    items,
    most_epochs,
    patient_epochs,
    training,
)
from netspec.tools.init.lists import listed_class_files
from netspec.tools.init.project import Project
from netspec.tools.init.search_space import DROPOUT, SearchSpace
from netspec.tools.init.trunk import IMAGENET, SCALING, Trunk, head, trunk_in

if TYPE_CHECKING:
    from PIL import Image

MAX_OPENED, MAX_BYTES = 1_000, 2**27
"""Limits of the sample that is opened: files and bytes, which take some seconds."""
SIDES = (28, 32, 48, 64, 96, 128)
"""Sides to which images are resized."""
MIN_IMAGES_PER_CLASS = 20
"""A class of fewer images than this is reported."""


@dataclass
class ImageSample:
    """Findings about some of the images, which were opened."""

    opened: int = 0
    sizes: list[tuple[int, int]] = field(default_factory=list)
    """Height and width of each image that can be read."""
    gray: bool = True
    unreadable: list[str] = field(default_factory=list)
    duplicates: Duplicates = field(default_factory=lambda: Duplicates("images"))

    def add(self, image: Image.Image) -> None:
        """Add the size and the colors of an image."""
        self.sizes.append((image.height, image.width))
        self.gray &= image.mode in ("L", "1", "I;16", "LA")

    def unreadable_warnings(self, noun: str) -> list[str]:
        """Return a warning about files that cannot be read, or none."""
        count = len(self.unreadable)
        out = f"cannot be read and {'is' if count == 1 else 'are'} left out: {listing(self.unreadable, 3)}"
        return [f"{count:,} of {self.opened:,} {noun} that were opened {out}"] * bool(count)

    @property
    def summary(self) -> str:
        """The range of sizes, as a finding."""
        heights, widths = ([size[axis] for size in self.sizes] for axis in (0, 1))
        least, most = (f"{of(heights)} × {of(widths)}" for of in (min, max)) if self.sizes else ("unknown",) * 2
        spans = least if least == most else f"{least} to {most}"
        kind = "gray" if self.gray else "color"
        return f"{kind} images, {spans} pixels (height × width), in a sample of {self.opened:,}"


@dataclass(frozen=True)
class ImageSurvey:
    """The images in class folders, and findings about a sample of them."""

    files: ClassFiles
    sample: ImageSample


def survey(path: Path, lists: Mapping[str, Path] = NO_LISTS) -> ImageSurvey:
    """Find the images of each class, and open some, spread over all classes. Raises `InputError` for one class."""
    files = listed_class_files(lists, IMAGES) if lists else class_files(training_folder(path), IMAGES)
    return ImageSurvey(files, open_sample(files.sample(MAX_OPENED), files.class_of))


def open_sample(files: list[Path], class_of: Callable[[Path], str | None] = lambda _: None) -> ImageSample:
    """Open images until a limit is reached, and return findings about them. `class_of` returns the class of a file."""
    from PIL import Image, UnidentifiedImageError

    from netspec.data.readers.decode import check_range

    result = ImageSample()
    read = 0
    for file in sorted(files, key=lambda file: sha256(str(file).encode()).digest())[:MAX_OPENED]:
        if read > MAX_BYTES:
            break
        result.opened += 1
        try:
            content = file.read_bytes() if file.stat().st_size <= MAX_BYTES else b""
            with Image.open(file) as image:
                check_range(image, str(file))
                result.add(image)
                if content:
                    image.load()
        except InputError as error:
            result.unreadable.append(f"{file} ({error.problems[0].message.removeprefix(f'image {file} ')})")
            continue
        except UnidentifiedImageError:
            result.unreadable.append(f"{file} (not an image)")
            continue
        except Exception as error:  # Pillow raises any class for a damaged file
            result.unreadable.append(f"{file} ({shorten(str(error), 60, placeholder=' …')})")
            continue
        read += len(content)
        if content:
            result.duplicates.add(sha256(content).digest(), str(file), class_of(file))
    return result


def side_of(image_survey: ImageSurvey) -> int:
    """Return the side to which images are resized: close to that of the images, at most 64 or 96 for many images."""
    sizes = image_survey.sample.sizes
    side = median(min(size) for size in sizes) if sizes else 64
    most = 96 if image_survey.files.total > 20_000 else 64
    return min((candidate for candidate in SIDES if candidate <= most), key=lambda candidate: abs(candidate - side))


def image_files(project: Project, trunk_path: Path | None = None, lists: Mapping[str, Path] = NO_LISTS) -> Files:
    """Return the files for images in class folders or `lists`: for a net on a trunk, or for a small net of its own."""
    image_survey = survey(project.data, lists)
    trunk = None if trunk_path is None else trunk_in(trunk_path, project.folder)
    sizes = image_survey.sample.sizes
    side = side_of(image_survey)
    size = sizes[0] if len(set(sizes)) == 1 and max(sizes[0]) <= 96 else (side, side)
    channels = 1 if image_survey.sample.gray else 3
    files = Files("image classification", "", "", *_findings(image_survey))
    if trunk is not None:
        size, channels = trunk.size, trunk.channels
        files.findings.append(
            f"trunk `{trunk.name}`: {trunk.layers} layers, for images of {' × '.join(map(str, size))}"
        )
        if conversion := trunk.describe_color_conversion(gray=image_survey.sample.gray):
            files.warnings.append(conversion)
        if other_task := trunk.describe_other_task():
            files.warnings.append(other_task)
        if not trunk.preparation_known:
            files.warnings.append(
                "the trunk does not say how its images were prepared; see `transforms` in the training file"
            )
        files.net = _net_on_trunk(project, trunk, image_survey)
    else:
        files.net = _net(project, size, channels, image_survey)
    files.train = _train(project, size, channels, image_survey, trunk)
    return files


def _findings(image_survey: ImageSurvey) -> tuple[list[str], list[str]]:
    files, sample, counts = image_survey.files, image_survey.sample, image_survey.files.counts
    warnings = [*files.nested_warnings(), *files.other_warnings()]
    warnings += rare_class_warnings(counts, MIN_IMAGES_PER_CLASS, "images")
    if max(counts.values()) > 10 * min(filter(None, counts.values())):
        warnings.append("the largest class has over ten times as many images as the smallest one")
    warnings += [*sample.unreadable_warnings("images"), *sample.duplicates.warnings()]
    findings = [files.summary, sample.summary]
    if sample.opened < files.total:
        others = counted(files.total - sample.opened, "other image")
        findings.append(f"{others}: not searched for damaged files and duplicates")
    return findings, warnings


def _head(side: int, space: SearchSpace) -> list[tuple[dict[str, Any], str]]:
    """Return the layers between the last stage, whose images have this side, and the outputs."""
    dropout = {"type": "Dropout", "rate": space.net_variable("dropout", 0.3, DROPOUT, "share of values set to 0")}
    if side > 7:
        why = "position in the image matters little, and this needs no parameters"
        return [({"type": "GlobalAveragePooling2D"}, why), (dropout, "against overfitting")]
    return [
        ({"type": "Flatten"}, ""),
        (dropout, "against overfitting"),
        (
            {"type": "Dense", "units": 128, "activation": "relu"},
            f"keeps the position in the image, one of {side} × {side}",
        ),
    ]


def _net(project: Project, size: tuple[int, int], channels: int, image_survey: ImageSurvey) -> str:
    blocks, side = 0, min(size)
    while side >= 8 and blocks < 4:
        blocks, side = blocks + 1, side // 2
    blocks = max(blocks, 1)
    widest = 128 if image_survey.files.total < 20_000 else 256
    widths = [min(32 * 2**number, widest) for number in range(blocks)]
    classes = len(image_survey.files.by_class)
    logits = {"name": "logits", "type": "Dense", "units": classes}
    stages = convolution_stages(widths, blocks, 2, project.space)
    layers = items([*_head(side, project.space), (logits, "one output for each class")], 2)
    return document([
        *project.net_head(f"A small convolutional net for {classes} classes of images."),
        *entry("image", {"shape": [channels, *size]}, "channels, height, width", 2),
        *entry("label", {"shape": [], "dtype": "int32"}, "", 2),
        *stages,
        *layers,
        *class_losses(),
    ])  # fmt: skip


def _net_on_trunk(project: Project, trunk: Trunk, image_survey: ImageSurvey) -> str:
    classes = len(image_survey.files.by_class)
    layers = [({"type": "Permute", "dims": [2, 3, 1]}, "the trunk takes rows, columns, channels")] * trunk.channels_last
    layers.append(({"name": "trunk", "type": "trunk"}, "its weights: `init_from` in the training file"))
    layers += head(trunk, classes, project.space.net_variable("dropout", 0.3, DROPOUT, "share of values set to 0"))
    lines = [
        *project.net_head(f"A trained trunk with a new head for {classes} classes of images."),
        *entry(
            "image", {"shape": [trunk.channels, *trunk.size]}, "channels, height, width: as the trunk needs them", 2
        ),
        *entry("label", {"shape": [], "dtype": "int32"}, "", 2),
        "blocks:",
        *entry("trunk", trunk.block(project.folder), "the layers of the trained net, without its head", 2),
        "layers:",
        *items(layers, 2),
        *class_losses(),
    ]
    return document(lines)


def _transforms(channels: int, size: tuple[int, int], space: SearchSpace) -> list[tuple[dict[str, Any], str]]:
    pixels = max(1, round(min(size) * 0.07))
    shift = space.variable("shift", pixels, {"low": 0, "high": 3 * pixels}, "largest shift of an image, in pixels")
    crop = {"type": "RandomCrop", "height": size[0], "width": size[1], "padding": shift}
    steps: list[tuple[dict[str, Any], str]] = [(crop, f"shift by up to {shift} pixels, at random, in training only")]
    if channels == 3:
        steps.append(({"type": "RandomFlip", "mode": "horizontal"}, "remove it if left and right matter, as in text"))
    if space.searched:
        why = "probability that a part of an image is erased"
        probability = space.variable("erasing", 0.0, {"low": 0.0, "high": 0.6}, why)
        erasing = {"type": "RandomErasing", "factor": [probability, probability], "fill_value": 0}
        steps.append((erasing, "a random rectangle, in training only"))
    return steps


def _preparation(trunk: Trunk | None) -> list[tuple[dict[str, Any], str]]:
    """Return the transforms of all splits: those between bytes and the input of the net."""
    if trunk is None:
        return [({"type": "Rescaling", "scale": 1 / 255}, "pixels are 0 to 255")]
    why = (
        "as for the trunk"
        if trunk.preparation_known
        else (
            "a guess: the trunk does not say how its images were prepared. Others are common: "
            + "; ".join(flow(list(steps)) for steps in (SCALING, IMAGENET) if steps != trunk.preparation)
        )
    )
    return [(step, why if index == 0 else "") for index, step in enumerate(trunk.preparation)]


def _train(
    project: Project, size: tuple[int, int], channels: int, image_survey: ImageSurvey, trunk: Trunk | None
) -> str:
    files, sample = image_survey.files, image_survey.sample
    fields = files.location(project.folder)
    same = set(sample.sizes) == {size}
    why = "that of all images; others are resized to it" if same else "larger is slower, and may be better"
    why = why if trunk is None else "those of the trunk"
    fields.append(("size", list(size), f"height and width: {why}"))
    conversion = "" if trunk is None else trunk.describe_color_conversion(gray=sample.gray)
    if channels == 1:
        why = "all images of the sample are gray" if trunk is None else "the trunk takes gray images"
        fields.append(("channels", 1, conversion or why))
    elif conversion:
        fields.append(("channels", 3, conversion))
    fields += files.on_error_field(sample.unreadable)
    batch = 64 if files.total > 2_000 else 32
    augmentation = _transforms(channels, size, project.space)
    lines = [
        *project.train_head(f"on the images in {project.location}"),
        *entry("source", "image_folder", "", 4),
        *explained_entries(fields, 4),
    ]
    lines += split_entry(project.data, files.total, stratify="label", files=files)
    lines += [*entry("batch_size", batch, "", 4), *entry("shuffle", True, "", 4), "    transforms:"]
    preparation = _preparation(trunk)
    lines += items([*augmentation, *preparation], 6)
    steps = [step for step, _ in preparation]
    lines += project.stored_splits("image_folder", fields, 100, steps, files.lists)
    if trunk is not None:
        reasons = {"freeze": "these weights stay as they are: only the head is trained"}
        lines += ["", *comment("The weights of the trunk.")]
        lines += ["init_from:", *entries(trunk.init_from(project.folder), 2, reasons)]
    patience = patient_epochs(files.total, batch, 6)
    monitor = "accuracy" if patience == 6 else "loss"
    epochs = most_epochs(files.total, patience)
    return document([*lines, *training(monitor=monitor, epochs=epochs, patience=patience, space=project.space)])
