"""`netspec time --workers`: the cost of each message in a step, and how much communication is hidden."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from netspec.cli import main
from netspec.cli.time import _print_overlap
from netspec.tools.measuring.overlap import MessageWait, Overlap
from tests.distributed.test_training_jobs import PLAIN, spec
from tests.tools.test_profiling import check_trace

pytestmark = pytest.mark.slow

__all__ = ["spec"]

LATE_MESSAGE = 20_000.0
"""Microseconds by which the clocks of two workers may seem to differ on a busy machine."""
BUCKETS = "parallel={strategy: all_reduce, bucket: 64, first_bucket: 8}"


def timed(jobs: Any, *words: object) -> dict[str, Any]:
    job = jobs.start([sys.executable, "-m", "netspec", "time", *map(str, words), "--steps", "3", "--json"])
    assert job.end() == 0, job.err
    timing: dict[str, Any] = json.loads(job.out)
    return timing


def test_messages_equal_the_plan(jobs, spec: Path, capfd) -> None:
    full = timed(jobs, spec, BUCKETS, "--workers", 2, *PLAIN)
    timing = full["communication"]
    assert main(["plan", str(spec), BUCKETS, "--workers", "2", "--json"]) == 0
    planned = json.loads(capfd.readouterr().out)["sent"]["messages"]
    assert planned.pop()["name"] == "stop vote"  # the vote is not part of a program
    assert len(planned) > 3
    for key in ("name", "holds", "bytes"):
        assert [message[key] for message in timing["messages"]] == [message[key] for message in planned]
    begins = [message["started_seconds"] for message in timing["messages"]]
    assert begins == sorted(begins)
    assert (timing["strategy"], timing["workers"], timing["steps"], full["batch_size"]) == ("all_reduce", 2, 3, 3)
    assert all(message["exposed_seconds"] > 0 for message in timing["messages"])
    assert timing["exposed_seconds"] > 0
    assert timing["silent_seconds"] > 0
    assert timing["alone_seconds"] > 0
    assert 0 <= timing["hidden_share"] <= 1
    assert timing["exposed_share"] == pytest.approx(timing["exposed_seconds"] / timing["step_seconds"])
    assert (full["workers"], full["all_samples"], full["steps"]) == (2, 6, 3)
    assert full["step_seconds"] == timing["step_seconds"], "one time of a step in a report"
    assert full["samples_per_second"] == pytest.approx(6 / timing["step_seconds"])
    assert any(layer["phases"]["communication"] > 0 for layer in full["layers"])


@pytest.mark.exhaustive
def test_communication_between_steps_is_timed(jobs, spec: Path) -> None:
    timing = timed(jobs, spec, "parallel={strategy: local_sgd, every: 4}", "--workers", 2)["communication"]
    assert timing["messages"] == []
    assert timing["exposed_seconds"] > 0 < timing["between_seconds"]


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


def test_the_profile_of_workers_is_one_trace_with_aligned_clocks(jobs: Any, spec: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    words = ["--steps", "2", "--warmup", "1", "--output", str(trace), "--json", "--workers", "2", *PLAIN]
    job = jobs.start([sys.executable, "-m", "netspec", "profile", str(spec), *words])
    assert job.end() == 0, job.err
    summary = json.loads(job.out)
    assert (summary["workers"], summary["steps"]) == (2, 2)
    assert summary["parts"]["communication"] > 0
    assert 0 < summary["waits"]["other workers"] < 1
    tracks = check_trace(json.loads(trace.read_text()))
    steps = {rank: [event for event in events if event["cat"] == "step"] for (rank, _), events in tracks.items()}
    assert steps.keys() == {0, 1}
    messages = [[event["name"] for event in events if event["cat"] == "communication"] for events in tracks.values()]
    assert messages[0] == messages[1] != []
    for first, second in zip(*steps.values(), strict=True):
        assert first["name"] == second["name"]
        # In each step, every worker waits for a message that the other sends in the same step. Clocks are aligned by
        # messages, which may be delayed if a worker waits for a core.
        assert first["ts"] < second["ts"] + second["dur"] + LATE_MESSAGE
        assert second["ts"] < first["ts"] + first["dur"] + LATE_MESSAGE
