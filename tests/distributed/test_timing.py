"""`netspec time --workers`: what each message costs a step, and how much of all of them is hidden."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from netspec.cli import main
from netspec.cli.time import _print_overlap
from netspec.tools.overlap import MessageWait, Overlap
from tests.distributed.test_training_jobs import spec

pytestmark = pytest.mark.slow

__all__ = ["spec"]

BUCKETS = "parallel={strategy: all_reduce, bucket: 64, first_bucket: 8}"


def timed(jobs: Any, *words: object) -> dict[str, Any]:
    job = jobs.start([sys.executable, "-m", "netspec", "time", *map(str, words), "--steps", "3", "--json"])
    assert job.end() == 0, job.err
    found: dict[str, Any] = json.loads(job.out)
    return found


def test_messages_are_those_of_the_plan(jobs, spec: Path, capfd) -> None:
    whole = timed(jobs, spec, BUCKETS, "--workers", 2)
    found = whole["communication"]
    assert main(["plan", str(spec), BUCKETS, "--workers", "2", "--json"]) == 0
    planned = json.loads(capfd.readouterr().out)["sent"]["messages"]
    assert planned.pop()["name"] == "stop vote"  # which no program sends
    assert len(planned) > 3
    for key in ("name", "holds", "bytes"):
        assert [one[key] for one in found["messages"]] == [one[key] for one in planned]
    begins = [one["started_seconds"] for one in found["messages"]]
    assert begins == sorted(begins)
    assert (found["strategy"], found["workers"], found["steps"], whole["batch_size"]) == ("all_reduce", 2, 3, 3)
    assert all(one["exposed_seconds"] > 0 for one in found["messages"])
    assert found["exposed_seconds"] > 0
    assert found["silent_seconds"] > 0
    assert found["alone_seconds"] > 0
    assert 0 <= found["hidden_share"] <= 1
    assert found["exposed_share"] == pytest.approx(found["exposed_seconds"] / found["step_seconds"])
    assert (whole["workers"], whole["all_samples"], whole["steps"]) == (2, 6, 3)
    assert whole["step_seconds"] == found["step_seconds"], "one time of a step in a report"
    assert whole["samples_per_second"] == pytest.approx(6 / found["step_seconds"])
    assert any(one["phases"]["communication"] > 0 for one in whole["layers"])


def test_communication_between_steps_is_timed(jobs, spec: Path) -> None:
    found = timed(jobs, spec, "parallel={strategy: local_sgd, every: 4}", "--workers", 2)["communication"]
    assert found["messages"] == []
    assert found["exposed_seconds"] > 0 < found["between_seconds"]


@pytest.mark.parametrize(
    ("alone", "message"),
    [
        (0.008, "hidden: 75 % of the 8.000 ms that communication takes on its own"),
        (
            0.0005,
            "exposed is 1.500 ms more than the 0.500 ms that communication takes on its own: workers waited",
        ),
    ],
)
def test_hidden_gpu_is_reported(capsys, alone: float, message: str) -> None:
    wait = MessageWait("bucket 1", ("fc/kernel",), 64.0, 0.001, 0.002)
    _print_overlap(Overlap("all_reduce", 2, 3, 0.010, 0.006, 0.002, alone, 0.0, (wait,)))
    out = capsys.readouterr().out
    assert message in out
    assert "without communication a step takes 6.000 ms instead of 10.000 ms" in out
    assert "20.0 % of it" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workers", "7"), "a batch has fewer samples than there are workers"),
        (("--workers", "0"), "--workers must be 1 or more"),
        (("--workers", "2", "--inference"), "--inference runs on one worker"),
    ],
)
def test_untimeable_trainings_are_reported(spec: Path, capfd, words: tuple[str, ...], message: str) -> None:
    assert main(["time", str(spec), *words]) == 2
    assert f"error: {message}" in capfd.readouterr().err
