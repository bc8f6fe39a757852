"""The log of a run as files."""

from __future__ import annotations

import json
import os

from netspec.distributed.strategies.all_reduce import AllReduce
from netspec.distributed.strategies.pipeline import Pipeline
from netspec.distributed.strategies.top_k import TopK
from netspec.training.events import Clock, LogFiles, format_bytes, format_epoch, format_event, short_duration


def test_the_log_accepts_file_names_that_are_not_unicode(tmp_path):
    name = "image " + os.fsdecode(b"a-\xff.png")
    with LogFiles(tmp_path) as log:
        log({"event": "skipped", "split": "train", "epoch": 1, "samples": 1, "examples": [name]})
    (line,) = (tmp_path / "log.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["examples"] == [name]
    assert r"a-\udcff.png" in (tmp_path / "log.txt").read_text("utf-8")


def test_the_first_line_of_several_workers_names_the_strategy_and_its_settings():
    facts = {
        "event": "start", "name": "n", "parameters": 2, "samples": 8, "batch_size": 4, "steps": 3, "step": 0,
        "device": "cpu", "precision": "float32",
    }  # fmt: skip
    assert format_event(facts) == "n: 2 parameters, 8 samples, batch 4, 3 steps on cpu"
    several = {**facts, "split": [2, 2], "by_host": False}
    for parallel, message in (
        (TopK(density=0.5), "by top_k: bucket 4MiB, first_bucket 256KiB, density 0.5, "),
        (AllReduce(bucket=1000), "by all_reduce: bucket 1000, first_bucket 256KiB, reduce_in float32"),
    ):
        assert message in format_event({**several, "parallel": parallel.model_dump()})
        assert "heartbeat" not in format_event({**several, "parallel": parallel.model_dump()})
    hierarchical = {**several, "by_host": True, "parallel": AllReduce().model_dump()}
    assert format_event(hierarchical).endswith("reduce_in float32, hierarchical")


def test_the_first_line_of_a_pipeline_names_its_stages():
    facts = {
        "event": "start", "name": "n", "parameters": 2, "samples": 48, "batch_size": 24, "steps": 3, "step": 0,
        "device": "cpu", "precision": "float32", "workers": 3, "parallel": Pipeline(micro_batches=6).model_dump(),
    }  # fmt: skip
    assert "batch 24 through 3 stages, micro-batches: 6, 3 steps on cpu, by pipeline" in format_event(facts)


def test_events_are_stamped_with_the_time_and_the_duration_of_the_run_without_interruptions(tmp_path):
    log = tmp_path / "log.jsonl"
    first = Clock(log).stamp({"event": "note", "message": "m"})
    assert list(first) == ["event", "message", "time", "elapsed"]
    assert first["time"].endswith("Z")
    assert 0 <= first["elapsed"] < 60
    log.write_text(json.dumps({**first, "elapsed": 1000.5}) + '\n{"event": "log", "ela')
    assert 1000.5 <= Clock(log).stamp({"event": "note"})["elapsed"] < 1060


def test_training_loss_and_evaluation_share_a_line_unless_there_is_more_to_report():
    log = {"event": "log", "step": 8, "epoch": 1.0, "loss": 0.5, "metrics": {"accuracy": 0.75}}
    evaluation = {"event": "test", "step": 8, "split": "validation", "loss": 0.25, "metrics": {}, "samples": 4}
    line = format_epoch(log, evaluation)
    assert line is not None
    assert line.startswith("step 8 epoch 1.00 train loss 0.50000 accuracy 0.75000, validation loss 0.25000")
    assert format_epoch({**log, "skipped_steps": 2}, evaluation) is None
    assert format_epoch(log, {**evaluation, "skipped": 3}) is None
    assert format_epoch({**log, "step": 7}, evaluation) is None


def test_short_durations_and_sizes_have_three_digits():
    seconds = (2.5, 0.9996, 0.9994, 0.00123, 0.0009996, 4.2e-8, 600)
    assert [*map(short_duration, seconds)] == ["2.5 s", "1 s", "999 ms", "1.23 ms", "1 ms", "0.042 µs", "10 min 00 s"]
    assert [*map(format_bytes, (0, 999, 999.6, 1720000))] == ["0 B", "999 B", "1 kB", "1.72 MB"]
