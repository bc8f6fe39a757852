"""`netspec train` and `netspec test`: JSON events, paths of results, and suggested commands that work."""

from __future__ import annotations

import io
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

from netspec.cli import progress
from netspec.training.events import Event
from netspec.training.inference.model import load
from netspec.training.run import Interrupted


def test_json_lines_end_in_done(netspec, work):
    result = netspec("train", "train.yaml", "--run-dir", "run", "--json")
    assert (result.status, result.err) == (0, "")
    events = result.lines
    assert events[0]["event"] == "start"
    assert "progress" not in {event["event"] for event in events}
    steps = [event["step"] for event in events if event["event"] == "log"]
    assert steps == [1, 4, 8, 12]
    assert all(a < b for a, b in pairwise(steps))
    last_event = events[-1]
    assert (last_event["event"], last_event["run_dir"], last_event["steps"]) == ("done", "run", 12)
    assert last_event["seconds"] > 0
    assert last_event["test"]["samples"] == 42
    assert set(last_event["test"]["metrics"]) == {"accuracy"}


def test_the_end_prints_paths_and_next_commands(netspec, work):
    folder = work / "a run"
    result = netspec.ok("train", "train.yaml", "--run-dir", folder)
    assert f"weights: {folder / 'best.h5'}\n" in result.out
    assert f"log: {folder / 'log.jsonl'}\n" in result.out
    test, export = (line.strip() for line in result.out.partition("next:\n")[2].splitlines())
    assert test.endswith("' --report")
    for line, needed in ((test, "confusion_matrix"), (export, "onnxruntime gives the same results")):
        program, *words = shlex.split(line)
        assert program == "netspec"
        after = netspec.ok(*words)
        assert after.err.startswith(f"note: using the weights in {folder / 'best.h5'}, best at step ")
        assert needed in after.out
    assert (folder / "model.onnx").exists()


def test_overrides_and_weights(netspec, trained):
    result = netspec.ok(
        "train",
        "train.yaml",
        "train.max_steps=1",
        "~train.log_every",
        "--weights",
        "run/weights.h5",
        "--run-dir",
        "two",
        "--json",
    )
    assert result.lines[-1]["steps"] == 1
    before, after = load("net.yaml", "run/weights.h5").parameters, load("net.yaml", "two/weights.h5").parameters
    # One step changes trained weights little; new random weights would differ more.
    assert all(np.abs(after[name] - before[name]).max() < 0.2 for name in before)


def test_resume_continues_the_run(netspec, work):
    netspec.ok("train", "train.yaml", "train.max_steps=6", "--run-dir", "run")
    result = netspec.ok("train", "train.yaml", "--resume", "--run-dir", "run", "--json")
    assert next(line for line in result.lines if line["event"] == "start")["step"] == 6
    netspec.ok("train", "train.yaml", "--run-dir", "whole")
    resumed, uninterrupted = (
        load("net.yaml", "run/weights.h5").parameters,
        load("net.yaml", "whole/weights.h5").parameters,
    )
    assert all(np.array_equal(resumed[name], uninterrupted[name]) for name in uninterrupted)


def test_a_run_is_not_overwritten(netspec, trained):
    result = netspec("train", "train.yaml", "--run-dir", "run")
    assert result.status == 2
    assert "already contains a run" in result.err


def test_a_loss_that_is_not_finite_fails_while_running(netspec, work):
    result = netspec("train", "train.yaml", "solver.learning_rate=1e30", "--run-dir", "run", "--json")
    assert result.status == 1
    assert result.lines[-1]["event"] == "error"
    assert "not finite" in result.lines[-1]["problems"][0]["message"]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process there")
def test_ctrl_c_saves_and_prints_the_resume_command(netspec, work):
    command = [sys.executable, "-m", "netspec", "train", "train.yaml", "train.max_steps=100000000", "--run-dir", "run"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        while not running.stdout.readline().startswith("step 4 "):
            time.sleep(0)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130
    assert "Traceback" not in err
    saving, stopped = err.splitlines()
    assert saving == "finishing this step, then saving; Ctrl-C again stops now"
    message, _, again = stopped.partition("; to continue: ")
    assert message.startswith("stopped after step ")
    words = shlex.split(again)
    assert words == ["python", "-m", "netspec", "train", "run/spec.yaml", "--resume"]
    step = int(message.split()[3].replace(",", ""))
    result = netspec.ok(*words[3:], f"train.max_steps={step + 2}", "--json")
    assert result.lines[-1]["steps"] == step + 2


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (None, "stopped at once, before the first checkpoint; to start again: netspec train a/spec.yaml --resume"),
        (1234, "stopped at once; to continue from step 1,234: netspec train a/spec.yaml --resume"),
    ],
)
def test_a_second_ctrl_c_prints_the_resume_command_in_one_line(netspec, work, monkeypatch, step, line):
    def run(*arguments: Any, **options: Any) -> Any:
        raise Interrupted(Path("a"), step, at_once=True)

    (work / "a").mkdir()
    (work / "a" / "spec.yaml").touch()
    monkeypatch.setattr("netspec.training.run.run", run)
    result = netspec("train", "train.yaml")
    assert (result.status, result.out, result.err) == (130, "", line + "\n")


