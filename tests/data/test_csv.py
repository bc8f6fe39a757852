"""Tables: which columns become which fields, and reports of bad cells with their lines and columns."""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from netspec.data.base import Dataset, FieldType
from netspec.data.loader import Loader
from netspec.data.tabular import csv
from netspec.data.tabular.csv import likely_delimiter
from netspec.errors import InputError
from netspec.schema.specs.data import SOURCES
from tests.data.conftest import arrays_of, problems_of, split_of

IRIS = """\
sepal, petal, species
5.1, 1.4, setosa
7.0, 4.7, versicolor

6.3, 6.0, virginica
4.9, 1.5, setosa
"""


def table(folder: Path, text: str | bytes, **fields: Any) -> Dataset:
    path = folder / "some.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return split_of(str(folder / "train.yaml"), source="csv", path="some.csv", **{"header": True, **fields}).open()


def everything(data: Dataset) -> dict[str, list]:
    return {name: values.tolist() for name, values in arrays_of(data, np.arange(len(data))).items()}


def test_class_names_become_indices(tmp_path):
    data = table(tmp_path, IRIS, label="species")
    assert data.fields == {"features": FieldType((2,), "float32"), "label": FieldType((), "int32")}
    assert data.classes == {"label": ("setosa", "versicolor", "virginica")}
    arrays = everything(data)
    assert arrays["label"] == [0, 1, 2, 0]
    np.testing.assert_array_equal(
        arrays["features"], np.array([[5.1, 1.4], [7, 4.7], [6.3, 6], [4.9, 1.5]], np.float32)
    )
    assert data.describe(2) == "some.csv, line 5"  # the blank line counts as a line


def test_declared_classes_decide_the_indices(tmp_path):
    data = table(tmp_path, IRIS, label="species", classes=["virginica", "other", "versicolor", "setosa"])
    assert everything(data)["label"] == [3, 2, 0, 3]


def test_columns_are_selected_by_name_or_number_in_any_order(tmp_path):
    assert everything(table(tmp_path, IRIS, columns=["petal"]))["features"] == [
        [np.float32(x)] for x in (1.4, 4.7, 6, 1.5)
    ]
    by_number = everything(table(tmp_path, IRIS, columns=[2, 1], label=3))
    assert by_number["features"][1] == [np.float32(4.7), 7]
    assert by_number["label"] == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("labels", "dtype", "expected"),
    [
        (["1", "0", "2"], "int32", [1, 0, 2]),
        (["1.0", "0", "16777217"], "int32", [1, 0, 16777217]),
        (["1.5", "0", "-2"], "float32", [1.5, 0, -2]),
        (["3e9", "0", "1"], "float32", [3e9, 0, 1]),
    ],
)
def test_numeric_labels(tmp_path, labels, dtype, expected):
    data = table(tmp_path, "".join(f"7,{label}\n" for label in labels), header=False, label=2)
    assert data.fields["label"] == FieldType((), dtype)
    assert everything(data)["label"] == expected
    assert data.classes == {}


def test_other_delimiters_quotes_byte_order_marks_and_line_ends(tmp_path):
    text = '\ufeffa;"b;c";d\r\n1;2;"x; y"\r\n3;4;"say ""z"""\r\n'
    data = table(tmp_path, text, delimiter=";", columns=["a", "b;c"], label="d")
    assert everything(data)["features"] == [[1, 2], [3, 4]]
    assert data.classes == {"label": ('say "z"', "x; y")}


def test_missing_values_can_be_replaced_by_a_number(tmp_path):
    data = table(tmp_path, "a,b\n1,\n?,2\nNA,nan\n", missing=-1)
    assert everything(data)["features"] == [[1, -1], [-1, 2], [-1, -1]]


