"""Runs whose disk or clock fails: saved files stay intact, and the message says how to continue."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import netspec
from netspec.cli import main
from netspec.errors import RunError
from netspec.exchange.formats.native.hdf5 import find_latest_checkpoint
from netspec.tools.reproducibility.bit_comparison import compare_runs_bitwise
from netspec.training import events, lock
from netspec.training.loop import TrainingLoop

Make = Callable[..., dict[str, Any]]
OFTEN = {"max_steps": 16, "log_every": 2, "test_every": 5, "checkpoint_every": 4}


def train(spec: Make, run_dir: Path, **options: Any) -> netspec.Run:
    return netspec.train(spec(**OFTEN), run_dir=run_dir, device="reference", **options)


class FailingDisk:
    """Fails in the n-th write of a file, after half of its bytes, and in all later ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, number: int, code: int) -> None:
        self._name, self._left, self._error = name, number, OSError(code, os.strerror(code))
        for method in ("write_bytes", "write_text"):
            monkeypatch.setattr(Path, method, self._failing(getattr(Path, method)))

    def _failing(self, write: Callable[..., int]) -> Callable[..., int]:
        def fail(path: Path, data: Any, **options: Any) -> int:
            if self._name in path.name:
                self._left -= 1
            if self._left > 0:
                return write(path, data, **options)
            write(path, data[: len(data) // 2], **options)
            raise self._error

        return fail


@pytest.mark.parametrize(
    ("name", "number", "code", "newest"),
    [
        ("step-00000004.h5", 1, errno.ENOSPC, None),
        ("step-00000012.h5", 1, errno.EDQUOT, 8),
        ("best.h5", 1, errno.ENOSPC, 4),
        ("best.h5", 2, errno.EROFS, 8),
        ("weights.h5", 1, errno.ENOSPC, 16),
    ],
)
def test_a_full_disk_loses_nothing_that_was_saved(
    name: str, number: int, code: int, newest: int | None, spec: Make, tmp_path: Path, capfd: Any
) -> None:
    (tmp_path / "train.yaml").write_text(json.dumps(spec(**OFTEN)))
    words = ["train", str(tmp_path / "train.yaml"), "--run-dir", str(tmp_path / "run"), "--device", "reference"]
    with pytest.MonkeyPatch.context() as monkeypatch:
        FailingDisk(monkeypatch, name, number, code)
        assert main(words) == 1
    message = capfd.readouterr().err
    assert f"{name}\n  got: {os.strerror(code)}\n  hint: an existing file of this name was not changed" in message
    saved = "there is no checkpoint yet" if newest is None else f"the newest checkpoint is of step {newest}"
    assert f"{saved}; to continue: netspec train {tmp_path / 'run' / 'spec.yaml'} --resume" in message
    assert "Traceback" not in message
    latest = find_latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert (latest.content and latest.content.progress["step"], latest.notes) == (newest, ())
    assert not list((tmp_path / "run").rglob("*.tmp"))
    train(spec, tmp_path / "run", resume=True)
    train(spec, tmp_path / "straight")
    assert compare_runs_bitwise(tmp_path / "straight", tmp_path / "run").differences == ()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_a_log_that_cannot_be_written_ends_the_run(spec: Make, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "log.txt").symlink_to("/dev/full")
    with pytest.raises(RunError) as caught:
        train(spec, run)
    (problem,) = caught.value.problems
    assert problem.message == f"cannot write {run / 'log.txt'}"
    (run / "log.txt").unlink()
    train(spec, run, resume="auto")
    train(spec, tmp_path / "straight")
    assert compare_runs_bitwise(tmp_path / "straight", run).differences == ()


def test_a_run_whose_spec_cannot_be_written_leaves_nothing(
    spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    FailingDisk(monkeypatch, "spec.yaml", 1, errno.ENOSPC)
    monkeypatch.setattr(lock, "os", SimpleNamespace(**{**vars(os), "write": fail}))  # the process id in the lock
    with pytest.raises(RunError, match=r"cannot write .*spec\.yaml"):
        train(spec, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("hours", [-1000, 1000])
def test_a_clock_that_jumps_changes_only_the_times_in_the_log(
    hours: int, spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times() -> Iterator[datetime]:
        for number in range(10**6):
            yield datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hours * (number % 2))

    class Clock:
        moments = times()

        @classmethod
        def now(cls, zone: object) -> datetime:
            return next(cls.moments)

    class Stop(netspec.Callback):
        def on_step_end(self, training: TrainingLoop) -> None:
            if training.step == 7:
                training.request_stop("the test")

    train(spec, tmp_path / "straight")
    monkeypatch.setattr(events, "datetime", Clock)
    with pytest.raises(netspec.Interrupted):
        train(spec, tmp_path / "run", callbacks=[Stop()])
    train(spec, tmp_path / "run", resume=True)
    assert compare_runs_bitwise(tmp_path / "straight", tmp_path / "run").differences == ()
    logged = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert logged[0]["time"] != logged[1]["time"]
    elapsed = [event["elapsed"] for event in logged]
    assert elapsed == sorted(elapsed)
    assert elapsed[-1] < 600
    assert netspec.runs(tmp_path)
