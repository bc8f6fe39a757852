"""Training on a device that hears of a step's loss during the next: what is told and kept is what the others give."""

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
    """One whose array code is done at once, and silent about overflow, as CuPy's is."""
    machine = Machine(eager=range(8))
    monkeypatch.setitem(sys.modules, "cupy", machine.cupy())
    monkeypatch.setattr(launch, "engine", StreamEngine(machine))
    with np.errstate(all="ignore"):
        yield


def events(folder: Path) -> list[dict[str, Any]]:
    told = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [one for one in told if one["event"] in ("log", "test", "checkpoint")]


def test_a_run_tells_and_keeps_what_one_on_the_processor_does(spec: Make, tmp_path: Path) -> None:
    given = spec(max_steps=14, checkpoint_every=5, log_every=3)
    folders = [netspec.train(given, run_dir=tmp_path / name, device=name).run_dir for name in ("reference", "cuda")]
    expected, got = map(events, folders)
    assert [(one["event"], one["step"]) for one in got] == [(one["event"], one["step"]) for one in expected]
    right, found = ([line["loss"] for line in told if "loss" in line] for told in (expected, got))
    np.testing.assert_allclose(found, right, rtol=1e-5)  # sums in another order
    one, other = (read_checkpoint(folder / "checkpoints/step-00000010.h5") for folder in folders)
    assert one.progress["loader"] == other.progress["loader"]
    assert one.progress["loss_count"] == other.progress["loss_count"]


@pytest.mark.parametrize("bad", [1, 4, 6])
def test_the_step_before_a_loss_that_is_not_finite_is_what_is_kept(spec: Make, tmp_path: Path, bad: int) -> None:
    """Step 4 is found out during step 5; what is due after step 6 asks at once."""
    said, kept = list[Any](), list[Any]()
    rates = {"type": "PiecewiseConstantDecay", "boundaries": [bad - 1], "values": [0.01, 1e38]} if bad > 1 else 1e38
    for name in ("reference", "cuda"):
        given = spec(max_steps=14, checkpoint_every=0, log_every=6)
        given["solver"] = {"type": "SGD", "learning_rate": rates}
        with pytest.raises(RunError, match="the loss is not finite at step") as caught:
            netspec.train(given, run_dir=tmp_path / name, device=name)
        (problem,) = caught.value.problems
        said.append((problem.message, problem.got))
        (path,) = (tmp_path / name / "checkpoints").iterdir()
        assert str(path) in problem.notes[0]
        kept.append((path.name, {**read_checkpoint(path).progress, "loss_sum": 0}))
    assert said[0] == said[1]
    assert kept[0] == kept[1]