@pytest.mark.parametrize(
    ("name", "text", "fields"),
    [
        ("cells", "a,b,c\n1,,x\n 2 ,  oops,y\n1e99,inf,z\n", {"columns": ["a", "b"]}),
        ("text", "a,b\n1,x\n2,y\nthree,z\n", {}),
        ("ragged", "a,b\n1,2\n1,2,3\n4\n", {}),
        ("delimiter", "a;b\n1;2\n", {"columns": ["a", "b"]}),
        ("classes", "a,b\n1,setosa\n2,sitosa\n3,\n", {"label": "b", "classes": ["setosa", "virginica"]}),
        ("labels", "a,b\n1,0\n2,1O\n3,?\n", {"label": "b"}),
        ("quotes", 'a,b\n1,2\n"3,4\n', {}),
        ("carriage return", "a,b\n1,2\n3,4\r5,6\n", {}),
        ("carriage returns alone", "a,b\r1,2\r3,4\r", {}),
        ("carriage returns alone", '"a","b"\r1,2\r', {}),
        ("header", "1,2\n3,4\n", {"header": False, "columns": ["a", 3], "label": 2}),
        ("twice", "a,a\n3,4\n", {"columns": ["a"]}),
        ("empty", "", {}),
        ("only header", "a,b\n", {}),
        ("utf-8", b"a,b\n1,\xff\n", {}),
    ],
)
def test_all_problems_are_reported_with_their_location(tmp_path, name, text, fields):
    with pytest.raises(InputError) as error:
        table(tmp_path, text, **fields)
    assert problems_of(error, tmp_path) == ERRORS[name]


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b\n1,2\n", ","),
        ("a|b\n1|2\n", "|"),
        ("size;colour, shape, style\n1;red\n2;blue\n", ";"),
        ('"a\nb"\tc\n1\t2\n', "\t"),
        ("text\nall in one column\n", ","),
        ("\n", ","),
    ],
)
def test_the_delimiter_of_regular_rows_is_likely(tmp_path, text, delimiter):
    (tmp_path / "a.csv").write_text(text)
    assert likely_delimiter(tmp_path / "a.csv") == delimiter


@pytest.mark.parametrize("delimiter", ['"', "\n", "\r", "\0", "", ",,"])
def test_invalid_delimiters_are_refused(delimiter):
    with pytest.raises(ValidationError, match="delimiter"):
        SOURCES["csv"].model_validate({"path": "a.csv", "header": True, "batch_size": 1, "delimiter": delimiter})


@pytest.mark.parametrize(
    ("text", "fields", "written"),
    [
        ("a;b;c\n1;2;0\n", {}, '";"'),
        ("a;b\n1,5;2\n", {}, '";"'),
        ("a\tb\n1\t2\n", {"label": "b"}, '"\\t"'),
        ("a,b\n1,2\n", {"delimiter": ";"}, '","'),
        ("1 2\n3 4\n", {"header": False}, '" "'),
    ],
)
def test_the_delimiter_found_in_the_file_is_suggested(tmp_path, text, fields, written):
    with pytest.raises(InputError) as error:
        table(tmp_path, text, **fields)
    assert error.value.problems[0].hint == f"the line is a single cell: for this file set `delimiter: {written}`"


def test_blanks_around_cells_are_stripped(tmp_path):
    assert everything(table(tmp_path, "a b\n1 2\n", delimiter=" "))["features"] == [[1, 2]]


def test_the_same_fault_in_every_row_is_shown_five_times_and_counted(tmp_path):
    with pytest.raises(InputError) as error:
        table(tmp_path, "a,b\n1,2\n" + "x,y\n" * 10_000)
    messages = [problem.message for problem in error.value.problems]
    path = tmp_path / "some.csv"
    assert messages == [f"column `{name}` has text here" for name in "ab"] * 5 + [
        f"{path}: 9,995 more rows: column `{name}` has text here" for name in "ab"
    ]


def test_a_value_that_is_not_declared_is_shown_once_for_each_column_and_counted(tmp_path):
    category = {"type": "categorical", "vocabulary": ["p"]}
    rows = "p,p\n" + "q,p\n" * 70_000 + "p,q\np,r\np,q\n"
    with pytest.raises(InputError) as error:
        table(tmp_path, "a,b\n" + rows, columns={"a": category, "b": category}, label="b")
    found = [(problem.message, problem.location, problem.got) for problem in error.value.problems]
    assert [(message, location.line if location else 0, got) for message, location, got in found] == [
        ("'q' is not a declared category", 3, "70,000 rows with it; this is the first"),
        ("'q' is not a declared class", 70_003, "2 rows with it; this is the first"),
        ("'r' is not a declared class", 70_004, None),
    ]


def test_reading_stops_after_too_many_different_problems(tmp_path):
    rows = "".join(f"1,{number}x\n" for number in range(10_000))
    with pytest.raises(InputError) as error:
        table(tmp_path, "a,b\n1,2\n" + rows, label="b", classes=["2"])
    assert len(error.value.problems) == 100


@pytest.mark.parametrize("fields", [{}, {"label": "b"}, {"columns": ["b"]}, {"label": "a", "columns": [2]}])
def test_duplicate_column_names_are_refused(tmp_path, fields):
    with pytest.raises(InputError, match="two columns are called 'a'"):
        table(tmp_path, "a,b,a\n1,2,3\n", **fields)


