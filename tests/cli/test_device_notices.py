"""Commands that run a net warn once about kernels of the device that compute wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from netspec.backends import verification
from netspec.backends.device_registry import DEVICES, ReferenceDevice
from netspec.backends.notices import device_notices
from netspec.backends.verification import DeviceCheck, Verification
from netspec.distributed.world import acting_as
from tests.backends.test_cuda import Worker
from tests.cli.conftest import Netspec

TABLE = """\
netspec: 1
net:
  netspec: 1
  name: table
  inputs: {features: {shape: [2]}, label: {shape: [], dtype: int32}}
  layers: [{name: logits, type: Dense, units: 2}]
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
data:
  train: &csv
    {source: csv, path: table.csv, header: true, label: label, batch_size: 4,
     columns: {a: {type: numeric}, b: {type: numeric}, label: {type: categorical, vocabulary: [low, high]}}}
  test: *csv
solver: {type: SGD, learning_rate: 0.1}
train: {max_steps: 4}
"""
LANGUAGE = """\
netspec: 1
net:
  netspec: 1
  name: repeat
  inputs: {text: {shape: [8], dtype: int32}, target: {shape: [8], dtype: int32}}
  layers:
    - {type: Embedding, from: text, input_dim: 4, output_dim: 4}
    - {type: Dense, units: 4, name: logits}
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, target], from_logits: true}]
data: {train: {source: text, path: text.txt, tokenizer: characters, length: 8, batch_size: 4}}
solver: {type: SGD, learning_rate: 0.1}
train: {max_steps: 2}
"""
SEARCH = "search={trials: 2, fields: {solver.learning_rate: {low: 0.1, high: 0.2}}}"
COMMANDS = (
    "train table.yaml", "train table.yaml --json", "train table.yaml --find-lr", "train table.yaml --overfit 4",
    "test table", "test table --json", "predict table --input table.csv", "explain table",
    "time table.yaml --steps 2", "time table.yaml --inference --steps 2 --json", "profile table.yaml --steps 1",
    "check table.yaml --run", "report table --output report.html", "search table.yaml SEARCH",
    "search table.yaml SEARCH --jobs 2", "generate language --prompt ab --tokens 2",
)  # fmt: skip
"""Commands that run a net; `--device` is added."""


class WrongDevice(ReferenceDevice):
    """A device that computes wrongly, and is checked when it is opened, as a GPU is."""

    verified_on_first_use: ClassVar[bool] = True


@pytest.fixture
def warning(monkeypatch: pytest.MonkeyPatch) -> str:
    """The warning about a wrong kernel of the device `reference`."""
    check = DeviceCheck("stand_in:WrongKernel", "kernel", "failed", reason="the result is 2")
    result = Verification("reference", True, (check,), 3.0)
    monkeypatch.setitem(DEVICES, "reference", WrongDevice)
    monkeypatch.setattr(verification, "verified_on_first_use", lambda device: result)
    (text,) = result.warnings()
    return text


@pytest.fixture
def runs(current_folder: Path, netspec: Netspec) -> None:
    """Runs of a classifier of rows, and of a language model."""
    rows = [f"{row},{row % 3},{'high' if row > 7 else 'low'}" for row in range(16)]
    Path("table.csv").write_text("\n".join(["a,b,label", *rows]))
    Path("text.txt").write_text("abcd" * 20)
    for name, text in (("table", TABLE), ("language", LANGUAGE)):
        Path(f"{name}.yaml").write_text(text)
        netspec.ok("train", f"{name}.yaml", "--run-dir", name, "--device", "reference")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("runs")
def test_commands_warn_once(netspec: Netspec, warning: str, command: str) -> None:
    words = [SEARCH if word == "SEARCH" else word for word in command.split()]
    result = netspec.ok(*words, "--device", "reference")
    if command == "train table.yaml --json":
        messages = [event["message"] for event in result.lines if event["event"] == "warning"]
        assert (messages.count(warning), result.err.count(warning)) == (1, 0)
        return
    # A training prints its log, which contains the warning.
    stream = result.out if command == "train table.yaml" else result.err
    assert stream.count(f"warning: {warning}\n") == 1
    assert (result.out + result.err).count(warning) == 1


def test_only_the_first_worker_reports() -> None:
    lines: list[str] = []
    device_notices.set_listener(lines.append)
    try:
        with acting_as(Worker(1, 2)):
            device_notices.report("a remark", ["a warning"])
        assert lines == []
        for _ in range(2):
            device_notices.report("a remark", ["a warning"])
    finally:
        device_notices.set_listener(None)
    assert lines == ["note: a remark", "warning: a warning"]
