"""`netspec search`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

SPEC = """\
netspec: 1
net:
  netspec: 1
  name: line
  inputs: {x: {shape: [4]}, y: {shape: [1]}}
  layers: [{type: Dense, name: fit, units: 1}]
  losses: [{type: MeanSquaredError, from: [fit, y]}]
data:
  train: {source: npz, path: line.npz, batch_size: 32}
  validation: {source: npz, path: line.npz, batch_size: 32}
solver: {type: SGD, learning_rate: 0.05}
train: {max_epochs: 1}
search:
  trials: 2
  sampler: random
  fields:
    solver.learning_rate: {low: 1.0e-3, high: 0.1, log: true}
"""


@pytest.fixture
def spec(current_folder: Path) -> None:
    random = np.random.default_rng(0)
    np.savez("line.npz", x=random.random((64, 4), np.float32), y=random.random((64, 1), np.float32))
    Path("train.yaml").write_text(SPEC)


def test_trials_and_the_best_one_are_printed(netspec, spec):
    result = netspec.ok("search", "train.yaml", "--device", "reference")
    lines = result.out.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["trial", "0"], ["trial", "1"]]
    assert [line.rpartition("  ")[2] for line in lines[:2]] == ["in one program with 1", "in one program with 0"]
    assert lines[3].split() == ["trial", "validation/loss", "solver.learning_rate", "state"]
    assert "its settings: runs/line-search/best.yaml" in lines
    assert any(line.startswith("add `data.test` to confirm") for line in lines)
    data = netspec("search", "train.yaml", "--device", "reference", "--resume", "--trials", "3", "--json").json
    assert [trial["number"] for trial in data["trials"]] == [0, 1, 2]
    assert [trial["batch"] for trial in data["trials"]] == [[0, 1], [0, 1], []]
    nothing = netspec.ok("search", "train.yaml", "--device", "reference", "--resume")
    assert "nothing to do: all 3 trials have ended; add `--trials 23` to run 20 more" in nothing.out
    assert data["best"]["value"] == min(trial["value"] for trial in data["trials"])


def test_a_gain_that_the_test_data_does_not_show_is_reported(netspec, spec):
    with np.load("line.npz") as arrays:
        np.savez("other.npz", x=arrays["x"][:40], y=arrays["y"][:40] - 10)
    test = "  test: {source: npz, path: other.npz, batch_size: 32}\nsolver: {type: SGD, learning_rate: 0.0001}"
    text = SPEC.replace("solver: {type: SGD, learning_rate: 0.05}", test)
    text = text.replace("low: 1.0e-3", "low: 1.0e-4").replace("trials: 2", "trials: 2\n  baseline: true")
    Path("train.yaml").write_text(text)
    result = netspec.ok("search", "train.yaml", "--device", "reference")
    lines = result.out.splitlines()
    assert [line.partition(":")[0] for line in lines if "in the best trial" in line] == ["validation/loss", "test/loss"]
    assert "the test data shows no gain: with few samples or trials, a better validation value can be luck" in lines


def test_a_change_since_the_search_began_is_located(netspec, spec):
    netspec("search", "train.yaml", "--device", "reference", "--trials", "1")
    Path("train.yaml").write_text(SPEC.replace("high: 0.1", "high: 0.5"))
    result = netspec("search", "train.yaml", "--resume", "--device", "reference")
    assert result.status == 2
    changed = "`search.fields.solver.learning_rate.high` has changed since the search in runs/line-search began"
    assert result.err.startswith(f"train.yaml:17:41: error: {changed}\n")
    assert "expected: 0.1\n  got: 0.5\n" in result.err


def test_the_table_fits_the_terminal_and_names_what_it_leaves_out(netspec, spec, monkeypatch):
    more = "    solver.momentum: {low: 0.0, high: 0.9}\n    train.max_epochs: {choices: [1, 2]}\n"
    Path("train.yaml").write_text(SPEC + more + "    data.train.batch_size: {choices: [16, 32]}\n")
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = re.sub(r"\x1b\[\d*m", "", netspec("search", "train.yaml", "--device", "reference").out).splitlines()
    end = next(number for number, line in enumerate(lines) if line.startswith("columns not shown: "))
    start = next(number for number, line in enumerate(lines) if "validation" in line)
    assert max(map(len, lines[start:end])) <= 50
    assert {"validation/", "learning_", "momentum"} <= set(" ".join(lines[start:end]).split())
    assert lines[end] == "columns not shown: data.train.batch_size, state, train.max_epochs; use --json for all"


def test_mistakes_are_located(netspec, spec):
    Path("train.yaml").write_text(SPEC.replace("learning_rate: {low", "learning_rat: {low"))
    for command in ("search", "check"):
        result = netspec(command, "train.yaml")
        assert result.status == 2
        assert "train.yaml:17:" in result.err
        assert "did you mean `learning_rate`?" in result.err
    assert not Path("runs").exists()


@pytest.fixture
def rings(current_folder: Path) -> None:
    """A table of 60 rows with a class."""
    points = np.random.default_rng(0).normal(size=(60, 2)).round(3)
    rows = [f"{x},{y},{'inner' if x * x + y * y < 1.4 else 'outer'}" for x, y in points]
    Path("rings.csv").write_text("\n".join(["x,y,ring", *rows]) + "\n")


AUTO = ("search", "rings.csv", "--auto", "--target", "ring", "--output", "net", "--device", "reference")


def test_a_net_for_data_is_searched(netspec, rings):
    result = netspec.ok(*AUTO, "--trials", "2", "train.max_epochs=2")
    lines = result.out.splitlines()
    assert lines[0] == "table classification"
    assert "written: net/net.yaml, net/train.yaml" in lines
    (first,) = (line for line in lines if line.startswith("trial 0  "))
    assert "the values in the file" in first
    assert "net.vars.width=32  net.vars.depth=1  net.vars.block=plain" in first
    assert any("with the values in the file" in line or "no trial was better" in line for line in lines)
    assert re.search(r"\ntest/loss: .* in the best trial \(\d+ samples, not used to choose\)\n", result.out)
    assert "  netspec predict runs/net-search/trial-000" in result.out
    data = netspec(*AUTO, "--trials", "3", "train.max_epochs=2", "--resume", "--json").json
    assert [trial["number"] for trial in data["trials"]] == [0, 1, 2]
    assert data["baseline"]["number"] == 0
    assert data["best"]["value"] <= data["baseline"]["value"]
    assert data["test"]["best"]["samples"] > 0
    more = netspec(
        "search", "net/train.yaml", "train.max_epochs=2", "--device", "reference", "--resume", "--trials", "4"
    )
    assert more.status == 0, "the file is one like any other"


def test_data_and_files_without_values_to_search_are_reported(netspec, rings):
    refused = netspec("search", "rings.csv")
    assert refused.status == 2
    assert "is data, not a training file" in refused.err
    netspec.ok("init", "rings.csv", "--target", "ring", "--output", "plain")
    refused = netspec("search", "plain/train.yaml")
    assert refused.status == 2
    assert "solver.learning_rate.schedule: {low: 1e-4" in refused.err


def test_files_and_searches_are_not_overwritten(netspec, rings):
    Path("runs/rings-search").mkdir(parents=True)
    Path("runs/rings-search/study.log").touch()
    result = netspec(*AUTO, "--run-dir", "runs/rings-search")
    assert result.status == 2
    assert "there is a search in runs/rings-search" in result.err
    assert not Path("net").exists(), "nothing is written before all is known to be right"
    Path("net").mkdir()
    Path("net/train.yaml").touch()
    result = netspec(*AUTO)
    assert result.status == 2
    assert "net/train.yaml exists already" in result.err
    assert "--resume" in result.err
    result = netspec("search", "rings.csv", "--auto", "--target", "ring", "--resume")
    assert result.status == 2
    assert "there is no train.yaml whose search could continue" in result.err
    result = netspec("search", "net/train.yaml", "--target", "ring")
    assert result.status == 2
    assert "--target needs --auto" in result.err
    result = netspec("search", "rings.csv", "--auto", "--target", "rings", "--output", "other", "--run-dir", "new")
    assert result.status == 2
    assert "did you mean `ring`?" in result.err
    assert not Path("other").exists()
