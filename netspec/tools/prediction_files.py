"""Files of predictions, by suffix: CSV, JSON lines and Parquet with answers, .npz with the outputs as arrays.

All but .npz are written batch by batch, so that their memory does not grow with the number of samples.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.errors import InputError, listing
from netspec.exchange.files import write_atomically
from netspec.exchange.formats.native.npz import write_npz
from netspec.schema.plain_json import json_text
from netspec.training.decoding import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class AnsweredBatch:
    """Answers for consecutive samples, and the outputs that they come from."""

    columns: dict[str, Column]
    """The samples' files or rows, the answers, and the row's own columns if requested: a value for each sample."""
    outputs: dict[str, NDArray[Any]]
    """Arrays (N, …) by the names of the outputs."""
    classes: tuple[str, ...] = ()
    """Names of the classes, if the answers are about classes with names."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the answers of each sample."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))


def write_answers(path: Path, batches: Iterable[AnsweredBatch]) -> None:
    """Write predictions to a file in the format of its suffix, or masks as PNG files to a folder.

    Raises `InputError` for an unknown suffix.
    """
    check_output(path)
    if is_folder(path):
        _write_masks(path, batches)
    elif path.suffix.lower() == ".npz":
        write_npz(path, _joined(batches))
    else:
        write_atomically(path, lambda temporary: WRITERS[path.suffix.lower()](temporary, batches))


def is_folder(path: Path) -> bool:
    """Return whether an output path means a folder: it is one, or its name has no suffix."""
    return path.is_dir() or not path.suffix


def check_output(path: Path) -> None:
    """Raise `InputError` if predictions cannot be written to a file of this name."""
    if not is_folder(path) and path.suffix.lower() not in (*WRITERS, ".npz"):
        raise InputError(
            f"predictions cannot be written as {path.suffix}",
            expected=f"a file name that ends in {listing([*WRITERS, '.npz'])}, or a folder for masks",
            got=str(path),
        )


def _joined(batches: Iterable[AnsweredBatch]) -> dict[str, NDArray[Any]]:
    outputs = [batch.outputs for batch in batches]
    return {name: np.concatenate([part[name] for part in outputs]) for name in outputs[0]}


def _write_csv(path: Path, batches: Iterable[AnsweredBatch]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, batch in enumerate(batches):
            if not number:
                writer.writerow(batch.columns)
            writer.writerows(zip(*(map(_cell, values) for values in batch.columns.values()), strict=True))


def _cell(value: Any) -> Any:
    """Return a value as a cell of a text table: lists and arrays as JSON."""
    return json_text(_plain(value)) if isinstance(value, (list, dict, np.ndarray)) else value


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _write_json_lines(path: Path, batches: Iterable[AnsweredBatch]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in batches:
            file.writelines(f"{answer_json(row)}\n" for row in batch.rows())


def answer_json(row: Mapping[str, Any]) -> str:
    """Return the answers of a sample as one line of JSON."""
    return json_text({name: _plain(value) for name, value in row.items()})


def _write_parquet(path: Path, batches: Iterable[AnsweredBatch]) -> None:
    from netspec.data.tabular.parquet import write_parquet

    write_parquet(path, ({name: [*map(_plain, values)] for name, values in batch.columns.items()} for batch in batches))


def _write_masks(folder: Path, batches: Iterable[AnsweredBatch]) -> None:
    """Write each mask as a PNG with a palette, whose pixels are class indices, and the classes to `classes.txt`.

    A mask has the name of its picture, `FOLDER/NAME.png`. Raises `InputError` if two have the same.
    """
    written: dict[str, str] = {}
    for batch in batches:
        masks = batch.columns.get("mask")
        if masks is None:
            raise InputError(
                f"{folder} is a folder, which only masks are written to",
                expected=f"a file name that ends in {listing([*WRITERS, '.npz'])}",
                got=f"predictions with the columns {listing(list(batch.columns))}",
            )
        folder.mkdir(parents=True, exist_ok=True)
        if batch.classes and not written:
            names_file = "".join(f"{name}\n" for name in batch.classes)
            write_atomically(folder / "classes.txt", lambda path, text=names_file: _write_text(path, text))  # type: ignore[misc]  # mypy infers no type of a lambda's default
        names = batch.columns.get("file") or batch.columns["row"]
        for name, mask in zip(map(str, names), masks, strict=True):
            file = f"{Path(name).stem}.png"
            if file in written:
                raise InputError(
                    f"two masks would be written to {folder / file}", expected="pictures with different names",
                    got=f"{written[file]} and {name}",
                )  # fmt: skip
            written[file] = name
            write_atomically(folder / file, _mask_writer(mask))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _mask_writer(mask: NDArray[Any]) -> Callable[[Path], None]:
    from PIL import Image

    from netspec.data.imaging.palette import class_colors

    image = Image.fromarray(mask.astype(np.uint8), mode="P")
    image.putpalette(class_colors().ravel().tolist())
    return lambda path: image.save(path, format="PNG")


WRITERS: dict[str, Callable[[Path, Iterable[AnsweredBatch]], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
    ".parquet": _write_parquet,
}
"""The formats of answers, by suffix."""
