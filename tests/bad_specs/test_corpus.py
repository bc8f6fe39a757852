"""Every broken spec of the corpus is told about exactly as its comments say."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from netspec.errors import InputError
from netspec.schema.kinds import REGISTRIES
from netspec.schema.reader import parse_yaml
from netspec.schema.tree import walk
from tests.bad_specs.case import BAD_OVERRIDES, CORPUS, Case, corpus, matches, read_case
from tests.bad_specs.said import check

CASES = [read_case(path) for path in corpus()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_exactly_what_is_wrong_is_told(case: Case):
    said = check(case)
    assert said.status == 2
    assert "Traceback" not in said.stderr
    assert "internal error" not in said.stderr
    wrong: list[str] = []
    for expected, found in zip_longest(case.problems, said.problems):
        if found is None:
            wrong.append(f"not found: {expected}")
        elif expected is None:
            wrong.append(f"not expected: {found}")
        else:
            wrong += expected.differences(found, case)
    assert not wrong, "\n".join(wrong)


def test_the_corpus_is_as_large_as_promised():
    assert len(CASES) >= 170
    topics = Counter(case.path.parent.name for case in CASES)
    assert min(topics.values()) >= 5, topics


def test_every_case_says_what_is_wrong_and_where():
    for case in CASES:
        assert case.title.endswith("."), case.name
        assert case.problems, case.name
        assert all("message" in expected.facts for expected in case.problems), case.name


def test_most_problems_say_what_to_do():
    """A hint, or what would be right: a message alone is for what needs no more."""
    problems = [expected for case in CASES for expected in case.problems]
    bare = [expected for expected in problems if not {"expected", "hint"} & expected.facts.keys()]
    assert len(bare) <= len(problems) // 10, bare


def test_every_file_of_the_corpus_is_wrong_by_itself_and_told_with_a_place():
    files = sorted(CORPUS.rglob("*.yaml"))
    assert len(files) >= 400
    for path in files:
        said = check(Case(path, "", [], [], ""))
        assert said.status == 2, path
        assert all(found["file"] and found["line"] and found["column"] for found in said.problems), path
        assert said.problems, path


@pytest.mark.parametrize("path", sorted(BAD_OVERRIDES.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_override_alone_is_what_is_wrong(path: Path):
    assert read_case(path).overrides
    assert check(Case(path, "", [], [], "")).status == 0


SAMPLE = [CORPUS / "fields/caffe_num_output", CORPUS / "syntax/tab", CORPUS / "pairs/both_files"]


@pytest.mark.parametrize("path", [*SAMPLE, BAD_OVERRIDES / "unknown_key"], ids=lambda path: path.stem)
def test_the_command_itself_prints_the_place_and_exits_with_2(path: Path):
    case = read_case(path.with_suffix(".yaml"))
    command = [sys.executable, "-m", "netspec", "check", case.path.name, *case.overrides]
    done = subprocess.run(command, cwd=case.path.parent, capture_output=True, text=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    for expected in case.problems:
        assert f"{expected.file}:{expected.line}:{expected.column}: error: " in done.stderr
    assert "Traceback" not in done.stderr


def _kind(path: tuple[str | int, ...]) -> str | None:
    """The kind of thing that stands at a path of a document, by the keys that lead there."""
    words = [step for step in path if isinstance(step, str)]
    last = words[-1] if words else ""
    item = bool(path) and isinstance(path[-1], int)
    if item:
        kinds = {"layers": "layer", "losses": "loss", "metrics": "metric", "transforms": "transform", "cells": "cell"}
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
    """The things that a case has, by kind and type."""
    try:
        tree = parse_yaml(case.body, case.name)
    except InputError:
        return set()
    found: set[tuple[str, Any]] = set()
    for path, value in walk(tree):
        kind = _kind(path)
        if kind is not None:
            name = value.get(REGISTRIES[kind].tag) if isinstance(value, dict) else value
            found.add((kind, name if isinstance(name, str) else None))
    return found


def test_every_type_is_in_some_case():
    seen = set().union(*map(_types_in, CASES))
    missing = {(kind, name) for kind, registry in REGISTRIES.items() for name in registry.names()} - seen
    assert not missing


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [("a…c", "abc", True), ("a…c", "ac", True), ("a.c", "abc", False), (None, None, True), ("…", None, False)],
)
def test_patterns(pattern, text, fits):
    assert matches(pattern, text) is fits


def test_a_case_reads_as_it_is_written(tmp_path: Path):
    file = tmp_path / "case.yaml"
    head = "# Title.\n# with: a=1 ~b\n#\n# 9:1 layer\n#   message: m\n#   hint: `x: y`\n#   note: n\n# net.yaml:1:2\n"
    file.write_text(head + "layer: []\n", encoding="utf-8")
    case = read_case(file)
    first, second = case.problems
    assert (case.title, case.overrides, case.body) == ("Title.", ["a=1", "~b"], "layer: []")
    assert (first.file, first.line, first.column, first.text) == ("case.yaml", 9, 1, "layer")
    assert (first.facts, first.notes) == ({"message": "m", "hint": "`x: y`"}, ["n"])
    assert (second.file, second.line, second.column, second.text) == ("net.yaml", 1, 2, "")