def test_a_label_whose_first_values_are_missing_has_classes(tmp_path, monkeypatch):
    monkeypatch.setattr(csv, "BLOCK", 2)
    data = table(tmp_path, "a,b\n1,\n2,\n3,7\n4,5\n", label="b", on_error="skip")
    assert data.classes == {"label": ("5", "7")}
    assert everything(data)["label"] == [1, 0]


def test_duplicate_names_are_allowed_if_columns_are_selected_by_number(tmp_path):
    data = table(tmp_path, "a,b,a\n1,2,3\n", columns=[3, 1], label=2)
    assert everything(data) == {"features": [[3, 1]], "label": [2]}
    # Empty names do not count as duplicates.
    assert everything(table(tmp_path, ",,b\n1,2,3\n"))["features"] == [[1, 2, 3]]


def test_other_splits_must_have_the_classes_of_the_training_data(tmp_path):
    train = Loader(table(tmp_path, IRIS, label="species"), split_of(source="npz", path="unused"), seed=1)
    other = table(tmp_path, "a,b,species\n1,2,setosa\n1,2,rosa\n", label="species")
    with pytest.raises(InputError) as error:
        Loader(other, split_of(source="npz", path="unused"), seed=1, learned=train.learned)
    assert error.value.render() == ERRORS["other classes"]


numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(rows=st.lists(st.tuples(numbers, numbers, st.integers(-5, 5)), min_size=1, max_size=20))
def test_numbers_read_back_exactly(tmp_path_factory, rows):
    text = "".join(f"{a!r}\t{label}\t{b!r}\n" for a, b, label in rows)
    data = table(tmp_path_factory.mktemp("csv"), text, header=False, delimiter="\t", label=2)
    assert everything(data) == {"features": [[a, b] for a, b, _ in rows], "label": [label for *_, label in rows]}