def test_ctrl_c_before_the_training_starts_is_reported(netspec, work, monkeypatch):
    def interrupt(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("netspec.training.run.training_compiler", interrupt)
    result = netspec("train", "train.yaml")
    assert (result.status, result.out, result.err) == (130, "", "interrupted before the first step\n")
    assert not (work / "runs").exists()


def test_resuming_a_finished_run_reports_it(netspec, trained):
    result = netspec("train", "run/spec.yaml", "--resume")
    assert (result.status, result.err) == (0, "")
    assert "note: nothing to do: the run is complete after 12 steps\n" in result.out
    assert "done: 12 steps" in result.out


def test_test_counts_each_sample_once(netspec, trained):
    result = netspec.ok("test", "run/spec.yaml", "--weights", "run/weights.h5", "--json")
    assert result.json["samples"] == 42
    # The classes are eight standard deviations apart.
    assert result.json["metrics"] == {"accuracy": 1.0}
    other = netspec("test", "train.yaml", "data.test.batch_size=5", "--weights", "run/weights.h5", "--json").json
    # The same sums in another order of float32 additions.
    assert other["loss"] == pytest.approx(result.json["loss"], rel=1e-5)


def test_test_as_text(netspec, trained):
    lines = netspec("test", "train.yaml", "--weights", "run/weights.h5").out.splitlines()
    assert [line.split()[0] for line in lines] == ["test", "loss", "accuracy"]
    assert lines[0].endswith("      42")


def test_a_loss_without_a_value_is_null_in_json(netspec, trained):
    model = load("net.yaml", "run/weights.h5")
    model.parameters["logits/bias"] = np.array([np.nan, 0.0], np.float32)
    model.save_weights("nan.h5")
    result = netspec("test", "train.yaml", "--weights", "nan.h5", "--json")
    assert (result.status, result.json["loss"], result.json["non_finite"]) == (0, None, ["loss"])
    assert result.err == "warning: not finite (nan or infinite) on the test data: loss\n"


EVENTS: list[Event] = [
    {"event": "warning", "message": "mind [this]"},
    {
        "event": "start",
        "name": "n",
        "parameters": 5,
        "samples": 9,
        "batch_size": 3,
        "steps": 6,
        "device": "cpu",
        "precision": "float32",
        "step": 0,
    },
    {
        "event": "progress",
        "step": 3,
        "epoch": 1.0,
        "loss": 0.5,
        "learning_rate": 0.1,
        "steps": 6,
        "samples_per_second": 1e4,
    },
    {"event": "test", "step": 3, "samples": 9, "loss": 0.25, "metrics": {"accuracy": 0.75}},
    {
        "event": "log",
        "step": 6,
        "epoch": 2.0,
        "loss": 0.125,
        "learning_rate": 0.1,
        "steps": 6,
        "samples_per_second": 1e4,
    },
    {"event": "checkpoint", "step": 6, "path": "p"},
]


def test_the_bar_fits_80_columns(monkeypatch):
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None, legacy_windows=False)
    monkeypatch.setattr(Progress, "__init__", with_console(Progress.__init__, console))
    with progress._bar() as display:
        bar = progress.Bar(display)
        for event in EVENTS:
            bar(event)
        assert not display.live.auto_refresh, "no thread beside the training"
    text = out.getvalue()
    assert "warning: mind [this]" in text
    last = [line for line in text.replace("\x1b[2K", "\n").splitlines() if line.startswith("epoch 2.00")][-1]
    for part in ("step", "6/6", "loss 0.1250", "test accuracy 0.7500", "10,000/s"):
        assert part in last
    assert "…" not in last


def with_console(init: Callable[..., None], console: Console) -> Callable[..., None]:
    def made(self: Progress, *columns: Any, **options: Any) -> None:
        init(self, *columns, **options, console=console)

    return made


def test_lines_without_a_terminal(capsys):
    show = progress.EventLines()
    for event in EVENTS:
        show(event)
    show.flush()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "warning: mind [this]"
    assert len(lines) == len(EVENTS) - 2, "all but the frequent one and the checkpoint"
    assert lines[-1].startswith("step 6 epoch 2.00 loss 0.12500 learning rate 0.1 ")


