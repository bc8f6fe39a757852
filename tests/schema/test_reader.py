"""The YAML reader: scalars by the 1.2 rules, locations, and refused input."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from netspec.errors import InputError, SpecError
from netspec.schema.yaml import reader
from netspec.schema.yaml.flow_style import flow
from netspec.schema.yaml.reader import parse_yaml, read_yaml
from netspec.schema.yaml.scalars import MAX_INT
from netspec.schema.yaml.tree import Map, Seq, locate, walk

SCALARS = [
    ("1e-4", 1e-4),
    ("1.e3", 1000.0),
    (".5", 0.5),
    ("-0", 0),
    ("+7", 7),
    ("012", 12),
    ("0o17", 15),
    ("0xFf", 255),
    (".inf", math.inf),
    ("-.INF", -math.inf),
    ("no", "no"),
    ("yes", "yes"),
    ("on", "on"),
    ("Off", "Off"),
    ("y", "y"),
    ("True", True),
    ("false", False),
    ("tRUE", "tRUE"),
    ("null", None),
    ("~", None),
    ("", None),
    ("Null", None),
    ("2024-01-01", "2024-01-01"),
    ("12:30:45", "12:30:45"),
    ("1_000", "1_000"),
    ("0b11", "0b11"),
    ("-", "-"),
    (".", "."),
    ("e5", "e5"),
    ('"1"', "1"),
    ("'true'", "true"),
    ("!!str 1", "1"),
    ("!!float 1", 1.0),
    ("1.", 1.0),
]


@pytest.mark.parametrize(("text", "value"), SCALARS, ids=[text or "empty" for text, _ in SCALARS])
def test_scalars_follow_yaml_1_2(text, value):
    if text == "-":
        text = "'-'"
    result = parse_yaml(f"a: {text}\n", "t")["a"]
    assert result == value
    assert type(result) is type(value)


def test_not_a_number():
    assert math.isnan(parse_yaml("a: .NaN", "t")["a"])


@given(st.one_of(st.integers(-MAX_INT, MAX_INT), st.floats(allow_nan=False), st.booleans(), st.none()))
def test_numbers_round_trip(value):
    text = repr(value).replace("inf", ".inf") if isinstance(value, float) else json.dumps(value)
    result = parse_yaml(f"a: {text}\n", "t")["a"]
    assert result == value
    assert type(result) is type(value)


REFUSED = {
    "duplicate key": ("a: 1\nb: 2\na: 3\n", "t:3:1", "the key `a` is given twice"),
    "duplicate merge": ("x: &x {a: 1}\ny:\n  <<: *x\n  <<: *x\n", "t:4:3", "the key `<<` is given twice"),
    "number as key": ("1.5: 2\n", "t:1:1", "the key `1.5` is a number"),
    "number written otherwise as key": ("012: 2\n", "t:1:1", "the key `012` is a number"),
    "boolean as key": ("a: {true: 2}\n", "t:1:5", "the key `true` is a boolean"),
    "list as key": ("? [a]\n: 1\n", "t:1:3", "a key must be text"),
    "python tag": ("a: !!python/name:os.system x\n", "t:1:4", "the tag `!!python/name:os.system` is not allowed"),
    "local tag": ("a: !foo {b: 1}\n", "t:1:4", "the tag `!foo` is not allowed"),
    "undeclared tag handle": ("a: !e!foo 1\n", "t:1:4", "this tag is unknown"),
    "wrong tag": ("a: !!int x\n", "t:1:4", "'x' is not of YAML's type `!!int`"),
    "unknown alias": ("a: *b\n", "t:1:4", "there is no anchor `&b` before this alias"),
    "recursive alias": ("a: &a [*a]\n", "t:1:8", "the alias `*a` is inside the value that it refers to"),
    "merge of a scalar": ("a: {<<: 1}\n", "t:1:9", "`<<` can only merge mappings"),
    "two documents": ("a: 1\n---\nb: 2\n", "t:2:1", "a second document starts here"),
    "empty": ("# nothing\n", "t:1:1", "the file is empty"),
    "list": ("- a\n", "t:1:1", "the document is not a mapping"),
    "scalar": ("hello\n", "t:1:1", "the document is not a mapping"),
    "tab": ("a:\n\tb: 1\n", "t:2:1", "tabs cannot be used for indentation"),
    "unclosed list": ("a: [1, 2\nb: 3\n", "t:2:2", "this list is not closed"),
    "unclosed mapping": ("a: {b: 1\n", "t:2:1", "this mapping is not closed"),
    "unclosed quote": ("a: 'b\n", "t:1:4", "a quoted text is not closed"),
    "colon in text": ("a: b: c\n", "t:1:5", "a second `:` in the line"),
    "reserved character": ("a: @b\n", "t:1:4", "text cannot start with `@`"),
    "indentation": ("a:\n  b: 1\n c: 2\n", "t:3:2", "unexpected indentation"),
    "control character": ("a: b\x07\n", "t:1:5", "the character U+0007 is not allowed"),
    "unknown escape": ('a: "\\q"\n', "t:1:6", "this escape is unknown"),
    "half a character": ('a: "\\ud83d"\n', "t:1:4", "a surrogate without its pair"),
    "too many digits": (f"a: {'9' * 500}\n", "t:1:4", "a number of 500 digits is longer than 400"),
    "too large": ("a: 1e999\n", "t:1:4", "1e999 is too large for a 64-bit"),
    "too deep": ("a: " + "[" * 200 + "]" * 200, "t:1:104", "nested too deeply"),
    "deep by aliases": (
        "a: &a " + "[" * 60 + "]" * 60 + "\nb: " + "[" * 60 + "*a" + "]" * 60,
        "t:2:64",
        "nested too deeply",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_and_their_locations(case):
    text, position, message = REFUSED[case]
    with pytest.raises(SpecError) as caught:
        parse_yaml(text, "t")
    (problem,) = caught.value.problems
    assert str(problem.location) == position
    assert problem.message.startswith(message) or message in problem.message


@pytest.mark.parametrize("case", REFUSED)
def test_the_python_parser_reports_the_same(case, monkeypatch):
    text, position, message = REFUSED[case]
    monkeypatch.setattr(reader, "cyaml", None)
    with pytest.raises(SpecError) as caught:
        parse_yaml(text, "t")
    assert [str(problem.location) for problem in caught.value.problems] == [position]
    assert message in caught.value.problems[0].message


def test_an_expression_in_braces_needs_quotes():
    with pytest.raises(SpecError) as caught:
        parse_yaml("layer: {units: ${width}, name: x}\n", "t")
    assert caught.value.problems[0].hint == 'inside [ ] or { } an expression needs quotes: "${…}"'


def test_all_problems_of_a_file_at_once():
    with pytest.raises(SpecError) as caught:
        parse_yaml("a: 1\na: 2\n3.5: x\nb: !foo 1\nc: *d\n", "t")
    assert [str(problem.location) for problem in caught.value.problems] == ["t:2:1", "t:3:1", "t:4:4", "t:5:4"]
    assert caught.value.problems[0].hint == "the first one is at t:1:1"


def test_merge_keys_let_what_is_written_win():
    tree = parse_yaml("one: &one {a: 1, b: 1}\ntwo: &two {b: 2, c: 2}\nall:\n  <<: [*one, *two]\n  a: 9\n", "t")
    assert tree["all"] == {"a": 9, "b": 1, "c": 2}
    assert str(locate(tree, ("all", "b"))[0]) == "t:1:21"
    assert str(locate(tree, ("all", "c"))[0]) == "t:2:21"


def test_aliases_are_copies():
    tree = parse_yaml("a: &a {x: [1]}\nb: *a\n", "t")
    tree["a"]["x"].append(2)
    assert tree["b"] == {"x": [1]}


def test_a_billion_laughs():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(SpecError, match="too large"):
        parse_yaml("\n".join(lines), "t")


def test_bom_and_windows_line_ends(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes("\ufeffa: 1\r\nb: ü\r\n".encode())
    tree = read_yaml(path)
    assert tree == {"a": 1, "b": "ü"}
    assert tree.value_at["b"].text == "b: ü"


def test_files_that_cannot_be_read(folder):
    (folder / "train.yaml").write_text("a: 1")
    (folder / "latin.yaml").write_bytes(b"a: 1\nb: caf\xe9\n")
    (folder / "large.yaml").write_bytes(b"#" * (reader.MAX_BYTES + 1))
    with pytest.raises(InputError) as caught:
        read_yaml("trian.yaml")
    assert caught.value.render() == "error: no such file: trian.yaml\n  hint: did you mean `train.yaml`?"
    with pytest.raises(InputError, match="is a directory") as caught:
        read_yaml(folder)
    assert caught.value.problems[0].hint == "it contains large.yaml, latin.yaml, train.yaml"
    with pytest.raises(InputError, match="not UTF-8") as caught:
        read_yaml("latin.yaml")
    assert str(caught.value.problems[0].location) == "latin.yaml:2:7"
    with pytest.raises(InputError, match="too large"):
        read_yaml("large.yaml")
    with pytest.raises(InputError, match="no such file"):
        read_yaml("none/at/all.yaml")
    with pytest.raises(InputError):
        read_yaml("zero\0byte")


KEYS = st.text(st.characters(whitelist_categories=("Lu", "Ll")), min_size=1, max_size=5)
TREES = st.recursive(
    st.one_of(st.integers(-MAX_INT, MAX_INT), st.booleans(), st.text(max_size=8)),
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(KEYS, below, max_size=4)),
    max_leaves=20,
)


def written(value: Any, indent: int = 0) -> str:
    """JSON on several lines; at its location, each scalar is found in the text."""
    pad = "  " * indent
    if isinstance(value, dict):
        items = [f"{pad}  {json.dumps(key)}: {written(item, indent + 1).lstrip()}" for key, item in value.items()]
        return f"{pad}{{\n" + ",\n".join(items) + f"\n{pad}}}"
    if isinstance(value, list):
        return f"{pad}[\n" + ",\n".join(written(item, indent + 1) for item in value) + f"\n{pad}]"
    return pad + _escaped(value)


def _escaped(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    return '"' + "".join(f"\\U{ord(char):08x}" for char in value) + '"'


@given(st.dictionaries(KEYS, TREES, min_size=1, max_size=4))
def test_location_of_every_value_is_correct(value):
    text = written(value)
    tree = parse_yaml(text, "t")
    assert tree == value
    lines = text.split("\n")
    for path, item in walk(tree):
        location, walked = locate(tree, path)
        assert walked == path
        assert location is not None
        text_from_location = lines[location.line - 1][location.column - 1 :]
        assert location.text == lines[location.line - 1]
        start = "{" if isinstance(item, Map) else "[" if isinstance(item, Seq) else _escaped(item)
        assert text_from_location.startswith(start)


@given(st.text(max_size=60) | st.text("abc:-[]{}&*!|>'\"%@`#,? \n\t~<1.e", max_size=60))
def test_any_text_is_read_or_refused(text):
    refused: SpecError | None = None
    try:
        tree = parse_yaml(text, "t")
    except SpecError as error:
        refused = error
    else:
        assert isinstance(tree, Map)
    assert refused is None or all(problem.location and problem.render() for problem in refused.problems)


PROTOTXT = 'name: "LeNet"\nlayer {\n  name: "data"\n  type: "Input"\n}\n'


@pytest.mark.parametrize("name", ["lenet.prototxt", "LENET.PROTOTXT", "lenet.yaml", "lenet.txt"])
def test_a_prototxt_is_identified_with_a_hint_to_import_it(tmp_path, name):
    (tmp_path / name).write_text(PROTOTXT)
    with pytest.raises(InputError, match="is a net or solver of Caffe") as caught:
        read_yaml(tmp_path / name)
    (problem,) = caught.value.problems
    assert problem.hint is not None
    assert f"`netspec import {tmp_path / name} --output DIR`" in problem.hint


@pytest.mark.parametrize(
    ("name", "kind", "hint"),
    [
        ("net.onnx", "is an ONNX model", "`netspec import {} --output DIR`"),
        ("net.keras", "is a model of Keras", "`netspec import {} --output DIR`"),
        ("net.caffemodel", "is weights of Caffe", "`netspec import {} --output DIR`"),
        ("weights.h5", "is an HDF5 file", "`--weights`"),
        ("net.pt", "is a model of PyTorch", "export the model to ONNX"),
        ("table.csv", "is a table", "`{{source: csv, path: {}"),
    ],
)
def test_files_of_other_kinds_are_named_as_such(tmp_path, name, kind, hint):
    path = tmp_path / name
    path.write_bytes(b"\x00\x01")
    with pytest.raises(InputError, match=kind) as caught:
        read_yaml(path)
    assert hint.format(path) in (caught.value.problems[0].hint or "")


def test_bytes_are_no_spec(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_bytes(b"\x1f\x8b\x08\x00\xff")
    with pytest.raises(InputError, match="is not text") as caught:
        read_yaml(path)
    assert caught.value.problems[0].got == "gzipped data"


@given(st.dictionaries(st.text(), st.lists(st.text()), max_size=4))
@example({"Köln": ["٣", "²", "ª", "日本", "a:b", "é:", "-", "\x85", "\u2028", "\ufeff", "😀", "\U000e0001"]})
def test_texts_in_flow_style_are_read_unchanged(data):
    assert parse_yaml(flow(data), "t") == data


@given(st.text("0123456789_.:/-exbotzTZ", min_size=1, max_size=12))
@example("2024-01-01")
@example("2024-1-1T10:30:00Z")
@example("12:30")
@example("1_000")
@example("1e3")
@example("0x1F")
@example("0b11")
@example(".5_0")
@example("yes")
def test_pyyaml_reads_texts_as_texts(text: str) -> None:
    assert yaml.safe_load(f"[{flow(text)}]") == [text]  # in YAML 1.1, more texts are numbers or dates
