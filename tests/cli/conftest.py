"""A small net, its training on synthetic data, and `netspec` called in this process."""

from __future__ import annotations

from dataclasses import dataclass
from json import loads
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.cli import main
from netspec.tools.measuring import timing
from netspec.tools.measuring.roofline import Roofline

NET = """\
netspec: 1
name: blobs
vars: {width: 4}
inputs:
  features: {shape: [3]}
  label: {shape: [], dtype: int32}
layers:
  - {name: hidden, type: Dense, units: "${width}", activation: relu}
  - {name: logits, type: Dense, units: 2}
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
metrics: [{type: SparseCategoricalAccuracy, name: accuracy, from: [logits, label]}]
"""
TRAIN = """\
netspec: 1
net: net.yaml
data:
  train: {source: npz, path: blobs.npz, batch_size: 8, shuffle: true}
  test: {source: npz, path: blobs.npz, batch_size: 7}
solver: {type: SGD, learning_rate: 0.5, momentum: 0.9}
train: {max_steps: 12, log_every: 4, seed: 3}
"""


@dataclass(frozen=True)
class Outcome:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Netspec:
    """Calls the command line in this process."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str | Path) -> Outcome:
        """Call a command with words, and check that it prints no traceback."""
        self.capsys.readouterr()
        status = main([str(word) for word in words])
        captured = self.capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Outcome(status, captured.out, captured.err)

    def ok(self, *words: str | Path) -> Outcome:
        """Call a command that must succeed."""
        outcome = self(*words)
        assert outcome.status == 0, outcome.err
        return outcome


@pytest.fixture
def netspec(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Netspec:
    """Call the command line."""
    monkeypatch.setattr("sys.argv", ["netspec"])
    return Netspec(capsys)


@pytest.fixture(autouse=True)
def fixed_roofline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix the measured rates of the machine, since measuring them takes two seconds."""
    monkeypatch.setattr(timing, "measure_roofline", lambda device, dtype: Roofline(1e11, 1e10))


@pytest.fixture
def work(current_folder: Path) -> Path:
    """The current folder, with `net.yaml`, `train.yaml` and `blobs.npz`: two classes, 21 samples each, far apart."""
    (current_folder / "net.yaml").write_text(NET)
    (current_folder / "train.yaml").write_text(TRAIN)
    random = np.random.default_rng(0)
    label = np.arange(42, dtype=np.int32) % 2
    features = (random.standard_normal((42, 3)) + 4.0 * (2 * label[:, None] - 1)).astype(np.float32)
    np.savez(current_folder / "blobs.npz", features=features, label=label)
    return current_folder


@pytest.fixture
def trained(work: Path, netspec: Netspec) -> Path:
    """The folder after `netspec train` has written `run/`."""
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    return work
