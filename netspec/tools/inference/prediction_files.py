"""Files of predictions, by suffix: CSV, JSON lines and Parquet with answers, .npz with the outputs as arrays, …

All but .npz are written batch by batch, so that their memory does not grow with the number of samples.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.errors import InputError, Problem, listing
from netspec.exchange.files import is_folder_path, write_atomically, write_text_atomically
from netspec.exchange.formats.native.npz import write_npz
from netspec.schema.plain_json import json_text
from netspec.training.inference.decoding import BOX_EDGES, Column
from netspec.training.inference.model import concatenated
from netspec.training.inference.predict_files import InputNotes, TableFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image


@dataclass(frozen=True)
class AnsweredBatch:
    """Answers for consecutive samples, and the outputs that they come from."""

    columns: dict[str, Column]
    """The samples' files or rows, the answers, and the row's own columns if requested: a value for each sample."""
    outputs: dict[str, NDArray[Any]]
    """Arrays (N, …) by the names of the outputs."""
    classes: tuple[str, ...] = ()
    """Names of the classes, if the answers are about classes with names."""
    category_ids: tuple[int, ...] = ()
    """Ids of the classes in the annotations of the data, if they have any."""
    notes: InputNotes = field(default_factory=InputNotes)
    """Notes about the table or the files of the samples, in the first batch of these."""
    unknown_texts: tuple[str, ...] = ()
    """The samples whose texts have no token of the vocabulary: `reviews/1.txt` or `row 3`."""
    partly_unknown_texts: tuple[str, ...] = ()
    """The other source texts of an encoder-decoder net that have tokens outside the vocabulary: `row 4`."""
    unreadable: tuple[Problem, ...] = ()
    """Problems of files around these samples that were left out, one for each."""
    texts: Mapping[str, Column] = field(default_factory=dict)
    """The row's own columns as texts, as in their file."""
    format: TableFormat = field(default_factory=TableFormat)
    """The format of the table that has these columns."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the answers of each sample."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def table(self) -> dict[str, Column]:
        """Return the columns of a table: with a row for each box of a detector, for each sample otherwise."""
        if "boxes" not in self.columns:
            return self.columns
        others = [name for name in self.columns if name != "boxes"]
        rows = [{**{name: row[name] for name in others}, **box} for row in self.rows() for box in row["boxes"]]
        return {name: [row[name] for row in rows] for name in (*others, "class", "score", *BOX_EDGES)}

    def text_table(self) -> dict[str, Column]:
        """Return the columns of a table of texts, in which the row's own columns are as in their file."""
        return {**self.table(), **self.texts}


def write_answers(path: Path, batches: Iterable[AnsweredBatch]) -> None:
    """Write predictions to a file in the format of its suffix, or masks or boxes as PNG files to a folder.

    Raises `InputError` for an unknown suffix.
    """
    check_output(path)
    if is_folder_path(path):
        _write_images(path, batches)
    elif path.suffix.lower() == ".npz":
        write_npz(path, concatenated([batch.outputs for batch in batches]))
    else:
        write_atomically(path, lambda temporary: WRITERS[path.suffix.lower()](temporary, batches))


def check_output(path: Path) -> None:
    """Raise `InputError` if predictions cannot be written to a file of this name."""
    if not is_folder_path(path) and path.suffix.lower() not in (*WRITERS, ".npz"):
        raise InputError(
            f"predictions cannot be written as {path.suffix}",
            expected=f"a file name that ends in {listing([*WRITERS, '.npz'])}, or a folder for masks and boxes",
            got=str(path),
        )


def _write_csv(path: Path, batches: Iterable[AnsweredBatch]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        for number, batch in enumerate(batches):
            columns, cell = batch.text_table(), partial(_cell, batch.format.decimal)
            writer = csv.writer(file, delimiter=batch.format.delimiter, lineterminator="\n")
            if not number:
                writer.writerow(columns)
            writer.writerows(zip(*(map(cell, values) for values in columns.values()), strict=True))


def _cell(decimal: str, value: Any) -> Any:
    """Return a value as a cell of a text table: lists and arrays as JSON."""
    if isinstance(value, float):
        return str(value).replace(".", decimal)
    return json_text(_plain(value)) if isinstance(value, (list, dict, np.ndarray)) else value


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _json_value(value: Any) -> Any:
    """Return a value as JSON has it: dates as texts."""
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, date) else _plain(value)