def test_an_evaluation_is_shown_with_the_training_loss_up_to_it(netspec, work, monkeypatch):
    words = ("train", "train.yaml", "~train.log_every", "train.max_steps=18")
    lines = netspec(*words).out.splitlines()
    number = r"\d\.\d{5}"
    shown = (
        rf"step (6|12|18) epoch [123]\.00 train loss {number} accuracy {number}, test loss {number} accuracy {number}"
    )
    assert [line for line in lines if line.startswith("step ")][1:] == [
        line for line in lines if re.fullmatch(shown, line)
    ]
    assert sum(line.startswith("step ") for line in lines) == 4
    assert not any("checkpoint" in line for line in lines)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert len(re.findall(shown, netspec(*words).out)) == 3


def test_metrics_that_are_tables_are_printed_and_left_out_of_logs(netspec, work):
    net = (
        (work / "net.yaml")
        .read_text()
        .replace("metrics: [", "metrics: [{type: ConfusionMatrix, from: [logits, label]}, ")
    )
    (work / "net.yaml").write_text(net)
    result = netspec.ok("train", "train.yaml", "--run-dir", "run", "--json")
    tests = [line for line in result.lines if line["event"] == "test"]
    assert [set(line["metrics"]) for line in tests] == [{"accuracy"}] * len(tests)
    assert not any("tables" in line for line in tests)
    report = netspec("test", "run/spec.yaml", "--weights", "run/weights.h5", "--json").json
    assert report["metrics"] == {"accuracy": 1.0}
    assert report["tables"] == {"confusion_matrix": {"0": {"0": 21, "1": 0}, "1": {"0": 0, "1": 21}}}
    lines = netspec("test", "run/spec.yaml", "--weights", "run/weights.h5").out.splitlines()
    assert lines[0].split() == ["test", "samples", "42"]
    assert [line.rsplit(maxsplit=2) for line in lines[-3:]] == [
        ["confusion_matrix (actual \\ predicted)", "0", "1"], ["0", "21", "0"], ["1", "0", "21"],
    ]  # fmt: skip


def test_learning_rates_are_tested_without_a_run(netspec, work):
    before = sorted(work.iterdir())
    chart = "--output", "rates.svg"
    result = netspec.ok("train", "train.yaml", "--find-lr", "--device", "reference", *chart, "train.seed=4")
    assert sorted(work.iterdir()) == sorted([*before, work / "rates.svg"])
    assert result.out.splitlines()[0].split() == ["learning", "rate", "loss", "smoothed"]
    assert "train.yaml has 0.5 (solver.learning_rate)" in result.out
    assert "train train.yaml train.seed=4 solver.learning_rate=" in result.out
    range_test = netspec("train", "train.yaml", "--find-lr", "--device", "reference", "--json").json
    assert len(range_test["losses"]) == len(range_test["learning_rates"]) > 20
    assert range_test["suggested"] <= range_test["lowest"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--find-lr", "--resume"), "--find-lr and --resume cannot be combined"),
        (("--find-lr", "--run-dir", "run"), "--find-lr and --run-dir cannot be combined"),
        (("--find-lr", "--output", "rates.pdf"), "the file is written as SVG or PNG"),
        (("--output", "rates.svg"), "--output needs --find-lr"),
        (
            ("--find-lr", "solver={type: LBFGS}", "~train.max_steps", "train.max_epochs=2"),
            "reads all samples in each step",
        ),
    ],
)
def test_options_that_do_not_fit_the_test_of_learning_rates_are_reported(netspec, work, words, message):
    result = netspec("train", "train.yaml", *words)
    assert result.status == 2
    assert message in result.err


def test_a_result_that_is_no_better_than_the_largest_class_is_noted(netspec, work):
    (work / "mails.csv").write_text("links,kind\n" + "1,ham\n2,ham\n1,spam\n" * 5)
    (work / "mails.yaml").write_text("""\
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [1]}, label: {shape: [], dtype: int32}}
  layers: [{name: logits, type: Dense, units: 2, kernel_initializer: Zeros, from: features}]
  outputs: [logits]
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
  metrics: [{type: SparseCategoricalAccuracy, name: accuracy, from: [logits, label]}]
data:
  train: &mails {source: csv, path: mails.csv, header: true, label: kind, batch_size: 4}
  test: *mails
solver: {type: SGD, learning_rate: 0.001}
train: {max_steps: 5}
""")
    trained = netspec("train", "mails.yaml", "--run-dir", "mails")
    note = "accuracy 0.6667 is not better than always predicting `ham`, the most frequent class: 0.6667"
    assert f"note: on the test data, {note}" in trained.out + trained.err
    result = netspec("test", "mails", "--json")
    assert f"note: on the test data, {note}\n" in result.err
    assert result.json["notes"] == [note]
