"""`netspec.init` of tables: the notation of numbers and dates, missing values, and columns that are left out."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import netspec
from netspec.errors import InputError
from netspec.tools.init import InitResult, init
from netspec.tools.specs import load_train

ROWS = 120


def table(folder: Path, columns: dict[str, list[str]], delimiter: str = ",") -> Path:
    """Write a table with a class in its last column, `label`."""
    cells = {**columns, "label": [("no", "yes")[row % 2] for row in range(ROWS)]}
    quoted = [[f'"{cell}"' if delimiter in cell else cell for cell in column] for column in cells.values()]
    lines = [delimiter.join(cells), *(delimiter.join(row) for row in zip(*quoted, strict=True))]
    (folder / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "t.csv"


def source(result: InitResult) -> Any:
    """Return the source that was written, after a check that the net fits the data, and that all rows can be read."""
    assert netspec.check(result.train).kind == "training"
    split: Any = load_train(result.train).data.splits()["train"]
    split.open()
    return split


def declared(folder: Path, cells: list[str], delimiter: str = ",") -> Any:
    """Return the declaration that `init` writes for a column of these cells, next to one of numbers."""
    path = table(folder, {"x": cells, "other": [str(row % 9) for row in range(ROWS)]}, delimiter)
    columns = source(init(path, force=True)).columns
    return columns["x"].model_dump(exclude_defaults=True, exclude={"normalization", "type"}) if "x" in columns else None


def days(format: str, step: timedelta = timedelta(hours=53, minutes=7)) -> list[str]:
    return [(datetime(2024, 1, 1) + row * step).strftime(format) for row in range(ROWS)]


@pytest.mark.parametrize(
    "format",
    [
        "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y %H:%M", "%Y/%m/%d", "%d-%b-%Y", "%B %d, %Y", "%m/%d/%y %I:%M %p", "%Y%m%d",
        "%d.%m.%Y %H:%M:%S +01:00", "%m/%d/%Y %H:%M:%SZ",
    ],
)  # fmt: skip
def test_dates_are_recognized_in_their_format(tmp_path: Path, format: str) -> None:
    column = declared(tmp_path, days(format))
    assert column["format"] == format.replace("+01:00", "%z").replace("SZ", "S%z")
    assert ("hour" in column["parts"]) == (":" in format)
    text = (tmp_path / "train.yaml").read_text()
    assert ("times are converted to UTC" in text) == (format.endswith(("Z", "+01:00")))


@pytest.mark.parametrize("format", ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S+02:00", "%Y-%m"])
def test_dates_in_iso_8601_need_no_format(tmp_path: Path, format: str) -> None:
    assert "format" not in declared(tmp_path, days(format))


def test_the_order_of_day_and_month_is_a_guess_that_is_reported(tmp_path: Path) -> None:
    cells = [f"{1 + row % 12:02}/{1 + row % 11:02}/2024" for row in range(ROWS)]
    result = init(table(tmp_path, {"x": cells}))
    assert result.warnings[0] == (
        "the dates in `x` fit both %m/%d/%Y and %d/%m/%Y: the month is read first, as in pandas"
    )
    text = result.train.read_text()
    assert "# a guess, since no day is above 12: if the day comes first, the format is %d/%m/%Y" in text
    assert 'format: "%m/%d/%Y"' in text
    assert declared(tmp_path, [*cells[:-1], "31/01/2024"])["format"] == "%d/%m/%Y"  # one day decides


def test_missing_dates_have_a_value_that_marks_them(tmp_path: Path) -> None:
    column = declared(tmp_path, ["" if row % 10 == 0 else day for row, day in enumerate(days("%d.%m.%Y"))])
    assert (column["missing"], column["missing_indicator"]) == ("mean", True)
    text = (tmp_path / "train.yaml").read_text()
    assert "# 10.0% missing: replaced by the mean of each part, plus an indicator" in text


def test_rows_to_predict_may_lack_numbers_and_dates(tmp_path: Path) -> None:
    path = table(tmp_path, {"x": [str(row % 9) for row in range(ROWS)], "day": days("%d.%m.%Y")})
    run = netspec.train(init(path).train, run_dir=tmp_path / "run", **{"train.max_epochs": 1})
    (tmp_path / "new.csv").write_text("x,day\n,01.02.2024\n3,\n")
    assert len(netspec.predict(run.run_dir, tmp_path / "new.csv").answers["class"]) == 2


def test_unbalanced_classes_are_reported(tmp_path: Path) -> None:
    rows = [f"{row % 9},{'yes' if row % 10 == 0 else 'no'}" for row in range(ROWS)]
    (tmp_path / "t.csv").write_text("\n".join(["x,label", *rows]) + "\n")
    (warning,) = [text for text in init(tmp_path / "t.csv").warnings if "class_weight" in text]
    assert warning.startswith("90% of the rows are 'no', and so would be the accuracy of always predicting it: ")


def test_digits_with_leading_zeros_are_names(tmp_path: Path) -> None:
    towns = ["09264", "01099", "10115"]
    assert declared(tmp_path, [towns[row % 3] for row in range(ROWS)])["vocabulary"] == sorted(towns)
    codes = ["abroad" if row % 3 == 0 else f"{7 + row % 30:05}" for row in range(ROWS)]
    assert "abroad" in declared(tmp_path, codes)["vocabulary"]
    assert "vocabulary" not in declared(tmp_path, [("0", "0.5", "10")[row % 3] for row in range(ROWS)])
    assert "vocabulary" not in declared(tmp_path, ["05", *(str(5 + 7 * row) for row in range(ROWS - 1))])


def test_texts_that_resemble_dates_are_categories(tmp_path: Path) -> None:
    assert "vocabulary" in declared(tmp_path, [f"1.{1 + row % 20}.20" for row in range(ROWS)])
    assert declared(tmp_path, [str(20240100 + row % 100) for row in range(ROWS)]) == {
        "missing": "median"
    }  # 20240199 is a number


@pytest.mark.parametrize(
    ("cells", "delimiter", "decimal", "thousands"),
    [
        (["3,14", "2,5", "10"], ";", ",", None),
        (["3,14", "2,5", "10"], ",", ",", None),
        (["1.234,5", "-2,5", "10"], ";", ",", "."),
        (["1,234.5", "2.5", "10"], ",", ".", ","),
        (["1 234,5", "2,5", "10"], ";", ",", " "),
        (["1\u00a0234,5", "2,5", "10"], ";", ",", " "),
        (["12'345", "2.5", "10"], ",", ".", "'"),
        (["3.14", "2.5", "10"], ";", ".", None),
    ],
)
def test_separators_in_numbers(
    tmp_path: Path, cells: list[str], delimiter: str, decimal: str, thousands: str | None
) -> None:
    result = init(table(tmp_path, {"x": [*cells * ROWS][:ROWS]}, delimiter))
    written = source(result)
    assert (written.decimal, written.thousands) == (decimal, thousands)
    assert written.columns["x"].type == "numeric"
    assert not any("commas" in text for text in result.warnings)


@pytest.mark.parametrize(("delimiter", "field"), [(";", 'decimal: ","'), (",", 'thousands: ","')])
def test_commas_that_may_be_either_are_reported(tmp_path: Path, delimiter: str, field: str) -> None:
    result = init(table(tmp_path, {"x": [f"{1 + row},500" for row in range(ROWS)]}, delimiter))
    other = 'thousands: ","' if "decimal" in field else 'decimal: ","'
    assert result.warnings[0] == (
        f"commas in numbers: a guess, since three digits follow each comma: `{other}` is the other possibility"
    )
    assert f"    {field}" in result.train.read_text()


def test_units_are_read(tmp_path: Path) -> None:
    assert declared(tmp_path, [f"{row % 40} %" for row in range(ROWS)]) == {"unit": "%", "missing": "median"}
    assert declared(tmp_path, [f"${row}.50" for row in range(ROWS)]) == {"unit": "$", "missing": "median"}
    for unit in ("m2", "m²", "sq ft", "sqm", "km/h", "cm^3", "g"):
        assert declared(tmp_path, [f"{row % 40}.5 {unit}" for row in range(ROWS)]) == {
            "unit": unit,
            "missing": "median",
        }
    assert "vocabulary" in declared(tmp_path, [f"{row % 3} {('kg', 'mm')[row % 2]}" for row in range(ROWS)])


def test_columns_that_lose_most_of_their_values_are_reported(tmp_path: Path) -> None:
    names = [f"model {row}" if row % 2 else "none given" for row in range(ROWS)]
    result = init(table(tmp_path, {"x": names, "other": [str(row % 9) for row in range(ROWS)]}))
    assert result.warnings[0] == (
        "`x` has 61 different values such as 'model 119': 50% of the rows have a rare one, which counts as unknown: "
        "group them, or leave it out"
    )


def test_texts_that_recur_can_be_read_as_texts(tmp_path: Path) -> None:
    notes = [f"good machine with {16 * (row % 50 if row % 2 else 1)} GB of memory" for row in range(ROWS)]
    path = table(tmp_path, {"note": notes, "brand": [f"brand {row % 3}" for row in range(ROWS)]})
    (warning, *_) = init(path).warnings
    assert warning.endswith("which counts as unknown: `netspec init --task text` reads its words instead")
    result = init(path, task="text", force=True)
    assert any(finding.startswith("texts: `note`") for finding in result.findings)
    path = table(tmp_path, {"note": [f"good machine with {row % 50} GB" for row in range(ROWS)], "n": ["1", "2"] * 60})
    assert any("; `netspec init --task text` reads its words" in text for text in init(path, force=True).findings)
    path = table(tmp_path, {"note": [" ".join(note.split()[:3]) for note in notes]})
    with pytest.raises(InputError, match="no column holds texts") as error:
        init(path, task="text", force=True)
    (problem,) = error.value.problems
    assert problem.expected == "a column whose cells have more than 3 words on average"
    assert problem.got == "words in a cell: `note` 3.0"


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y"])
def test_a_random_split_of_rows_in_chronological_order_is_reported(tmp_path: Path, form: str) -> None:
    days = [(datetime(2024, 1, 1) + timedelta(row)).strftime(form) for row in range(ROWS)]
    result = init(table(tmp_path, {"day": days}))
    (warning,) = result.warnings
    fields = re.search(r"`(time: [^`]*)`", warning)
    assert fields is not None
    result.train.write_text(result.train.read_text().replace("stratify: label", fields[1]))
    assert netspec.check(result.train).kind == "training"
    hold_out = load_train(result.train).data.train.hold_out
    assert hold_out is not None
    assert hold_out.time == "day"
    assert not init(table(tmp_path, {"day": [*days[1::2], *days[::2]]}), force=True).warnings


def test_columns_that_reveal_the_target_are_reported(tmp_path: Path) -> None:
    prices = [f"{100 + (row * 37) % 91}.5" for row in range(ROWS)]
    taxes = [f"{0.012 * float(price):.3f}" for price in prices]
    sizes = [f"{float(price) + row % 17:.1f}" for row, price in enumerate(prices)]
    columns = {
        "price": prices,
        "tax paid": taxes,
        "size": sizes,
        "state": [("open", "done")[row % 2] for row in range(ROWS)],
    }
    path = table(tmp_path, columns)
    (warning,) = init(path, target="price").warnings
    assert warning == (
        "`tax paid` alone predicts `price` (correlation 1.0000): leave it out if it is not known when a "
        "prediction is made"
    )
    (warning,) = init(path, force=True).warnings
    assert warning.startswith("`state` alone predicts `label` (each of its 2 values has one class only): ")


def test_columns_in_different_notations_are_reported(tmp_path: Path) -> None:
    comma = [f"{row % 40},5" for row in range(ROWS)]
    columns = {"n": [str(77 + row) for row in range(ROWS)], "x": comma, "y": comma}
    result = init(table(tmp_path, {**columns, "price": [f"{row % 50}.25" for row in range(ROWS)]}, ";"))
    assert source(result).decimal == ","
    assert 'decimal: ","   # numbers such as 0,5' in result.train.read_text()
    assert result.warnings[0] == (
        "`price` has numbers such as 0.25, which the notation of the other columns does not allow: they are read as "
        "names until all columns have the same notation"
    )


def test_texts_among_numbers_are_missing_values(tmp_path: Path) -> None:
    cells = ["n.a." if row % 20 == 0 else str(row / 2) for row in range(ROWS)]
    assert declared(tmp_path, cells) == {"missing": "median", "missing_indicator": True}
    assert "null\", n.a.]   # the usual ones, and 'n.a.' in `x`" in (tmp_path / "train.yaml").read_text()
    cells = ["n.a." if row % 3 == 0 else str(row / 2) for row in range(ROWS)]
    assert declared(tmp_path, cells) == {"missing": "median", "missing_indicator": True}
    grades = ["A" if row % 20 == 0 else str(row % 5) for row in range(ROWS)]
    assert declared(tmp_path, grades)["vocabulary"] == ["0", "1", "2", "3", "4", "A"]
    assert init(tmp_path / "t.csv", force=True).warnings[0] == (
        "`x` has numbers, but also 'A' (6 rows): it is not read as numbers; to read them, replace these cells by "
        "numbers or by empty cells"
    )


@pytest.mark.parametrize("text", ["k.A.", "no idea", "> 100"])
@pytest.mark.parametrize("every", [2, 3, 20])
def test_any_text_among_many_numbers_is_a_missing_value(tmp_path: Path, text: str, every: int) -> None:
    cells = [text if row % every == 0 else str(row / 2) for row in range(ROWS)]
    assert declared(tmp_path, cells) == {"missing": "median", "missing_indicator": True}
    expected = (
        f"`x` has numbers except for {text!r} in {ROWS // every} rows: counted as missing; correct the data if it "
        "means a number"
    )
    assert (expected in init(tmp_path / "t.csv", force=True).warnings) == (text != "k.A.")


def test_any_text_among_many_dates_is_a_missing_value(tmp_path: Path) -> None:
    cells = ["not yet" if row % 3 == 0 else day for row, day in enumerate(days("%d.%m.%Y"))]
    assert declared(tmp_path, cells)["format"] == "%d.%m.%Y"
    assert init(tmp_path / "t.csv", force=True).warnings[0] == (
        "`x` has dates except for 'not yet' in 40 rows: counted as missing; correct the data if it means a date"
    )


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y"])
def test_cells_in_another_form_among_dates_are_named(tmp_path: Path, form: str) -> None:
    cells = ["Q1 2024" if row == 70 else day for row, day in enumerate(days(form))]
    assert declared(tmp_path, cells)["parts"] == ["timestamp", "month", "weekday"]
    assert init(tmp_path / "t.csv", force=True).warnings[0] == (
        "`x` has dates except for 'Q1 2024' in row 71: counted as missing; correct the data if it means a date"
    )
    cells = [f"Q{row % 4 + 1} {2000 + row}" if row % 3 == 0 else day for row, day in enumerate(days(form))]
    result = init(table(tmp_path, {"x": cells, "other": [str(row % 9) for row in range(ROWS)]}), force=True)
    assert result.warnings[0].startswith("`x` has dates, but also 'Q1 2000' (1 row), 'Q1 2012' (1 row), ")
    assert result.warnings[0].endswith(
        ": it is not read as dates; to read them, replace these cells by dates or by empty cells"
    )


def test_numbers_without_the_unit_of_the_others_are_named(tmp_path: Path) -> None:
    cells = ["71" if row == 70 else f"{row / 2} kg" for row in range(ROWS)]
    column = declared(tmp_path, cells)
    assert (column["unit"], column["missing_values"]) == ("kg", ["71"])
    assert init(tmp_path / "t.csv", force=True).warnings[0] == (
        "`x` has numbers with the unit `kg` except for '71' in row 71: counted as missing; correct the data if it "
        "means a number"
    )
    cells = [f"{row / 2}" if row % 3 == 0 else f"{row / 2} kg" for row in range(ROWS)]
    result = init(table(tmp_path, {"x": cells, "other": [str(row % 9) for row in range(ROWS)]}), force=True)
    assert result.warnings[0].startswith("`x` has numbers with the unit `kg`, but also '0.0' (1 row), '1.5' (1 row), ")


def test_numbers_in_several_units_are_reported(tmp_path: Path) -> None:
    other = [str(row % 9) for row in range(ROWS)]
    weights = [f"{row} {'g' if row % 4 == 0 else 'kg'}" for row in range(ROWS)]
    flights = [f"{('LHR', 'CDG', 'JFK', 'HND', 'FRA')[row % 5]} {row}" for row in range(ROWS)]
    result = init(table(tmp_path, {"x": weights, "flight": flights, "other": other}))
    assert [warning for warning in result.warnings if "units" in warning] == [
        "`x` has numbers with the units `kg` and `g`: convert them to one unit to read them as numbers"
    ]


@pytest.mark.parametrize("text", ["three", "3 or 4", "3?"])
def test_a_mistake_among_few_numbers_is_reported(tmp_path: Path, text: str) -> None:
    cells = [text if row == 70 else f"{row % 6},5" for row in range(ROWS)]
    assert declared(tmp_path, cells, ";") == {"missing": "median", "missing_indicator": True}
    assert init(tmp_path / "t.csv", force=True).warnings[0] == (
        f"`x` has numbers except for {text!r} in row 71: counted as missing; correct the data if it means a number"
    )


def test_numbers_in_another_notation_are_not_missing(tmp_path: Path) -> None:
    cells = [f"{row % 3},25" if row % 4 == 0 else str(row) for row in range(ROWS)]
    columns = {"x": cells, "price": [f"{row}.25" for row in range(ROWS)], "size": [f"{row}.5" for row in range(ROWS)]}
    result = init(table(tmp_path, columns, ";"))
    assert "missing_values" not in result.train.read_text()
    assert result.warnings[0].startswith("`x` has numbers such as 0,25, which the notation of the other columns does")


def test_a_name_of_a_class_is_no_missing_value(tmp_path: Path) -> None:
    rows = [f"{'none' if row % 9 == 0 else row / 2},{('none', 'some')[row % 2]},{row % 7}" for row in range(ROWS)]
    (tmp_path / "t.csv").write_text("\n".join(["size,label,other", *rows]) + "\n")
    written = source(init(tmp_path / "t.csv"))
    assert written.columns["label"].vocabulary == ["none", "some"]
    assert written.columns["size"].missing_values == ["none"]
    assert "none" not in written.missing_values


def test_a_mistake_that_is_a_category_elsewhere_is_missing_in_its_column(tmp_path: Path) -> None:
    rooms = ["yes" if row == 70 else str(row % 6) for row in range(ROWS)]
    result = init(table(tmp_path, {"rooms": rooms, "balcony": [("yes", "no")[row % 3 % 2] for row in range(ROWS)]}))
    written = source(result)
    assert written.columns["balcony"].vocabulary == ["no", "yes"]
    assert written.columns["rooms"].missing_values == ["yes"]
    assert "yes" not in written.missing_values
    assert result.warnings[0].startswith("`rooms` has numbers except for 'yes' in row 71: counted as missing; ")


def test_a_value_of_another_column_is_missing_in_one_column_only(tmp_path: Path) -> None:
    cells = ["gone" if row % 9 == 0 else str(row / 2) for row in range(ROWS)]
    names = [("gone", "left", "right")[row % 3] for row in range(ROWS)]
    columns = source(init(table(tmp_path, {"x": cells, "side": names}))).columns
    assert columns["side"].vocabulary == ["gone", "left", "right"]
    assert columns["x"].missing_values == ["gone"]


@pytest.mark.parametrize(
    ("name", "cells", "reason"),
    [
        ("x", ["7"] * ROWS, "all rows have the same value"),
        ("x", ["", "NA"] * (ROWS // 2), "it is empty"),
        ("x", [f"u{row}" for row in range(ROWS)], "nearly every row has another value"),
        ("x", [str(row) for row in range(ROWS)], "nearly every row has another value"),
        ("x", [str(max(row, 2)) for row in range(ROWS)], "nearly every row has another value"),
        ("customer_id", [str(row * row) for row in range(ROWS)], "nearly every row has another value"),
        ("", [str(row * row) for row in range(ROWS)], "it has no name"),
    ],
)
def test_columns_that_are_left_out(tmp_path: Path, name: str, cells: list[str], reason: str) -> None:
    result = init(table(tmp_path, {name: cells, "other": [str(row % 9) for row in range(ROWS)]}))
    assert f"left out: `{name}`: {reason}" in result.findings
    assert list(source(result).columns) == ["other", "label"]


def test_booleans_and_categories_of_many_values(tmp_path: Path) -> None:
    assert declared(tmp_path, [("True", "False")[row % 2] for row in range(ROWS)])["vocabulary"] == ["False", "True"]
    many = declared(tmp_path, ["rare" if row % 40 == 0 else f"v{row % 8}" for row in range(ROWS)])
    assert many["vocabulary"] == [f"v{value}" for value in range(8)]
    assert "1 rarer one counts as unknown" in (tmp_path / "train.yaml").read_text()


@pytest.mark.parametrize(("rows", "names", "vocabulary"), [
    (16, ["Rome", "Oslo", "Bern", "Kyiv"] * 4, ["Bern", "Kyiv", "Oslo", "Rome"]),
    (16, ["Rome", "Oslo", *map(str, "abcd"), *["Rome", "Oslo"] * 5], ["Oslo", "Rome"]),
    (60, [*["Rome", "Oslo"] * 28, "Bern", "Bern", "Bern", "Kyiv"], ["Bern", "Oslo", "Rome"]),
])  # fmt: skip
def test_categories_of_small_tables(rows: int, names: list[str], vocabulary: list[str], tmp_path: Path) -> None:
    lines = [f"{name},{row * 7 % 13},{'ab'[row % 3 % 2]}\n" for row, name in enumerate(names[:rows])]
    (tmp_path / "t.csv").write_text("city,size,label\n" + "".join(lines))
    assert source(init(tmp_path / "t.csv")).columns["city"].vocabulary == vocabulary


@pytest.mark.parametrize(
    ("every", "warning"),
    [
        (6, "20 of 120 rows have no `price`, and are left out"),
        (120, "1 of 120 rows has no `price`, and is left out"),
    ],
)
def test_a_target_with_missing_values(every: int, warning: str, tmp_path: Path) -> None:
    prices = ["" if row % every == 0 else f"{row * 1.5}" for row in range(ROWS)]
    result = init(table(tmp_path, {"price": prices, "other": [str(row % 9) for row in range(ROWS)]}), target="price")
    assert warning in result.warnings
    assert source(result).columns["price"].missing == "drop"


@pytest.mark.parametrize(
    ("cells", "task", "message"),
    [
        ([""] * ROWS, None, "is empty"),
        (["7"] * ROWS, None, "has one value only"),
        (["3 kg"] * 70 + [str(row) for row in range(ROWS - 70)], "regression", "cannot be predicted as a number"),
        ([f"name {row}" for row in range(ROWS)], None, "so the values cannot be classes"),
        ([str(row) for row in range(ROWS)], "classification", "so the values cannot be classes"),
    ],
)
def test_targets_that_cannot_be_predicted(tmp_path: Path, cells: list[str], task: str | None, message: str) -> None:
    path = table(tmp_path, {"target_column": cells, "other": [str(row % 9) for row in range(ROWS)]})
    with pytest.raises(InputError, match=message):
        init(path, target="target_column", task=task)


def test_an_index_without_a_name_is_in_the_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",size,label\n" + "".join(f"{row},{row % 7},{row % 2}\n" for row in range(ROWS)))
    assert list(source(init(path)).columns) == ["size", "label"]


def test_columns_of_the_same_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("size,size,label\n" + "".join(f"{row},{row % 7},{row % 2}\n" for row in range(ROWS)))
    with pytest.raises(InputError, match="several columns with the name 'size'"):
        init(path)


def test_texts_and_numbers_are_read_together(tmp_path: Path) -> None:
    words = ("late", "early", "broken", "lost")
    texts = [f"the parcel came {words[row % 4]} to house {row} today" for row in range(ROWS)]
    path = table(tmp_path, {"body": texts, "weight": [str(row % 9) for row in range(ROWS)]})
    result = init(path, task="text")
    assert list(source(result).columns) == ["body", "weight", "label"]
    assert "from: [mean, features]" in result.net.read_text()
    assert "texts: `body`: nine of ten have at most 8 words" in result.findings
    prices = [f"{row * 1.5}" for row in range(ROWS)]
    path = table(tmp_path, {"body": texts, "price": prices})
    result = init(path, target="price", task="text", force=True)
    assert result.task == "text regression"
    assert source(result).columns["price"].type == "numeric"


@pytest.mark.parametrize("name", ["ticket text", "mean", "features", "text"])
def test_a_column_of_texts_may_have_any_name(tmp_path: Path, name: str) -> None:
    texts = [f"the parcel came {('late', 'early')[row % 2]} to house {row} today" for row in range(ROWS)]
    path = table(tmp_path, {name: texts, "minutes waited": [str(row % 9) for row in range(ROWS)]})
    split = source(init(path, task="text"))
    assert list(split.columns) == [name, "minutes waited", "label"]
    assert set(split.open().fields) == {"text", "features", "label"}


def test_the_vocabulary_of_few_texts_is_small(tmp_path: Path) -> None:
    texts = [f"the parcel came {('late', 'early')[row % 2]} to house number {row} today" for row in range(ROWS)]
    result = init(table(tmp_path, {"body": texts}), task="text")
    assert "{type: Embedding, input_dim: 100, output_dim: 16, from: text}" in result.net.read_text()
    text = result.train.read_text().replace("\n      # ", " ")
    assert "9 of 129 words occur more than once: others are unknown" in text
    assert result.warnings[0] == (
        "120 texts are few: the test part has 24, so that one error changes the accuracy by 4%"
    )


def test_words_of_other_languages_are_written_as_they_are(tmp_path: Path) -> None:
    towns, smells = ("Köln", "Łódź", "Bad Öls", "東京"), ("süß", "fad")
    rows = [f"{row % 9},{towns[row % 4]},{smells[row % 2]}" for row in range(ROWS)]
    (tmp_path / "t.csv").write_text("\n".join(["Größe,Städte,Geruch", *rows]) + "\n", encoding="utf-8")
    result = init(tmp_path / "t.csv", target="Geruch")
    assert source(result).columns["Städte"].vocabulary == sorted(towns)
    text = result.train.read_text(encoding="utf-8")
    assert " Städte: {" in text
    assert 'vocabulary: ["Bad Öls", Köln, Łódź, 東京]' in text
    assert "vocabulary: [fad, süß]" in text
    assert "\\u" not in text + result.net.read_text(encoding="utf-8")
