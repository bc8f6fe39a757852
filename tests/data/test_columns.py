"""Declared columns: how each type encodes its cells, what it learns, and reports of cells that do not fit."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from netspec.data.base import Dataset, FieldType
from netspec.data.loader import open_loader
from netspec.data.tabular.csv import TextFile
from netspec.data.tabular.dataset import PagedDataset
from netspec.errors import InputError
from tests.data.conftest import problems_of, split_of

PEOPLE = """\
age,town,born,pay,rich
30,Bern,1990-02-28,100.5,no
,Genf,1985-12-31,?,yes
50,Bern,2000-01-01T12:30:00+01:00,99.5,no
40,Chur,1969-07-20,300,yes
"""


def table(folder: Path, columns: Any, text: str = PEOPLE, *, learned: Any = None, **fields: Any) -> Dataset:
    (folder / "people.csv").write_text(text)
    settings = {"header": True, "columns": columns, **fields}
    return split_of(str(folder / "train.yaml"), source="csv", path="people.csv", **settings).open(learned=learned)


def everything(data: Dataset) -> dict[str, Any]:
    return {name: np.asarray(values).tolist() for name, values in data.read(np.arange(len(data))).items()}


def test_columns_are_joined_in_features_or_become_fields(tmp_path):
    columns = {
        "pay": {"type": "numeric", "missing": 0},
        "town": "categorical",
        "age": {"type": "numeric", "missing": "mean", "field": "years"},
        "born": {"type": "date", "parts": ["year"], "field": "born"},
        "rich": {"type": "categorical", "vocabulary": ["yes", "no"]},
    }
    data = table(tmp_path, columns, label="rich")
    assert data.fields == {
        "features": FieldType((4,), "float32"),
        "years": FieldType((), "float32"),
        "born": FieldType((1,), "float32"),
        "label": FieldType((), "int32"),
    }
    assert everything(data) == {
        "features": [[100.5, 1, 0, 0], [0, 0, 0, 1], [99.5, 1, 0, 0], [300, 0, 1, 0]],
        "years": [30, 40, 50, 40],
        "born": [[1990], [1985], [2000], [1969]],
        "label": [1, 0, 1, 0],
    }
    assert data.classes == {"label": ("yes", "no")}
    assert data.learned == {"town": {"vocabulary": ["Bern", "Chur", "Genf"]}, "age": {"fill": 40.0}}
    assert json.loads(json.dumps(data.learned)) == data.learned


@pytest.mark.parametrize(
    ("column", "expected", "learned"),
    [
        ({"missing": "median"}, [[30], [40], [50], [40]], {"fill": 40.0}),
        ({"missing": "drop"}, [[30], [50], [40]], {}),
        ({"missing": -1, "missing_indicator": True}, [[30, 0], [-1, 1], [50, 0], [40, 0]], {}),
        (
            {"missing": "mean", "normalization": "min_max"},
            [[0], [0.5], [1], [0.5]],
            {"fill": 40, "offset": [30], "scale": [20]},
        ),
    ],
)
def test_numeric_columns(tmp_path, column, expected, learned):
    data = table(tmp_path, {"age": {"type": "numeric", **column}})
    assert everything(data)["features"] == expected
    assert data.learned.get("age", {}) == learned


def test_numbers_and_dates_can_stand_for_missing_values(tmp_path):
    text = PEOPLE.replace("?", "-999")
    columns = {"age": {"type": "numeric", "missing": 7}, "pay": {"type": "numeric", "missing": "drop"}}
    text = text.replace(",Genf", "20,Genf")
    data = table(tmp_path, columns, text, missing_values=["-999", "30"])
    assert everything(data)["features"] == [[7, 100.5], [50, 99.5], [40, 300]]
    columns = {"born": {"type": "date", "parts": ["year"], "missing": "drop"}}
    data = table(tmp_path, columns, text, missing_values=["1990-02-28"])
    assert everything(data)["features"] == [[1985], [2000], [1969]]


def test_a_column_has_missing_values_of_its_own(tmp_path):
    columns = {
        "age": {"type": "numeric", "missing": 0, "missing_values": [30]},
        "pay": {"type": "numeric", "missing": 7, "missing_values": ["NONE"]},
        "born": {"type": "date", "parts": ["year"], "missing": "mean", "missing_values": ["2000-01-01t12:30:00+01:00"]},
        "town": {"type": "categorical", "vocabulary": ["Bern", "Genf"], "missing": "most_frequent",
                 "missing_values": ["chur"]},
    }  # fmt: skip
    data = table(tmp_path, columns, PEOPLE.replace("99.5", "none").replace("100.5", "30"))
    features = everything(data)["features"]
    assert [row[:2] for row in features] == [[0, 30], [0, 7], [50, 7], [40, 300]]
    assert [row[2] for row in features] == [1990, 1985, pytest.approx((1990 + 1985 + 1969) / 3), 1969]
    assert [row[3:] for row in features] == [[1, 0], [0, 1], [1, 0], [1, 0]]


def test_standard_normalization_ignores_missing_values(tmp_path):
    data = table(tmp_path, {"age": {"type": "numeric", "missing": "mean", "normalization": "standard"}})
    features = np.asarray(data.read(np.arange(4))["features"])
    present = np.array([30, 50, 40.0])
    expected = (np.array([30, 40, 50, 40.0]) - present.mean()) / present.std()
    np.testing.assert_allclose(features[:, 0], expected, rtol=1e-6)  # computed in float64, then rounded to float32


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ({"output_mode": "int"}, [0, 2, 0, 1]),
        ({"output_mode": "int", "unknown": "index"}, [1, 3, 1, 2]),
        ({"output_mode": "int", "unknown": "index", "min_count": 2}, [1, 0, 1, 0]),
        ({"output_mode": "int", "unknown": "index", "max_tokens": 3}, [1, 0, 1, 2]),
        ({"output_mode": "int", "vocabulary": ["Genf", "Chur", "Bern"]}, [2, 0, 2, 1]),
        ({"output_mode": "int", "replace": {"Genf": "Chur"}}, [0, 1, 0, 1]),
    ],
)
def test_categories_as_integers(tmp_path, column, expected):
    data = table(tmp_path, {"town": {"type": "categorical", **column}})
    assert data.fields == {"town": FieldType((), "int32")}
    assert everything(data) == {"town": expected}


def test_missing_and_unknown_categories(tmp_path):
    text = "town\nBern\n?\nBern\nChur\n"
    for missing, expected in (("unknown", [1, 0, 1, 2]), ("most_frequent", [1, 1, 1, 2]), ("drop", [1, 1, 2])):
        column = {"type": "categorical", "output_mode": "int", "unknown": "index", "missing": missing}
        assert everything(table(tmp_path, {"town": column}, text)) == {"town": expected}
    column = {"type": "categorical", "unknown": "index"}
    data = table(tmp_path, {"town": column}, "town\nBasel\nBern\n", learned={"town": {"vocabulary": ["Bern", "Chur"]}})
    assert everything(data) == {"features": [[1, 0, 0], [0, 1, 0]]}


UNTRAINED = {"type": "categorical", "unknown": "index", "missing": "unknown"}


@pytest.mark.parametrize(
    ("column", "expected", "learned"),
    [
        (UNTRAINED, [[0, 1, 0], [0, 0, 0], [0, 0, 0]], {"vocabulary": ["Bern", "Chur"], "untrained": [0]}),
        (
            {**UNTRAINED, "vocabulary": ["Chur", "Bern", "Genf"], "replace": {"Basel": "Genf"}},
            [[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]], {"untrained": [0, 3]},
        ),
        ({**UNTRAINED, "max_tokens": 2}, [[0, 1], [1, 0], [1, 0]], {"vocabulary": ["Bern"]}),
        (
            {**UNTRAINED, "missing": "most_frequent"}, [[0, 1, 0], [0, 0, 0], [0, 1, 0]],
            {"vocabulary": ["Bern", "Chur"], "untrained": [0], "fill": "Bern"},
        ),
        (
            {**UNTRAINED, "output_mode": "int"}, [1, 1, 1],
            {"vocabulary": ["Bern", "Chur"], "untrained": [0], "fill": "Bern"},
        ),
        ({**UNTRAINED, "output_mode": "int", "min_count": 2}, [1, 0, 0], {"vocabulary": ["Bern"]}),
    ],
)  # fmt: skip
def test_indices_without_training_rows_have_no_random_effect(tmp_path, column, expected, learned):
    data = table(tmp_path, {"town": column}, "town\nBern\nBern\nChur\n")
    assert data.learned == {"town": learned}
    assert json.loads(json.dumps(data.learned)) == data.learned
    other = table(tmp_path, {"town": column}, "town\nBern\nBasel\n?\n", learned=data.learned)
    assert next(iter(everything(other).values())) == expected


def test_labels_and_closed_vocabularies_keep_indices_without_training_rows(tmp_path):
    column = {"type": "categorical", "output_mode": "int", "vocabulary": ["Bern", "Chur", "Genf"]}
    for fields, name in (({}, "town"), ({"label": "town"}, "label")):
        data = table(tmp_path, {"town": column}, "town\nBern\n", **fields)
        assert data.learned == {}
        assert everything(table(tmp_path, {"town": column}, "town\nGenf\n", learned={}, **fields)) == {name: [2]}


def test_date_columns(tmp_path):
    parts = ["year", "month", "day", "weekday", "day_of_year", "hour", "minute", "second", "timestamp"]
    data = table(tmp_path, {"born": {"type": "date", "parts": parts}})
    assert everything(data)["features"] == [
        [1990, 2, 28, 2, 59, 0, 0, 0, np.float32(636163200)],
        [1985, 12, 31, 1, 365, 0, 0, 0, np.float32(504835200)],
        [2000, 1, 1, 5, 1, 11, 30, 0, np.float32(946726200)],  # converted to UTC
        [1969, 7, 20, 6, 201, 0, 0, 0, np.float32(-14256000)],
    ]
    written = {"type": "date", "format": "%d.%m.%y", "parts": ["day", "year"], "normalization": "min_max"}
    data = table(tmp_path, {"born": written}, "born\n01.02.99\n03.02.03\n")
    assert everything(data)["features"] == [[0, 0], [1, 1]]


DATES = "born\n01.03.1999\n?\n03.05.2003\n"


@pytest.mark.parametrize(
    ("column", "expected", "learned"),
    [
        ({"missing": "drop"}, [[1999, 3], [2003, 5]], {}),
        ({"missing": "mean"}, [[1999, 3], [2001, 4], [2003, 5]], {"fill": [2001, 4]}),
        (
            {"missing": "mean", "missing_indicator": True, "normalization": "min_max"},
            [[0, 0, 0], [0.5, 0.5, 1], [1, 1, 0]],
            {"fill": [2001, 4], "offset": [1999, 3], "scale": [4, 2]},
        ),
    ],
)
def test_missing_dates(tmp_path, column, expected, learned):
    born = {"type": "date", "format": "%d.%m.%Y", "parts": ["year", "month"], **column}
    data = table(tmp_path, {"born": born}, DATES)
    assert everything(data)["features"] == expected
    assert data.learned.get("born", {}) == learned
    if learned:
        other = table(tmp_path, {"born": born}, "born\n?\n", learned=data.learned)
        assert everything(other)["features"] == [expected[1]]


def test_dates_that_are_all_missing_have_no_mean(tmp_path):
    with pytest.raises(InputError, match="all values of column `born` are missing, so it has no mean"):
        table(tmp_path, {"born": {"type": "date", "missing": "mean"}}, "born\n?\n")


@pytest.mark.parametrize(
    ("format", "text", "hint"),
    [
        (None, "31.12.2024", "`format` says how dates are written: `%d.%m.%Y`"),
        (None, "01/02/2024 08:15", "`format` says how dates are written: `%m/%d/%Y %H:%M` or `%d/%m/%Y %H:%M`"),
        ("%m/%d/%Y", "31/12/2024", "`%d/%m/%Y` would read this date"),
    ],
)
def test_unreadable_dates_lead_to_their_format(tmp_path, format, text, hint):
    with pytest.raises(InputError, match="no date here that can be read") as error:
        table(tmp_path, {"born": {"type": "date", "format": format}}, f"born\n{text}\n")
    assert error.value.problems[0].hint == hint


def test_numbers_with_separators_and_units(tmp_path):
    text = "share;price;pay;code\n12,5 %;$1.200,50;-1.000;a\n3%;-$7;2,5;b\n"
    columns = {
        "share": {"type": "numeric", "unit": "%"}, "price": {"type": "numeric", "unit": "$"}, "pay": "numeric",
        "code": "categorical",
    }  # fmt: skip
    fields = {"delimiter": ";", "decimal": ",", "thousands": "."}
    data = table(tmp_path, columns, text, **fields)
    assert everything(data)["features"] == [[12.5, 1200.5, -1000, 1, 0], [3, -7, 2.5, 0, 1]]
    assert everything(table(tmp_path, {"code": "categorical"}, text, label="pay", **fields))["label"] == [-1000, 2.5]


@pytest.mark.parametrize(
    ("cell", "fields", "column", "hint"),
    [
        ("3,14", {}, {}, 'the source reads such numbers with `decimal: ","`'),
        (
            "1,234", {}, {},
            'the source reads such numbers with `decimal: ","` or `thousands: ","`',
        ),
        ("1.234,5", {"decimal": ","}, {}, 'the source reads such numbers with `thousands: "."`'),
        ("12.5", {"decimal": ","}, {}, 'the source reads such numbers with `decimal: "."`'),
        ("1.23.4", {"decimal": ",", "thousands": "."}, {}, None),
        ("3 kg", {}, {}, '`unit: "kg"` of the column reads numbers with this unit'),
        ("3", {}, {"unit": "kg"}, None),
    ],
)  # fmt: skip
def test_numbers_in_a_different_notation_are_errors(tmp_path, cell, fields, column, hint):
    first = "2 kg" if column else "2"
    with pytest.raises(InputError, match="column `x` has text here") as error:
        table(tmp_path, {"x": {"type": "numeric", **column}}, f"x;y\n{first};0\n{cell};1\n", delimiter=";", **fields)
    (problem,) = error.value.problems
    assert problem.hint == hint
    assert problem.expected == ("a number with the unit `kg`" if column else "a number")


def test_the_hint_at_a_notation_is_given_for_the_cells_that_have_it(tmp_path):
    with pytest.raises(InputError) as error:
        table(tmp_path, {"x": "numeric"}, "x;y\n2;0\n12,5;1\nabc;1\n", delimiter=";")
    assert [problem.hint for problem in error.value.problems] == [
        'the source reads such numbers with `decimal: ","`', None,
    ]  # fmt: skip


@pytest.mark.parametrize(("regular", "cell", "decimal"), [("1.5", "2,5", "."), ("1,5", "2.5", ",")])
def test_mixed_decimal_separators_are_named(tmp_path, regular, cell, decimal):
    with pytest.raises(InputError) as error:
        table(tmp_path, {"x": "numeric"}, f"x;y\n{regular};0\n{cell};1\n", delimiter=";", decimal=decimal)
    (problem,) = error.value.problems
    assert (
        problem.hint == f"other rows have numbers such as {regular}: write all with the decimal separator `{decimal}`"
    )


@pytest.mark.parametrize("missing", ["error", "mean"])
def test_texts_that_usually_mean_a_missing_value_have_a_hint(tmp_path, missing):
    with pytest.raises(InputError) as error:
        table(tmp_path, {"x": {"type": "numeric", "missing": missing}}, "x;y\n1.5;0\nn.a.;1\n", delimiter=";")
    (problem,) = error.value.problems
    replaced = "; train with `missing: 0` (any number) or `missing: median` to replace it" * (missing == "error")
    assert problem.hint == f"`missing_values` of the source can declare that 'n.a.' means a missing value{replaced}"


TALK = 'said,age\n"Hello, you there",1\n?,2\nyou too,3\nhello  you,4\n'


@pytest.mark.parametrize("cache", [512, 0])
def test_text_columns_are_their_first_token_ids(tmp_path, cache):
    tokenizer = {"type": "words", "lowercase": True, "punctuation": "drop", "padding": True}
    column = {"type": "text", "tokenizer": tokenizer, "length": 3, "missing": "drop"}
    data = table(tmp_path, {"said": column}, TALK, cache=cache)
    assert data.fields == {"said": FieldType((3,), "int32")}
    assert data.learned["said"]["tokenizer"]["vocabulary"] == ["you", "hello", "there", "too"]
    assert everything(data) == {"said": [[2, 1, 3], [1, 4, 0], [2, 1, 0]]}
    assert json.loads(json.dumps(data.learned)) == data.learned
    empty = table(tmp_path, {"said": {**column, "missing": "empty"}}, TALK, learned=data.learned, cache=cache)
    assert everything(empty)["said"][1] == [0, 0, 0]
    with pytest.raises(InputError, match="the word 'me' is not in the vocabulary") as error:
        table(tmp_path, {"said": column}, "said\nyou\nyou me\n", learned=data.learned)
    assert "people.csv:3:1: error: the word" in error.value.render()
    with pytest.raises(InputError, match="column `said` has no value here"):
        table(tmp_path, {"said": {**column, "missing": "error"}}, TALK)


@pytest.mark.parametrize("cache", [512, 0])
def test_a_decoder_reads_the_tokens_before_each_position(tmp_path, cache):
    tokenizer = {"type": "characters", "padding": True, "start_end": True}  # 1 is the start, 2 the end, 3 the letter a
    column = {"type": "text", "tokenizer": tokenizer, "length": 4, "decoder_input": "previous", "missing": "drop"}
    text = "said,age\nab,1\n?,2\nabba,3\nbabab,4\n"
    data = table(tmp_path, {"said": column, "age": "numeric"}, text, cache=cache)
    values = everything(data)
    assert values["said"] == [[3, 4, 2, 0], [3, 4, 4, 3], [4, 3, 4, 3]]  # a text that is cut has no end token
    assert values["previous"] == [[1, 3, 4, 0], [1, 3, 4, 4], [1, 4, 3, 4]]
    assert data.fields["previous"] == FieldType((4,), "int32")
    assert [name for name, _, _ in data.column_ranges.values()] == ["said", "features"]
    empty = table(tmp_path, {"said": {**column, "missing": "empty"}}, text, learned=data.learned, cache=cache)
    assert (everything(empty)["said"][1], everything(empty)["previous"][1]) == ([2, 0, 0, 0], [1, 0, 0, 0])
    for wrong, message in [
        ({"said": {**column, "tokenizer": {"type": "characters", "padding": True}}}, "the tokenizer has none"),
        (
            {"said": column, "age": {"type": "numeric", "field": "previous"}},
            "`decoder_input` of the column `said` names the field `previous`",
        ),
        ({"said": {**column, "decoder_input": "said"}}, "`decoder_input` of the column `said` names the field `said`"),
    ]:
        with pytest.raises((ValidationError, PydanticCustomError), match=message):
            table(tmp_path, wrong, text)


def test_other_splits_use_statistics_of_the_training_split(tmp_path):
    columns = {
        "age": {"type": "numeric", "missing": "median", "normalization": "standard"},
        "town": "categorical",
        "born": {"type": "date", "normalization": "standard"},
    }
    train = table(tmp_path, columns)
    test_data = table(tmp_path, columns, PEOPLE.replace("50,Bern", "90,Bern"), learned=train.learned)
    assert test_data.learned == train.learned
    np.testing.assert_array_equal(
        test_data.read(np.array([0, 1, 3]))["features"], train.read(np.array([0, 1, 3]))["features"]
    )
    with pytest.raises(InputError, match="'Basel' is not a category of the training split"):
        table(tmp_path, columns, PEOPLE.replace("Chur", "Basel"), learned=train.learned)
    with pytest.raises(InputError, match=r"`town` is not declared as .* which did not learn its vocabulary"):
        table(tmp_path, columns, learned={})
    born = {"type": "date", "normalization": "standard"}
    train = table(tmp_path, {"born": born})
    columns = {"born": {**born, "missing": "mean"}}
    with pytest.raises(InputError, match="which did not learn its replacement of missing values\n") as error:
        table(tmp_path, columns, learned=train.learned)
    assert error.value.problems[0].hint == "train again after a change of the declaration"


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        (["a", "b"], {}),
        (False, {"columns": {"1": "numeric", "2": "categorical"}}),
    ],
)
def test_columns_without_a_header_are_named_or_numbered(tmp_path, header, fields):
    settings = {"columns": {"a": "numeric", "b": "categorical"}, **fields}
    text = "|a title\n1,x\n|a remark\n2,y\n"
    assert everything(table(tmp_path, text=text, header=header, comment="|", **settings))["features"] == [
        [1, 1, 0],
        [2, 0, 1],
    ]
    if header:
        assert len(table(tmp_path, text="a,b\n1,x\n", header=header, **settings)) == 1


def test_skipped_lines_quotes_and_encodings(tmp_path):
    (tmp_path / "people.csv").write_bytes(
        'a table\nfrom "here\na;b\n1;"Zürich; See"\n2;"two\nlines"\n'.encode("latin-1")
    )
    fields = {"header": True, "delimiter": ";", "skip_lines": 2, "encoding": "latin-1", "label": "b"}
    data = split_of(str(tmp_path / "train.yaml"), source="csv", path="people.csv", **fields).open()
    assert data.classes == {"label": ("Zürich; See", "two\nlines")}
    assert [data.describe(index) for index in (0, 1)] == ["people.csv, line 4", "people.csv, line 5"]
    text = 'a\tb\n1\tsay "x\n'
    assert table(tmp_path, ["a"], text, delimiter="\t", quotes=False, label="b").classes == {"label": ('say "x',)}


BAD = """\
age,town,born
30,Bern,1990-02-30
4x,Thun,
,?,1990-01-01
1e99,Bern,1990-01-01
inf,Chur
nan,Bern,1990-01-01,7
"""
BAD_COLUMNS = {"age": "numeric", "town": {"type": "categorical", "vocabulary": ["Bern", "Chur"]}, "born": "date"}


def test_all_problems_are_reported_with_their_location(tmp_path):
    with pytest.raises(InputError) as error:
        table(tmp_path, BAD_COLUMNS, BAD)
    assert problems_of(error, tmp_path) == BAD_TOLD


def test_bad_rows_are_skipped_and_counted(tmp_path):
    text = BAD + "40,Chur,1991-01-01\n" + "1_0,Chur,1991-01-01\n" + "50,Bern,1992-01-01\n"
    data = table(tmp_path, BAD_COLUMNS, text, on_error="skip")
    assert (len(data), data.skipped) == (2, 7)
    assert everything(data)["features"] == [[40, 0, 1, 1991, 1, 1, 1], [50, 1, 0, 1992, 1, 1, 2]]
    assert [data.describe(index) for index in (0, 1)] == ["people.csv, line 8", "people.csv, line 10"]
    with pytest.raises(InputError, match=r"all 6 rows of .* are left out"):
        table(tmp_path, BAD_COLUMNS, BAD, on_error="skip")


def many(rows: int) -> str:
    """A table with blank lines, line ends in cells, and rows that are left out."""
    lines = ["x,note,kind"]
    for row in range(rows):
        note = f'"two\nlines {row}"' if row % 7 == 0 else f"note {row}"
        lines += [""] * (row % 50 == 3) + [f"{row if row % 11 else ''},{note},{'abc'[row % 3]}"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("shuffle", [False, True, {"window": 6400}])
def test_a_table_larger_than_the_cache_is_the_same_table(tmp_path, shuffle):
    columns = {
        "x": {"type": "numeric", "missing": "drop", "normalization": "standard"},
        "kind": {"type": "categorical", "output_mode": "int"},
    }
    uncached = table(tmp_path, columns, many(5000))
    paged = table(tmp_path, columns, many(5000), cache=0, shuffle=shuffle)
    assert isinstance(paged, PagedDataset)
    assert not isinstance(uncached, PagedDataset)
    assert (len(paged), paged.digest, paged.learned) == (len(uncached), uncached.digest, uncached.learned)
    assert len(uncached) == 4545
    order = np.random.default_rng(1).permutation(len(uncached))
    for indices in (np.arange(len(uncached)), order[:300], order[:1]):
        expected = uncached.read(indices)
        for name, values in paged.read(indices).items():
            np.testing.assert_array_equal(values, expected[name])
    for index in order[:50].tolist():
        assert paged.describe(index) == uncached.describe(index)


@pytest.mark.parametrize(("rows", "window"), [(5000, 640), (5000, 100)])
def test_a_window_is_read_once_even_if_the_cache_could_not_hold_it(tmp_path, monkeypatch, rows, window):
    column = {"type": "numeric", "missing": 0}
    fields = {"batch_size": 20, "shuffle": {"window": window}, "cache": 0, "prefetch": 0}
    (tmp_path / "people.csv").write_text(many(rows))
    split = split_of(
        str(tmp_path / "train.yaml"), source="csv", path="people.csv", header=True, columns={"x": column}, **fields
    )
    reads: list[int] = []
    read = TextFile.read

    def counted(file: TextFile, start: int, stop: int, columns: Any) -> Any:
        reads.append(start)
        return read(file, start, stop, columns)

    monkeypatch.setattr(TextFile, "read", counted)
    with open_loader(split, seed=1) as loader:
        reads.clear()
        for batch in loader:
            if batch.epoch:
                break
    pages = len(set(reads))
    assert pages == -(-rows // max(32, window // 16))
    assert len(reads) <= 1.25 * pages  # a page at the border of two blocks may have been dropped between them


def test_a_limit_applies_to_used_rows_and_to_learning(tmp_path):
    column = {"type": "numeric", "missing": "drop", "normalization": "min_max"}
    data = table(tmp_path, {"x": column}, many(100), limit=3)
    assert data.learned == {"x": {"offset": [1.0], "scale": [2.0]}}
    assert everything(data)["features"] == [[0], [0.5], [1]]
    assert data.digest == table(tmp_path, {"x": column}, many(100)).digest


def test_a_table_that_changes_while_it_is_read(tmp_path):
    paged = table(tmp_path, {"x": {"type": "numeric", "missing": 0}}, many(3000), cache=0)
    paged.read(np.array([0]))
    with (tmp_path / "people.csv").open("a") as file:
        file.write("1,2,3\n")
    with pytest.raises(InputError, match="changed while it was read"):
        paged.read(np.array([2500]))
    (tmp_path / "people.csv").unlink()
    with pytest.raises(InputError, match="was removed while it was read"):
        paged.read(np.array([2500]))


def test_files_that_cannot_be_read_are_reported(tmp_path, monkeypatch):
    (tmp_path / "people.csv").mkdir()
    split = split_of(str(tmp_path / "train.yaml"), source="csv", path="people.csv", header=True)
    with pytest.raises(InputError, match="is not a file"):
        split.open()
    (tmp_path / "people.csv").rmdir()
    (tmp_path / "people.csv").write_text("a\n1\n")

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="cannot read") as error:
        split.open()
    assert error.value.problems[0].got == "Permission denied"


DATASETS = os.environ.get("NETSPEC_DATASETS")
ADULT_NUMBERS = ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
ADULT_NAMES = [
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
]


def adult(file: str, **fields: Any) -> Any:
    columns: dict[str, Any] = dict.fromkeys(ADULT_NUMBERS, "numeric")
    columns |= {name: {"type": "categorical", "unknown": "index", "missing": "unknown"} for name in ADULT_NAMES}
    columns["Y"] = {"type": "categorical", "replace": {"<=50K.": "<=50K", ">50K.": ">50K"}}
    settings = {"path": f"{DATASETS}/adult/{file}", "header": True, "columns": columns, "label": "Y", **fields}
    return split_of(source="csv", **settings)


@pytest.mark.skipif(DATASETS is None, reason="NETSPEC_DATASETS does not name a folder with adult/adult.data")
def test_adult_has_exactly_its_rows():
    train = adult("adult.data").open()
    test = adult("adult.test").open(learned=train.learned)
    assert (len(train), len(test)) == (32561, 16281)
    fields = train.read(np.arange(len(train)))
    assert fields["features"].shape == (32561, 113)
    assert int(fields["label"].sum()) == 7841
    assert int(test.read(np.arange(len(test)))["label"].sum()) == 3846
    assert train.classes == {"label": ("<=50K", ">50K")}
    first = fields["features"][0]
    assert first[:6].tolist() == [39, 77516, 13, 2174, 0, 40]
    assert np.flatnonzero(first[6:]).size == 8  # one of each category
    assert digest_of(fields) == "7f612bc1872f1003"
    with open_loader(adult("adult.data", shuffle=True, batch_size=500), seed=7) as loader:
        batches = iter(loader)
        drawn = np.concatenate([next(batches).indices for _ in range(66)])
        assert sorted(drawn.tolist()) == list(range(32561))
        assert hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest()[:16] == "2b312cd9fc5f9344"
    paged = adult("adult.data", cache=0).open()
    np.testing.assert_array_equal(paged.read(np.arange(32561))["features"], fields["features"])


def digest_of(fields: Any) -> str:
    digest = hashlib.sha256()
    for name in sorted(fields):
        digest.update(np.ascontiguousarray(fields[name]).tobytes())
    return digest.hexdigest()[:16]


BAD_TOLD = """\
./people.csv:2:9: error: column `born` has no date here that can be read
  2 | 30,Bern,1990-02-30
    |         ^
  expected: ISO 8601, such as 2026-11-20
  got: '1990-02-30'
  hint: `format` says how dates are written: `%d.%m.%Y`, `%m/%d/%y %H:%M`
  requested at ./train.yaml:3:7
