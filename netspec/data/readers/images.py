"""Image files through Pillow: a folder of class folders as a dataset, decoded batch by batch."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from netspec.data.base import DamagedSamples, Dataset, FieldType
from netspec.data.files import existing, fingerprint
from netspec.errors import InputError, Problem, did_you_mean, listing

if TYPE_CHECKING:
    from netspec.data.base import Array

FORMATS = ("JPEG", "PNG", "WEBP", "BMP")
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})
MAX_PIXELS = 2**26
"""A bound on width × height: a small file may claim to hold an image that fills the memory."""

_ORIENTATION = 0x0112  # the EXIF tag; 5 to 8 are the orientations that lie on their side
_MODES = {1: "L", 3: "RGB"}


class ImageFolderDataset(Dataset):
    """The images below `root`, one folder a class; see the source of this name for the meaning of the arguments."""

    def __init__(
        self,
        root: Path,
        *,
        size: tuple[int, int] | None,
        channels: int,
        interpolation: str,
        classes: Sequence[str] | None,
    ) -> None:
        self._root = existing(root, folder=True)
        names = _class_names(root, classes)
        self._files: list[Path] = []
        labels: list[int] = []
        for label, name in enumerate(names):
            files = _image_files(root / name)
            self._files += files
            labels += [label] * len(files)
        _check_not_empty(root, names, labels, declared=classes is not None)
        self._labels = np.array(labels, np.int32)
        self._channels = channels
        self._interpolation = Image.Resampling[interpolation.upper()]
        self._size = size or _common_size(self._files)
        self.classes = {"label": tuple(names)}
        self.fields = {
            "image": FieldType((channels, *self._size), "uint8"),
            "label": FieldType((), "int32"),
        }
        # Names and sizes, not contents: reading every file would take longer than many a training step.
        listed = [f"{file.relative_to(root).as_posix()}:{file.stat().st_size}" for file in self._files]
        self.digest = fingerprint(*names, *listed)

    def __len__(self) -> int:
        return len(self._files)

    def read(self, indices: Array) -> dict[str, Array]:
        """The images at `indices`, decoded. Raises DamagedSamples with every one that is damaged."""
        images = np.empty((len(indices), self._channels, *self._size), np.uint8)
        damaged: dict[int, tuple[Problem, ...]] = {}
        for row, index in enumerate(indices):
            try:
                images[row] = self._decode(self._files[index])
            except InputError as error:
                damaged[row] = error.problems
        if damaged:
            raise DamagedSamples(damaged)
        return {"image": images, "label": self._labels[indices]}

    def describe(self, index: int) -> str:
        """The path of a sample's file."""
        return str(self._files[index])

    def _decode(self, path: Path) -> Array:
        """One image, (channels, H, W) of uint8."""
        height, width = self._size
        try:
            with _opened(path) as file:
                image = _eight_bit(ImageOps.exif_transpose(file), _MODES[self._channels])
                if image.size != (width, height):
                    image = image.resize((width, height), self._interpolation)
                pixels = np.asarray(image)
        except InputError:
            raise
        except Exception as error:  # Pillow's decoders raise anything at all on damaged files
            raise _damaged(path, error) from None
        return pixels[np.newaxis] if self._channels == 1 else pixels.transpose(2, 0, 1)


def _opened(path: Path) -> Image.Image:
    """The image with its header read and its size checked; pixels are not decoded yet."""
    existing(path)  # a pipe would be waited for
    try:
        image = Image.open(path, formats=FORMATS)
        width, height = image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large(path, str(error)) from None
    except Exception as error:
        raise _damaged(path, error) from None
    if width * height > MAX_PIXELS:
        image.close()
        raise _too_large(path, f"{width} × {height} pixels")
    return image


def _too_large(path: Path, got: str) -> InputError:
    return InputError(f"image {path} is too large", expected=f"at most {MAX_PIXELS:,} pixels", got=got)


def _damaged(path: Path, error: Exception) -> InputError:
    unknown = isinstance(error, UnidentifiedImageError)
    return InputError(
        f"image {path} cannot be read",
        expected=f"an intact {', '.join(FORMATS[:-1])} or {FORMATS[-1]} image",
        got="a file of another kind, or a damaged one" if unknown else str(error) or type(error).__name__,
    )


def _eight_bit(image: Image.Image, mode: str) -> Image.Image:
    """The image in the mode asked for; 16-bit grey keeps its upper eight bits, where Pillow would clip."""
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode == "P":
        image = image.convert("RGBA")  # straight to RGB, Pillow warns of the transparency that is dropped
    return image if image.mode == mode else image.convert(mode)


def _upright_size(path: Path) -> tuple[int, int]:
    """Height and width as the image is meant to be seen."""
    with _opened(path) as image:
        width, height = image.size
        try:
            # The tag of a PNG may stand after the pixels, which are then decoded: not where it makes no difference.
            on_its_side = width != height and image.getexif().get(_ORIENTATION, 1) >= 5
        except Exception as error:
            raise _damaged(path, error) from None
    return (width, height) if on_its_side else (height, width)


def _common_size(files: Sequence[Path]) -> tuple[int, int]:
    """Height and width of all the files, from their headers. Raises InputError if they differ."""
    sizes: Counter[tuple[int, int]] = Counter()
    example: dict[tuple[int, int], Path] = {}
    problems: list[Problem] = []
    for path in files:
        try:
            size = _upright_size(path)
        except InputError as error:
            problems += error.problems
            continue
        sizes[size] += 1
        example.setdefault(size, path)
    if problems:
        raise InputError(problems)
    if len(sizes) > 1:
        some = [f"{height} × {width} in {example[height, width].name}" for (height, width), _ in sizes.most_common(3)]
        raise InputError(
            "the images differ in size",
            expected="`size: [height, width]` that they are all resized to",
            got=f"{len(sizes)} sizes (height × width): {', '.join(some)}{', …' if len(sizes) > 3 else ''}",
            hint="add for example `size: [{}, {}]`".format(*sizes.most_common(1)[0][0]),
        )
    return next(iter(sizes))


def _class_names(root: Path, declared: Sequence[str] | None) -> list[str]:
    found = sorted(item.name for item in root.iterdir() if item.is_dir() and not item.name.startswith("."))
    if declared is None:
        if not found:
            raise InputError(f"{root} holds no class folders", expected="one folder of images for each class")
        return found
    unknown = [
        Problem(
            f"folder `{name}` of {root} is not among the declared classes",
            expected=f"one of {listing(declared)}",
            hint=did_you_mean(name, declared),
        )
        for name in found
        if name not in declared
    ]
    if unknown:
        raise InputError(unknown)
    return list(declared)


def _image_files(folder: Path) -> list[Path]:
    """All image files below a class folder, sorted by path."""
    files: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [
            Path(parent, name) for name in names if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
        ]
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())


def _check_not_empty(root: Path, names: Sequence[str], labels: Sequence[int], *, declared: bool) -> None:
    """A class folder without an image is most likely a mistake, unless the class was declared."""
    present = set(labels)
    empty = [name for label, name in enumerate(names) if label not in present]
    if present and (declared or not empty):
        return
    raise InputError(
        [
            Problem(
                f"class folder {root / name} holds no image",
                expected=f"files that end in {listing(sorted(SUFFIXES))}",
                hint="declare `classes` if a class may be without images" if present else None,
            )
            for name in empty
        ]
    )
