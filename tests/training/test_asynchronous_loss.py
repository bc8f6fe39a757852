"""On a device that reports a loss one step late, runs log and save the same as on others."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.backends.cuda import launch
from netspec.errors import RunError
from netspec.exchange.formats.native.hdf5 import read_checkpoint
from tests.backends.cuda.emulator import compiler
from tests.backends.cuda.fake import Machine, StreamEngine

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with")
Make = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulate a GPU whose array code runs at once, and does not warn of overflows, like CuPy."""
    machine = Machine(eager=range(8))
    monkeypatch.setitem(sys.modules, "cupy", machine.cupy())
    monkeypatch.setattr(launch, "engine", StreamEngine(machine))
    with np.errstate(all="ignore"):
        yield


def events(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [event_line for event_line in lines if event_line["event"] in ("log", "test", "checkpoint")]


@pytest.mark.slow
def test_asynchronous_runs_log_and_save_the_same_as_synchronous_ones(spec: Make, tmp_path: Path) -> None:
    train_spec = spec(max_steps=14, checkpoint_every=5, log_every=3)
    folders = [
        netspec.train(train_spec, run_dir=tmp_path / name, device=name).run_dir for name in ("reference", "cuda")
    ]
    expected, actual = map(events, folders)
    assert [(event["event"], event["step"]) for event in actual] == [
        (event["event"], event["step"]) for event in expected
    ]
    expected_losses, actual_losses = (
        [line["loss"] for line in lines if "loss" in line] for lines in (expected, actual)
    )
    np.testing.assert_allclose(actual_losses, expected_losses, rtol=1e-5)  # sums in another order
    first, second = (read_checkpoint(folder / "checkpoints/step-00000010.h5") for folder in folders)
    assert first.progress["loader"] == second.progress["loader"]
    assert first.progress["loss_count"] == second.progress["loss_count"]


@pytest.mark.parametrize("bad", [1, 4, 6])
def test_the_checkpoint_precedes_a_non_finite_loss(spec: Make, tmp_path: Path, bad: int) -> None:
    """The loss of step 4 is noticed in step 5; what is due after step 6 waits for the loss of step 6."""
    messages, saved = list[Any](), list[Any]()
    rates = {"type": "PiecewiseConstantDecay", "boundaries": [bad - 1], "values": [0.01, 1e38]} if bad > 1 else 1e38
    for name in ("reference", "cuda"):
        train_spec = spec(max_steps=14, checkpoint_every=0, log_every=6)
        train_spec["solver"] = {"type": "SGD", "learning_rate": rates}
        with pytest.raises(RunError, match="the loss is not finite at step") as caught:
            netspec.train(train_spec, run_dir=tmp_path / name, device=name)
        (problem,) = caught.value.problems
        messages.append((problem.message, problem.got))
        (path,) = (tmp_path / name / "checkpoints").iterdir()
        assert str(path) in problem.notes[0]
        # The first is rounded differently, the second not computed on GPUs.
        others = {"loss_sum": 0, "metric_totals": {}}
        saved.append((path.name, {**read_checkpoint(path).progress, **others}))
    assert messages[0] == messages[1]
    assert saved[0] == saved[1]
