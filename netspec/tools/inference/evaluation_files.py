"""Files of an evaluation: metrics as JSON, tables as CSV, confusion matrices as charts."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from netspec.exchange.files import write_atomically, write_text_atomically
from netspec.schema.plain_json import json_text
from netspec.training.evaluation import Evaluation

if TYPE_CHECKING:
    from PIL import Image

    from netspec.layers.losses_and_metrics import TableRow

CELL, SMALLEST_CELL, LARGEST_MATRIX = 44, 6, 1200
"""Size in pixels of a cell of a matrix, of the smallest cell, and of the largest matrix."""
NUMBERS_FROM = 28
"""Size in pixels from which a cell shows its number."""
AXES = "actual \\ predicted"
"""Meaning of the rows and columns of a confusion matrix."""
PAPER, INK, FULL = (255, 255, 255), (20, 20, 20), (8, 81, 156)


def write_evaluation(evaluation: Evaluation, folder: Path) -> None:
    """Write `metrics.json`, `NAME.csv` for each table, and `NAME.png` for each confusion matrix."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomically(folder / "metrics.json", f"{json_text(evaluation.as_json(), indent=2)}\n")
    for name, table in evaluation.tables.items():
        columns, rows = table_cells(table)
        write_atomically(folder / f"{name}.csv", partial(_write_csv, rows=rows))
        if is_confusion_matrix([row[0] for row in rows[1:]], columns):
            chart = confusion_chart(columns, [list(map(float, row[1:])) for row in rows[1:]])
            write_atomically(folder / f"{name}.png", partial(chart.save, format="PNG"))


def table_cells(table: TableRow | Mapping[str, TableRow]) -> tuple[list[str], list[list[str]]]:
    """Return the columns of a table, and its rows with a heading: the name of the row, then its cells.

    The first cell of the heading of a confusion matrix names its axes.
    """
    rows = {name: dict(value) if isinstance(value, Mapping) else {"value": value} for name, value in table.items()}
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    cells = [[name, *(str(row.get(column, "")) for column in columns)] for name, row in rows.items()]
    return columns, [[AXES if is_confusion_matrix([*rows], columns) else "", *columns], *cells]


def is_confusion_matrix(rows: Sequence[str], columns: Sequence[str]) -> bool:
    """Return whether a table with these names of rows and columns is a confusion matrix."""
    return list(rows) == list(columns)


def _write_csv(path: Path, rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def confusion_chart(names: Sequence[str], matrix: Sequence[Sequence[float]]) -> Image.Image:
    """Draw a confusion matrix: a row for each class, shaded by the share of its samples, with numbers if they fit."""
    from PIL import Image, ImageDraw

    from netspec.data.imaging.lettering import drawable, font_for

    cell = max(SMALLEST_CELL, min(CELL, LARGEST_MATRIX // len(names)))
    font = font_for(names, min(13, max(6, cell - 2)))
    names = [drawable(name, font) for name in names]
    margin = 24 + max(int(font.getlength(name)) for name in names)
    side = cell * len(names)
    title = "rows: actual class, columns: predicted class"
    title_font = font_for([title], 13)
    width = margin + max(side, int(title_font.getlength(title))) + 12
    chart = Image.new("RGB", (width, side + margin + 28), PAPER)
    draw = ImageDraw.Draw(chart)
    for row, column, value, share in _cells(matrix):
        left, top = margin + column * cell, 28 + row * cell
        shade = tuple(round(light + share * (dark - light)) for light, dark in zip(PAPER, FULL, strict=True))
        draw.rectangle((left, top, left + cell - 1, top + cell - 1), fill=shade)
        if cell >= NUMBERS_FROM and value:
            color = PAPER if share > 0.5 else INK
            draw.text((left + cell / 2, top + cell / 2), f"{value:g}", fill=color, font=font, anchor="mm")
    for index, name in enumerate(names):
        draw.text((margin - 6, 28 + (index + 0.5) * cell), name, fill=INK, font=font, anchor="rm")
        upright = Image.new("RGB", (margin - 12, max(cell, 14)), PAPER)
        ImageDraw.Draw(upright).text((margin - 18, upright.height / 2), name, fill=INK, font=font, anchor="rm")
        turned = upright.rotate(90, expand=True)
        chart.paste(turned, (int(margin + (index + 0.5) * cell - turned.width / 2), side + 32))
    draw.text((margin, 6), title, fill=INK, font=title_font)
    return chart


def _cells(matrix: Sequence[Sequence[float]]) -> Iterator[tuple[int, int, float, float]]:
    """Yield row, column, value, and the share of the row's sum of each cell."""
    for row, values in enumerate(matrix):
        total = sum(values)
        for column, value in enumerate(values):
            yield row, column, value, value / total if total else 0.0
