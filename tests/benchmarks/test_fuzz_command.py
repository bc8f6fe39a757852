"""The fuzzing benchmark counts outcomes by reader, and writes the file with a given number."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import fuzz
from benchmarks.alternate import BenchmarkError
from tests.fuzz.readers import READERS
from tests.fuzz.runner import STATES


def test_readers_are_chosen_by_name_or_part():
    assert fuzz.chosen([]) == [*READERS]
    assert fuzz.chosen(["text"]) == ["text"]
    assert fuzz.chosen(["data idx", ".onnx"]) == ["model .onnx", "model .onnx with data", "data idx"]
    with pytest.raises(BenchmarkError, match="no such reader: idy"):
        fuzz.chosen(["idy"])


def test_a_number_always_gives_the_same_file(tmp_path):
    first, second = (fuzz.keep("data idx", 3, 5, tmp_path / name) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    other = fuzz.keep("data idx", 3, 6, tmp_path / "c")
    assert (first.name, first.read_bytes()) != (other.name, other.read_bytes())


@pytest.mark.slow
def test_outcomes_are_counted(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fuzz", "--files", "5", "--only", "data idx", "--json"])
    assert fuzz.main() == 0
    (row,) = json.loads(capsys.readouterr().out)["readers"]
    assert (row["reader"], row["files"], sum(row[state] for state in STATES)) == ("data idx", 5, 5)
