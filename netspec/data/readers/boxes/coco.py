"""COCO's annotations: a JSON file with `images`, `categories` and `annotations`.

https://cocodataset.org/#format-data
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from netspec.data.files import existing
from netspec.data.readers.boxes.annotated import (
    AnnotatedBox,
    AnnotatedImage,
    AnnotationSet,
    Findings,
    checked_box,
    checked_text,
)
from netspec.errors import InputError

MAX_BYTES = 2**30
"""Size of the largest file that is read; the annotations of COCO 2017 are half as large."""
SECTIONS = ("images", "categories", "annotations")


def read_coco(path: Path, folder: Path, findings: Findings) -> AnnotationSet:
    """Read an annotation file; the images are in `folder`. Adds problems to `findings`.

    Boxes are `[left, top, width, height]` in pixels. Classes are ordered by the ids of their categories.
    """
    document = _document(path)
    names = _categories(path, document["categories"], findings)
    by_id = _images(path, document["images"], folder, findings)
    for index, entry in enumerate(document["annotations"]):
        _add_box(path, index, entry, by_id, names, findings)
    images = [image for _, image in by_id.values()]
    ids = {names[key]: key for key in sorted(names)}
    return AnnotationSet(images, tuple(ids), ids)


def _document(path: Path) -> dict[str, list[Any]]:
    """Return the content of the file, whose sections are lists."""
    size = existing(path).stat().st_size
    if size > MAX_BYTES:
        raise InputError(f"{path} is too large", expected=f"at most {MAX_BYTES:,} bytes", got=f"{size:,} bytes")
    try:
        document = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{error.lineno}:{error.colno}: not valid JSON", expected="a file of COCO annotations", got=error.msg
        ) from None
    except RecursionError:
        raise InputError(f"{path} is nested too deeply", expected="a file of COCO annotations") from None
    sections: dict[str, Any] = {name: document.get(name) for name in SECTIONS} if isinstance(document, dict) else {}
    missing = [name for name in SECTIONS if not isinstance(sections.get(name), list)]
    if missing:
        raise InputError(
            f"{path} is not a file of COCO annotations",
            expected=f"an object with the lists {', '.join(f'`{name}`' for name in SECTIONS)}",
            got=f"no list {', '.join(f'`{name}`' for name in missing)}",
        )
    return sections


def _categories(path: Path, entries: list[Any], findings: Findings) -> dict[int, str]:
    names: dict[int, str] = {}
    for index, entry in enumerate(entries):
        key, name = _id_of(entry), checked_text(entry.get("name")) if isinstance(entry, dict) else None
        position = f"{path.name}: categories[{index}]"
        if key is None or name is None:
            findings.add("a category is incomplete", "an integer `id` and a `name`", position)
        elif key in names or name in names.values():
            findings.add(
                "a category is declared twice", "each id and each name once", f"{name} (id {key}) in {position}"
            )
        else:
            names[key] = name
    return names


def _images(path: Path, entries: list[Any], folder: Path, findings: Findings) -> dict[int, tuple[int, AnnotatedImage]]:
    """Return the index and the image for each id of `images`."""
    by_id: dict[int, tuple[int, AnnotatedImage]] = {}
    for index, entry in enumerate(entries):
        key, name = _id_of(entry), checked_text(entry.get("file_name")) if isinstance(entry, dict) else None
        position = f"{path.name}: images[{index}]"
        if key is None or name is None:
            findings.add("an image is incomplete", "an integer `id` and a `file_name`", position)
        elif key in by_id:
            findings.add("an image id is used twice", "each id once", f"id {key} in {position}")
        else:
            by_id[key] = len(by_id), AnnotatedImage(folder / name, f"{position} (id {key})")
    return by_id


def _id_of(entry: Any) -> int | None:
    key = entry.get("id") if isinstance(entry, dict) else None
    return key if isinstance(key, int) and not isinstance(key, bool) else None


def _add_box(
    path: Path, index: int, entry: Any, by_id: dict[int, tuple[int, AnnotatedImage]], names: dict[int, str],
    findings: Findings,
) -> None:  # fmt: skip
    """Add a box to its image, or a problem."""
    entry = entry if isinstance(entry, dict) else {}
    position = f"{path.name}: annotations[{index}] (id {entry.get('id')})"
    box = checked_box(entry.get("bbox"))
    indexed_image = by_id.get(entry["image_id"]) if isinstance(entry.get("image_id"), int) else None
    if indexed_image is None:
        findings.add("an annotation belongs to no image", "an `image_id` of `images`",
                     f"{entry.get('image_id')} at {position}")  # fmt: skip
        return
    row, image = indexed_image
    name = names.get(entry["category_id"]) if isinstance(entry.get("category_id"), int) else None
    if name is None:
        findings.add("an annotation has an unknown category", "a `category_id` of `categories`",
                     f"{entry.get('category_id')} at {position}", image=row)  # fmt: skip
    elif box is None:
        findings.add("an annotation has no valid `bbox`", "[left, top, width, height] in pixels",
                     f"{entry.get('bbox')} at {position}", image=row)  # fmt: skip
    else:
        left, top, width, height = box
        corners = (left, top, left + width, top + height)
        image.boxes.append(AnnotatedBox(name, corners, position, entry.get("iscrowd") == 1))
