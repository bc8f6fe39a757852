"""netspec reports every broken spec of the corpus exactly as the comments of the case say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from netspec.cli import main
from netspec.errors import InputError
from netspec.schema.specs.kinds import REGISTRIES
from netspec.schema.yaml.reader import parse_yaml
from netspec.schema.yaml.tree import walk
from tests.bad_specs.case import OVERRIDES, Case, matches, read_cases, read_topic, write_topic
from tests.bad_specs.show import differences

CASES = read_cases()
BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_problems_are_reported(case: Case) -> None:
    report = case.check()
    assert not differences(case, report)
    report = case.check([]) if case.overrides else report
    if case.topic == OVERRIDES:
        assert case.overrides
        assert report.status == 0
    else:  # wrong without changes, too
        assert report.status == 2
        assert report.problems
        assert all(problem["file"] and problem["line"] and problem["column"] for problem in report.problems)
    assert "Traceback" not in report.stderr
    assert "internal error" not in report.stderr


def test_the_corpus_has_cases_of_every_topic() -> None:
    assert len(CASES) >= 800
    topics = Counter(case.topic for case in CASES)
    assert min(topics.values()) >= 3, topics
    assert len(BY_NAME) == len(CASES)


def test_every_case_has_a_title_and_problems() -> None:
    for case in CASES:
        assert case.title.endswith("."), case.name
        assert case.problems, case.name
        assert all("message" in expected.facts for expected in case.problems), case.name


def test_most_problems_have_a_hint() -> None:
    """At most a tenth of the problems has neither a hint nor an expectation."""
    problems = [expected for case in CASES for expected in case.problems]
    bare = [expected for expected in problems if not {"expected", "hint"} & expected.facts.keys()]
    assert len(bare) <= len(problems) // 10, bare


@pytest.mark.parametrize(
    "name", ["fields/caffe_num_output", "syntax/tab", "pairs/both_files", "overrides/unknown_key"], ids=str
)
def test_the_command_prints_the_location_and_exits_with_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = BY_NAME[name]
    case.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["check", case.file, *case.overrides]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    for expected in case.problems:
        assert f"{expected.file}:{expected.line}:{expected.column}: error: " in printed.err
    assert "Traceback" not in printed.err


def _kind(path: tuple[str | int, ...]) -> str | None:
    """Return the kind of the value at a path of a document, from the keys that lead to it."""
    words = [step for step in path if isinstance(step, str)]
    last = words[-1] if words else ""
    item = bool(path) and isinstance(path[-1], int)
    if item:
        kinds = {"layers": "layer", "losses": "loss", "metrics": "metric", "transforms": "transform"}
        kinds |= {"cells": "cell", "callbacks": "callback"}
        return kinds.get(last)
    if last.endswith(("_initializer", "_regularizer", "_constraint", "activation")):
        return last.rpartition("_")[2]
    if last in ("cell", "layer", "backward_layer"):
        return last.rpartition("_")[2]
    if last in ("learning_rate", "then"):
        return "schedule"
    if words[-2:-1] == ["data"]:
        return "data source"
    if words[-2:-1] == ["columns"]:
        return "column"
    if last == "parallel":
        return "strategy"
    return last if last in ("solver", "tokenizer") else None


def _types_in(case: Case) -> set[tuple[str, Any]]:
    """Return the kinds and types that a case uses."""
    try:
        tree = parse_yaml(case.text, case.name)
    except InputError:
        return set()
    types: set[tuple[str, Any]] = set()
    for path, value in walk(tree):
        kind = _kind(path)
        if kind is not None:
            name = value.get(REGISTRIES[kind].tag) if isinstance(value, dict) else value
            types.add((kind, name if isinstance(name, str) else None))
    return types


def test_every_type_is_in_some_case():
    covered = set().union(*map(_types_in, CASES))
    missing = {(kind, name) for kind, registry in REGISTRIES.items() for name in registry.names()} - covered
    assert not missing, "add cases to tests/bad_specs/*.yaml, then: python -m tests.bad_specs.show --write TOPIC"


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [("a…c", "abc", True), ("a…c", "ac", True), ("a.c", "abc", False), (None, None, True), ("…", None, False)],
)
def test_patterns(pattern, text, fits):
    assert matches(pattern, text) is fits


def test_a_case_reads_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "topic.yaml"
    head = "--- # case\n# Title.\n# with: a=1 ~b\n#\n"
    problems = "# 1:1 layer\n#   message: m\n#   hint: `x: y`\n#   note: n\n# net.yaml:1:2\n"
    file.write_text(head + problems + "layer: []\n--- # other\nlayers: []\n", encoding="utf-8")
    case, other = read_topic(file)
    first, second = case.problems
    assert (case.title, case.overrides, case.text, other.text) == (
        "Title.",
        ["a=1", "~b"],
        "layer: []\n",
        "layers: []\n",
    )
    assert (first.file, first.line, first.column, first.text) == ("case.yaml", 1, 1, "layer")
    assert (first.facts, first.notes) == ({"message": "m", "hint": "`x: y`"}, ["n"])
    assert (second.file, second.line, second.column, second.text) == ("net.yaml", 1, 2, "")
    before = file.read_bytes()
    write_topic(file, [case, other])
    assert file.read_bytes() == before