def _write_json_lines(path: Path, batches: Iterable[AnsweredBatch]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in batches:
            file.writelines(f"{answer_json(row)}\n" for row in batch.rows())


def answer_json(row: Mapping[str, Any]) -> str:
    """Return the answers of a sample as one line of JSON."""
    return json_text({name: _json_value(value) for name, value in row.items()})


def _write_parquet(path: Path, batches: Iterable[AnsweredBatch]) -> None:
    from netspec.data.tabular.parquet import write_parquet

    batches = iter(batches)
    first = next(batches, None)
    if first is not None:
        write_parquet(path, _tables(chain([first], batches)), first.format.types, first.format.metadata)


def _tables(batches: Iterable[AnsweredBatch]) -> Iterator[dict[str, Column]]:
    """Yield the tables of batches that have rows, or one table without rows."""
    empty: dict[str, Column] | None = None
    for batch in batches:
        table = {name: [*map(_plain, values)] for name, values in batch.table().items()}
        if any(table.values()):
            empty = None
            yield table
        elif empty is None:
            empty = table
    if empty is not None:
        yield empty


def _write_coco_results(path: Path, batches: Iterable[AnsweredBatch]) -> None:
    """Write boxes as a list of COCO results, which pycocotools reads. https://cocodataset.org/#format-results

    The id of an image is the number that is the name of its file, or else the name. That of a class is the one in the
    annotations of the training data, or else its number, from 1.
    """
    with path.open("w", encoding="utf-8") as file:
        separator = "["
        for batch in batches:
            _column("COCO results contain boxes only", batch, "boxes")
            ids = dict(zip(batch.classes, batch.category_ids or range(1, len(batch.classes) + 1), strict=True))
            for row in batch.rows():
                for box in row["boxes"]:
                    file.write(f"{separator}\n{json_text(_coco_result(row, box, ids))}")
                    separator = ","
        file.write("\n]\n" if separator == "," else "[]\n")


def _coco_result(row: Mapping[str, Any], box: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, Any]:
    left, top, right, bottom = (box[edge] for edge in BOX_EDGES)
    name = Path(row["file"]).stem if "file" in row else str(row["row"])
    return {
        "image_id": int(name) if name.isascii() and name.isdigit() else name,
        "category_id": ids.get(box["class"], box["class"]),
        "bbox": [left, top, round(right - left, 2), round(bottom - top, 2)],
        "score": box["score"],
    }


def _column(problem: str, batch: AnsweredBatch, *names: str) -> str:
    """Return the first of these columns that the answers have. Raises `InputError` if they have none of them."""
    column = next((name for name in names if name in batch.columns), None)
    if column is None:
        others = [suffix for suffix in (*WRITERS, ".npz") if suffix != ".json"]
        raise InputError(
            problem, expected=f"a file name that ends in {listing(others)}",
            got=f"predictions with the columns {listing(list(batch.columns))}",
        )  # fmt: skip
    return column


def _write_images(folder: Path, batches: Iterable[AnsweredBatch]) -> None:
    """Write a PNG for each sample: a mask with a palette, whose pixels are class indices, or the image with boxes.

    It has the name of the sample's file, `FOLDER/NAME.png`; `classes.txt` names the classes of masks. Raises
    `InputError` if two have the same name.
    """
    written: dict[str, str] = {}
    for batch in batches:
        column = _column(f"{folder} is a folder, which only masks and boxes are written to", batch, "mask", "boxes")
        folder.mkdir(parents=True, exist_ok=True)
        if batch.classes and column == "mask" and not written:
            names_file = "".join(f"{name}\n" for name in batch.classes)
            write_text_atomically(folder / "classes.txt", names_file)
        names = batch.columns.get("file") or batch.columns["row"]
        for name, answer in zip(map(str, names), batch.columns[column], strict=True):
            file = f"{Path(name).stem}.png"
            if file in written:
                raise InputError(
                    f"two images would be written to {folder / file}", expected="images with different names",
                    got=f"{written[file]} and {name}",
                )  # fmt: skip
            written[file] = name
            image = _mask_image(answer) if column == "mask" else _image_with_boxes(name, answer, batch.classes)
            write_atomically(folder / file, partial(image.save, format="PNG"))


def _mask_image(mask: NDArray[Any]) -> Image.Image:
    from PIL import Image

    from netspec.data.imaging.palette import class_colors

    image = Image.fromarray(mask.astype(np.uint8), mode="P")
    image.putpalette(class_colors().ravel().tolist())
    return image


def _image_with_boxes(name: str, boxes: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> Image.Image:
    """Return the image in a file with its boxes, each labeled with its class and score."""
    if not Path(name).is_file():
        raise InputError("boxes can only be drawn on images in files", expected="files as --input", got=name)
    from netspec.data.imaging.box_drawing import with_boxes
    from netspec.data.readers.decode import ImageDecoder

    image = ImageDecoder(3, None, "bilinear").read_pillow(Path(name), name).pillow()
    labels = [f"{box['class']} {box['score']:.0%}" for box in boxes]
    numbers = [classes.index(box["class"]) if box["class"] in classes else int(box["class"]) for box in boxes]
    return with_boxes(image, [tuple(box[edge] for edge in BOX_EDGES) for box in boxes], numbers, labels)


WRITERS: dict[str, Callable[[Path, Iterable[AnsweredBatch]], None]] = {
    ".csv": _write_csv,
    ".json": _write_coco_results,
    ".jsonl": _write_json_lines,
    ".parquet": _write_parquet,
}
"""The formats of answers, by suffix."""
