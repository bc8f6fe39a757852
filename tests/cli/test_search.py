"""`netspec search`."""

from __future__ import annotations

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
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    np.savez("line.npz", x=random.random((64, 4), np.float32), y=random.random((64, 1), np.float32))
    Path("train.yaml").write_text(SPEC)


def test_trials_and_the_best_one_are_printed(netspec, spec):
    result = netspec("search", "train.yaml", "--device", "reference")
    assert result.status == 0
    lines = result.out.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["trial", "0"], ["trial", "1"]]
    assert lines[3].split() == ["trial", "validation/loss", "solver.learning_rate", "state"]
    assert "its settings: runs/line-search/best.yaml" in lines
    data = netspec("search", "train.yaml", "--device", "reference", "--resume", "--trials", "3", "--json").json
    assert [trial["number"] for trial in data["trials"]] == [0, 1, 2]
    assert data["best"]["value"] == min(trial["value"] for trial in data["trials"])


def test_mistakes_are_located(netspec, spec):
    Path("train.yaml").write_text(SPEC.replace("learning_rate: {low", "learning_rat: {low"))
    for command in ("search", "check"):
        result = netspec(command, "train.yaml")
        assert result.status == 2
        assert "train.yaml:17:" in result.err
        assert "did you mean `learning_rate`?" in result.err
    assert not Path("runs").exists()