@given(text=st.text(alphabet='ab1,"\n\r\0 .', max_size=60) | st.binary(max_size=40))
def test_any_text_is_read_or_reported(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("csv")
    samples = None
    with suppress(InputError):  # any other exception is a failure
        samples = len(table(folder, text, label=1))
    assert samples != 0


ERRORS = {
    "cells": """\
./some.csv:2:3: error: column `b` has no value here
  2 | 1,,x
    |   ^
  expected: a number
  got: an empty cell
  hint: fill the cell, or train with `missing: 0` (any number) or `missing: median` to replace it
  requested at ./train.yaml:3:7
./some.csv:3:7: error: column `b` has text here
  3 |  2 ,  oops,y
    |       ^
  expected: a number
  got: 'oops'
  requested at ./train.yaml:3:7
./some.csv:4:1: error: column `a` has a number that float32 cannot hold
  4 | 1e99,inf,z
    | ^
  got: 1e99
  requested at ./train.yaml:3:7
./some.csv:4:6: error: column `b` has a number that float32 cannot hold
  4 | 1e99,inf,z
    |      ^
  got: inf
  requested at ./train.yaml:3:7
4 errors""",
    "text": """\
./some.csv:2:3: error: column `b` holds text
  2 | 1,x
    |   ^
  expected: numbers
  got: 'x'
  hint: leave columns of text out, or declare what they hold: `columns: {b: categorical, …}`
  requested at ./train.yaml:3:7
./some.csv:4:1: error: column `a` has text here
  4 | three,z
    | ^
  expected: a number
  got: 'three'
  requested at ./train.yaml:3:7
2 errors""",
    "ragged": """\
./some.csv:3:1: error: this row has 3 cells
  3 | 1,2,3
    | ^
  expected: 2, as in the header
  requested at ./train.yaml:3:7
./some.csv:4:1: error: this row has 1 cell
  4 | 4
    | ^
  expected: 2, as in the header
  requested at ./train.yaml:3:7
2 errors""",
    "delimiter": """\
./train.yaml:1:1: error: ./some.csv has no column 'a'
  at: columns.0
  expected: one of a;b
  hint: the line is a single cell: for this file set `delimiter: ";"`
./train.yaml:1:1: error: ./some.csv has no column 'b'
  at: columns.1
  expected: one of a;b
  hint: the line is a single cell: for this file set `delimiter: ";"`
2 errors""",
    "classes": """\
./some.csv:3:3: error: 'sitosa' is not a declared class
  3 | 2,sitosa
    |   ^
  expected: one of setosa, virginica
  hint: did you mean `setosa`?
  requested at ./train.yaml:3:7
./some.csv:4:3: error: the label `b` has no value here
  4 | 3,
    |   ^
  expected: a label in every row
  got: an empty cell
  requested at ./train.yaml:3:7
2 errors""",
    "labels": """\
./some.csv:3:3: error: the label `b` is not a number here, as it is in other rows
  3 | 2,1O
    |   ^
  expected: a finite number
  got: '1O'
  hint: if the labels are names of classes, declare them in `classes`
  requested at ./train.yaml:3:7
./some.csv:4:3: error: the label `b` has no value here
  4 | 3,?
    |   ^
  expected: a label in every row
  got: '?'
  requested at ./train.yaml:3:7
2 errors""",
    "carriage return": """\
./some.csv:3:1: error: this row cannot be read
  3 | 3,4\\r5,6
    | ^
  expected: cells in matching quotes, of at most 1,048,576 characters
  got: a carriage return outside of quotes
  requested at ./train.yaml:3:7""",
    "carriage returns alone": """\
./train.yaml:3:7: error: the lines of ./some.csv end with carriage returns alone
  at: path
  expected: lines that end with line feeds
  hint: convert it: `tr '\\r' '\\n' < some.csv > new.csv`""",
    "quotes": """\
./some.csv:3:1: error: this row cannot be read
  3 | "3,4
    | ^
  expected: cells in matching quotes, of at most 1,048,576 characters
  got: unexpected end of data
  hint: `quotes: false` takes quotation marks as they are
  requested at ./train.yaml:3:7""",
    "header": """\
./train.yaml:1:1: error: column 'a' is named, but the table has no header
  at: columns.0
  expected: a number from 1 to 2
  hint: if the first line holds names, set `header: true`; otherwise list them in `header: [...]`
./train.yaml:1:1: error: ./some.csv has no column 3
  at: columns.1
  expected: a number from 1 to 2
2 errors""",
    "twice": """\
./some.csv:1:3: error: two columns are called 'a'
  1 | a,a
    |   ^
  expected: a different name for each column
  hint: or select columns by number in `columns` and `label`
  requested at ./train.yaml:3:7""",
    "empty": """\
./train.yaml:3:7: error: ./some.csv is empty
  at: path
  expected: a table""",
    "only header": """\
./train.yaml:3:7: error: ./some.csv has no rows
  at: path
  expected: one row or more below the header""",
    "utf-8": """\
./some.csv:2:3: error: this row is not UTF-8 text
  2 | 1,�
    |   ^
  expected: text in UTF-8
  got: the byte 0xff
  hint: `encoding` can be `latin-1` or `cp1252` too, which older programs write
  requested at ./train.yaml:3:7""",
    "other classes": """\
train.yaml:2:9: error: the classes of `label` are not those of the training split
  at: source
  expected: setosa, versicolor, virginica
  got: lacks versicolor, virginica; also has rosa
  hint: declare the same `classes` in both splits""",
}


def test_if_all_rows_are_skipped_some_are_reported(tmp_path):
    text = "a,b\n" + "1\n" * 20
    with pytest.raises(InputError, match="all 20 rows") as error:
        table(tmp_path, text, header=True, on_error="skip")
    problems = error.value.problems[1:]
    assert len(problems) == 5
    assert {problem.message for problem in problems} == {"this row has 1 cell"}


def test_cells_can_hold_long_texts(tmp_path, monkeypatch):
    monkeypatch.setattr("netspec.data.tabular.csv.BLOCK_BYTES", 2**18)
    rows = [f"{'word ' * 30_000},{number}" for number in range(7)]
    columns = {"t": {"type": "text", "tokenizer": {"type": "words", "padding": True}, "length": 3}, "n": "numeric"}
    data = table(tmp_path, "\n".join(["t,n", *rows]), header=True, columns=columns)
    arrays = arrays_of(data, np.arange(7))
    assert arrays["features"][:, 0].tolist() == list(range(7))
    assert len(np.unique(arrays["t"])) == 1


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ('"Bonn, am Rhein",x', 18),
        ('"a ""b"", c", "x"', 15),
        ('Bonn,  "x"', 8),
        ('"","x"', 4),
        ('"two\nlines",x', 1),
    ],
)
def test_a_cell_after_quotes_is_located(tmp_path, row, column):
    with pytest.raises(InputError) as error:
        table(tmp_path, f"city,b\nRome,1\n{row}\n", header=True, columns={"b": "numeric"})
    location = error.value.problems[0].location
    assert location is not None
    assert (location.line, location.column) == (3, column)


