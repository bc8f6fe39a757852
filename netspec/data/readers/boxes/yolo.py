"""YOLO's annotations: a text file for each image, with a class number and a box in each line.

https://docs.ultralytics.com/datasets/detect/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netspec.data.files import existing
from netspec.data.readers.boxes.annotated import AnnotatedBox, AnnotatedImage, AnnotationSet, Findings
from netspec.errors import InputError, listing

MAX_BYTES = 2**24
"""Size of the largest text file that is read."""
MAX_CLASSES = 100_000
"""Number of classes without names that are read; a larger class number comes from a damaged file."""
NAME_FILES = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt", "obj.names")
"""Files in the folder of the labels, or above it, that may contain the names of the classes."""


def read_yolo(
    images: Sequence[Path], root: Path, labels: Path, names: Sequence[str] | None, findings: Findings
) -> AnnotationSet:
    """Read the text file of each image, `labels/NAME.txt` for `root/NAME.jpg`. Adds problems to `findings`.

    Each line is `class x y width height`, with the center of the box, as fractions of the image. An image without a
    text file has no boxes. Without `names`, the names of the classes are their numbers.
    """
    annotated_images, highest = [], -1
    for index, image in enumerate(images):
        file = labels / image.relative_to(root).with_suffix(".txt")
        annotated = AnnotatedImage(image, file.name)
        annotated_images.append(annotated)
        if file.is_file():
            highest = max(highest, _add_boxes(file, annotated, index, names, findings))
    return AnnotationSet(annotated_images, tuple(names or map(str, range(highest + 1))), relative=True)


def _add_boxes(file: Path, image: AnnotatedImage, index: int, names: Sequence[str] | None, findings: Findings) -> int:
    """Add the boxes of a text file to its image, or problems. Returns the highest class number."""
    highest = -1
    for number, line in enumerate(_text(file).splitlines(), 1):
        cells, position = line.split(), f"{file.name}:{number}"
        if not cells:
            continue
        try:
            label, (x, y, width, height) = int(cells[0]), map(float, cells[1:])
        except ValueError:
            hint = "lines with more numbers are outlines, not boxes" if len(cells) > 5 else None
            expected = "5 numbers: class, center x, center y, width, height"
            findings.add("a line is not a box", expected, f"`{line[:80]}` at {position}", image=index, hint=hint)
            continue
        classes = MAX_CLASSES if names is None else len(names)
        if not 0 <= label < classes:
            expected = f"0 to {classes - 1:,}" + ("" if names is None else f", for {len(names)} names")
            findings.add("a class number is out of range", expected, f"{label} at {position}", image=index)
            continue
        highest = max(highest, label)
        corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        image.boxes.append(AnnotatedBox(str(label) if names is None else names[label], corners, position))
    return highest


def _text(path: Path) -> str:
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{path} is too large", expected=f"at most {MAX_BYTES:,} bytes")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file", expected="text in UTF-8", got=str(error)) from None


def find_names(folder: Path, top: Path) -> list[str] | None:
    """Return the names of the classes from a file in `folder` or above it, up to `top`; None without such a file."""
    for parent in (folder, *folder.parents):
        for name in NAME_FILES:
            if (parent / name).is_file():
                return read_names(parent / name)
        if parent == top or top not in parent.parents:
            break
    return None


def read_names(path: Path) -> list[str]:
    """Return the names of the classes from a data file (`names:` in YAML) or a text file with one in each line."""
    if path.suffix.lower() not in (".yaml", ".yml"):
        return [line.strip() for line in _text(path).splitlines() if line.strip()]
    names = read_data_file(path).get("names")
    if isinstance(names, Mapping):
        by_number = {str(number): name for number, name in names.items()}
        names = [by_number.get(str(number)) for number in range(len(names))]
    if not isinstance(names, list) or not names or None in names:
        raise InputError(
            f"{path} does not name the classes", expected="`names` with a list, or a name for each number from 0 on"
        )
    return [str(name) for name in names]


def read_data_file(path: Path) -> dict[Any, Any]:
    """Read a data file: `names`, and the folders of the images as `train`, `val` and `test`."""
    from netspec.schema.yaml.reader import read_yaml

    return read_yaml(existing(path))


def folders_of(data_file: Path, part: str) -> tuple[Path, Path]:
    """Return the folders of the images and of the labels of a part that a data file names.

    As in Ultralytics: labels are in the folder `labels` in place of the last `images`.
    """
    data = read_data_file(data_file)
    value = data.get(part)
    if not isinstance(value, str):
        parts = [str(name) for name in ("train", "val", "test") if isinstance(data.get(name), str)]
        raise InputError(
            f"{data_file} does not name a folder for `{part}`", expected=f"one of {listing(parts)}" if parts else None
        )
    root = data.get("path")
    base = data_file.parent / root if isinstance(root, str) and (data_file.parent / root).is_dir() else data_file.parent
    candidates = [base / value, data_file.parent / value, data_file.parent / value.removeprefix("../")]
    images = next((candidate for candidate in candidates if candidate.is_dir()), candidates[0])
    return images, labels_of(images)


def labels_of(images: Path) -> Path:
    """Return the folder of the labels of a folder of images: `labels` in place of the last `images`, or the same."""
    parts = list(images.parts)
    if "images" not in parts:
        return images
    last = len(parts) - 1 - parts[::-1].index("images")
    return Path(*parts[:last], "labels", *parts[last + 1 :])