./people.csv:3:1: error: column `age` has text here
  3 | 4x,Thun,
    | ^
  expected: a number
  got: '4x'
  requested at ./train.yaml:3:7
./people.csv:3:4: error: 'Thun' is not a declared category
  3 | 4x,Thun,
    |    ^
  expected: one of Bern, Chur
  hint: `unknown: index` gives unknown categories an index of their own
  requested at ./train.yaml:3:7
./people.csv:3:9: error: column `born` has no value here
  3 | 4x,Thun,
    |         ^
  expected: a date
  got: an empty cell
  hint: fill the cell, or train with `missing: mean` to use the mean of each part of the date, or \
`missing: drop` to leave such rows out
  requested at ./train.yaml:3:7
./people.csv:4:1: error: column `age` has no value here
  4 | ,?,1990-01-01
    | ^
  expected: a number
  got: an empty cell
  hint: fill the cell, or train with `missing: 0` (any number) or `missing: median` to replace it
  requested at ./train.yaml:3:7
./people.csv:4:2: error: column `town` has no value here
  4 | ,?,1990-01-01
    |  ^
  expected: a category
  got: '?'
  hint: fill the cell, or train with `missing: most_frequent`, `missing: drop`, or `missing: unknown`
  requested at ./train.yaml:3:7
./people.csv:5:1: error: column `age` has a number that float32 cannot hold
  5 | 1e99,Bern,1990-01-01
    | ^
  got: 1e99
  requested at ./train.yaml:3:7
./people.csv:6:1: error: this row has 2 cells
  6 | inf,Chur
    | ^
  expected: 3, as in the header
  requested at ./train.yaml:3:7
./people.csv:7:1: error: this row has 4 cells
  7 | nan,Bern,1990-01-01,7
    | ^
  expected: 3, as in the header
  requested at ./train.yaml:3:7
9 errors"""