def test_the_first_skipped_rows_are_named(tmp_path):
    data = table(tmp_path, "a,b\n1,2\n1\n1,x\n", header=True, on_error="skip", label="a")
    path = tmp_path / "some.csv"
    assert (len(data), data.skipped) == (1, 2)
    assert data.damaged == [f"{path}:3:1: this row has 1 cell", f"{path}:4:3: column `b` has text here: 'x'"]
    many = table(tmp_path, "a,b\n1,2\n" + "1\n" * 20, header=True, on_error="skip", label="a")
    assert (many.skipped, len(many.damaged)) == (20, 5)


@pytest.mark.parametrize(("columns", "label"), [(["a", "y"], "y"), ([1, 2], 2), ([1, "y"], 2)])
def test_the_label_is_not_an_input(tmp_path, columns, label):
    with pytest.raises(InputError) as error:
        table(tmp_path, "a,y\n1,0\n", header=True, columns=columns, label=label)
    (problem,) = error.value.problems
    assert problem.message == f"column {columns[1]!r} cannot be both the label and an input"
    assert problem.path == "columns.1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "gzipped data"),
        ("a,b\n1,2\n".encode("utf-16"), "text in UTF-16"),
        (b"PAR1\x15\x04", "a Parquet file"),
    ],
)
def test_files_of_other_formats_are_named(tmp_path, content, message):
    with pytest.raises(InputError, match=f"got: {message}"):
        table(tmp_path, content, header=True)


def test_columns_of_another_split_are_matched_by_name(tmp_path):
    learned = table(tmp_path, "a,b,y,c\n1,2,0,3\n", header=True, label="y").learned
    options: dict[str, Any] = {"source": "csv", "path": "other.csv", "header": True, "label": "y"}
    split, other = split_of(str(tmp_path / "train.yaml"), **options), tmp_path / "other.csv"
    other.write_text("y,c,a,b\n1,30,10,20\n")
    assert everything(split.open(learned=learned)) == {"features": [[10, 20, 30]], "label": [1]}
    other.write_text("a,d,y,c\n1,2,0,3\n")
    with pytest.raises(InputError) as error:
        split.open(learned=learned)
    (problem,) = error.value.problems
    assert problem.location is not None
    assert (problem.location.file, problem.location.line) == (str(other), 1)
    assert (problem.expected, problem.got) == ("a, b, c", "lacks b; also has d")


@pytest.mark.parametrize(("odd", "message"), [("0.5", "not an integer"), ("99999999999", "out of range")])
def test_a_non_integer_label_is_reported(tmp_path, odd, message):
    text = f"a,y\n1,0\n2,1\n3,{odd}\n4,1\n"
    split: dict[str, Any] = {"path": "unused", "source": "npz", "batch_size": 4}
    inputs = {"features": FieldType((1,), "float32"), "label": FieldType((), "int32")}
    data = table(tmp_path, text, header=True, label="y")
    with pytest.raises(InputError, match=f"some.csv:4:3: error: the label `y` is {message} here"):
        Loader(data, split_of(**split), seed=1, inputs=inputs)
    with Loader(data, split_of(**split, on_error="skip"), seed=1, inputs=inputs) as loader:
        (batch,) = loader.one_pass()
    assert batch.inputs["label"].tolist() == [0, 1, 1]
    assert [str(damage) for damage in batch.skipped] == [
        f"a value for `label` does not fit in int32: {float(np.float32(odd))} in some.csv, line 4"
    ]
    floats = {**inputs, "label": FieldType((), "float32")}
    assert len(list(Loader(data, split_of(**split), seed=1, inputs=floats).one_pass())) == 1  # a regression target


def test_an_empty_cell_of_a_single_column_is_a_row(tmp_path):
    text = '# sizes\nsize\n1\n""\n\n  \n2\n'
    data = table(tmp_path, text, columns={"size": {"type": "numeric", "missing": 7}}, comment="#")
    assert everything(data)["features"] == [[1], [7], [2]]
    assert data.describe(2) == "some.csv, line 7"


def test_a_line_of_names_in_other_notation_than_the_declared_header_is_recognized(tmp_path):
    with pytest.raises(InputError) as error:
        table(tmp_path, "Hours_per_week,label\n40,0\n35,1\n", header=["hours-per-week", "label"], label="label")
    assert error.value.problems[0].hint == (
        "this line looks like the names of the columns: skip one more line with `skip_lines`"
    )
