"""A training from spec to run directory: files and events, and that nothing else can change its results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import netspec
from netspec.backends.device_registry import CpuDevice
from netspec.backends.verification import DeviceCheck, Verification
from netspec.errors import InputError, RunError
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights
from netspec.schema.load import load_train
from netspec.training import lock
from netspec.training.events import Event
from netspec.training.loop import TrainingLoop
from netspec.training.run import Interrupted, training_steps

Make = Callable[..., dict[str, Any]]


def weights(folder: Path) -> dict[str, Any]:
    return dict(read_weights(folder / "weights.h5").arrays)


def same(first: dict[str, Any], other: dict[str, Any]) -> bool:
    return first.keys() == other.keys() and all(first[name].tobytes() == other[name].tobytes() for name in first)


def events(folder: Path) -> list[Event]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_run_directory_holds_spec_log_checkpoints_and_weights(spec: Make, tmp_path: Path) -> None:
    log_events: list[Event] = []
    run = netspec.train(spec(checkpoint_every=15), run_dir=tmp_path / "run", listeners=[log_events.append])
    written = {path.relative_to(run.run_dir).as_posix() for path in run.run_dir.rglob("*") if path.is_file()}
    assert written == {
        "spec.yaml", "lock", "log.jsonl", "log.txt", "weights.h5", "best.h5",
        "checkpoints/step-00000030.h5", "checkpoints/step-00000040.h5",
    }  # fmt: skip
    assert run.steps == 40
    assert run.test is not None
    assert run.test.samples == 57
    assert run.test.metrics["accuracy"] > 0.8
    done_event = events(run.run_dir)[-1]
    assert done_event["event"] == "done"
    assert done_event["test"] == {"samples": 57, "loss": run.test.loss, "metrics": run.test.metrics}
    assert [event for event in log_events if event["event"] != "progress"] == events(run.run_dir)


def test_weights_depend_only_on_the_seed(spec: Make, tmp_path: Path) -> None:
    first, repeated, other = (
        weights(netspec.train(spec(seed=seed), run_dir=tmp_path / name).run_dir)
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert same(first, repeated)
    assert not same(first, other)


def test_evaluation_and_logging_do_not_change_the_weights(spec: Make, tmp_path: Path) -> None:
    plain = netspec.train(spec(test_every=0), run_dir=tmp_path / "a")
    busy = netspec.train(spec(test_every=3, checkpoint_every=1, log_every=1), run_dir=tmp_path / "b")
    assert same(weights(plain.run_dir), weights(busy.run_dir))


def test_a_resumed_run_is_bit_identical_to_an_uninterrupted_one(spec: Make, tmp_path: Path) -> None:
    uninterrupted = netspec.train(spec(), run_dir=tmp_path / "whole")
    for stop in (1, 7, 8, 15, 39):
        parts = tmp_path / f"stopped-at-{stop}"

        def interrupt(event: Event, stop: int = stop) -> None:
            if event["event"] == "log" and event["step"] == stop:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(Interrupted) as caught:
            netspec.train(spec(log_every=1), run_dir=parts, listeners=[interrupt])
        assert caught.value.step == stop
        resumed = netspec.train(spec(log_every=1), run_dir=parts, resume=True)
        assert resumed.steps == 40
        assert same(weights(uninterrupted.run_dir), weights(resumed.run_dir)), stop
        expected, other = (
            read_checkpoint(run / "checkpoints" / "step-00000040.h5") for run in (uninterrupted.run_dir, parts)
        )
        assert same(dict(expected.states), dict(other.states)), stop  # including the solver's slots


def command(folder: Path, spec_file: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "netspec", "train", str(spec_file), "--run-dir", str(folder), *more]


@pytest.mark.slow
def test_a_run_killed_at_any_moment_resumes_to_the_same_weights(spec: Make, tmp_path: Path) -> None:
    spec_file = tmp_path / "train.yaml"
    spec_file.write_text(
        yaml.safe_dump(spec(max_steps=400, checkpoint_every=20, log_every=20, test_every=100), sort_keys=False)
    )
    uninterrupted = netspec.train(spec_file, run_dir=tmp_path / "whole")
    folder = tmp_path / "killed"
    process = subprocess.Popen(command(folder, spec_file), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = folder / "log.jsonl"
    deadline = time.monotonic() + 60
    while not (log.exists() and '"step": 100' in log.read_text()) and process.poll() is None:
        assert time.monotonic() < deadline, "the run did not get to step 100 within a minute"
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
    killed = subprocess.run(
        command(folder, folder / "spec.yaml", "--resume"), capture_output=True, text=True, check=False
    )
    assert killed.returncode == 0, killed.stderr
    assert same(weights(uninterrupted.run_dir), weights(folder))
    assert (uninterrupted.run_dir / "weights.h5").read_bytes() == (folder / "weights.h5").read_bytes()


def test_a_damaged_checkpoint_falls_back_to_the_previous_one_with_a_warning(spec: Make, tmp_path: Path) -> None:
    first_run = netspec.train(spec(checkpoint_every=10), run_dir=tmp_path / "run")
    before = weights(first_run.run_dir)
    newest = tmp_path / "run" / "checkpoints" / "step-00000040.h5"
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    newest.write_bytes(bytes(damaged))
    log_events: list[Event] = []
    netspec.train(spec(checkpoint_every=10), run_dir=tmp_path / "run", resume=True, listeners=[log_events.append])
    assert same(before, weights(tmp_path / "run"))
    start = next(event for event in log_events if event["event"] == "start")
    assert start["step"] == 30
    assert any("step-00000040.h5" in event["message"] for event in log_events if event["event"] == "warning")


def test_resume_refuses_settings_that_change_results_and_lists_the_others(spec: Make, tmp_path: Path) -> None:
    netspec.train(spec(), run_dir=tmp_path / "run")
    changed = spec()
    changed["data"]["train"]["batch_size"] = 16
    changed["solver"]["learning_rate"] = 0.5
    with pytest.raises(InputError) as caught:
        netspec.train(changed, run_dir=tmp_path / "run", resume=True)
    paths = {problem.path for problem in caught.value.problems}
    assert "data.train.batch_size" in paths
    assert any(path.startswith("solver.learning_rate") for path in paths)
    log_events: list[Event] = []
    run = netspec.train(spec(max_steps=60), run_dir=tmp_path / "run", resume=True, listeners=[log_events.append])
    assert run.steps == 60
    warnings = [event["message"] for event in log_events if event["event"] == "warning"]
    assert "changed since the run began: train.max_steps: 40 → 60" in warnings


def test_changed_training_data_is_noticed_on_resume(spec: Make, points: Path, tmp_path: Path) -> None:
    netspec.train(spec(), run_dir=tmp_path / "run")
    arrays = dict(np.load(points / "train.npz"))
    arrays["x"][0, 0] += 1
    np.savez(points / "train.npz", **arrays)
    with pytest.raises(InputError, match="the training data changed since the checkpoint"):
        netspec.train(spec(max_steps=50), run_dir=tmp_path / "run", resume=True)


def test_a_second_run_does_not_overwrite_the_first(spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = netspec.train(spec(max_steps=2)), netspec.train(spec(max_steps=3))
    assert (str(first.run_dir), str(second.run_dir)) == ("runs/small", "runs/small-2")
    assert netspec.train(spec(max_steps=5), resume=True).run_dir == second.run_dir  # damage the newest checkpoint
    with pytest.raises(InputError, match="already contains a run"):
        netspec.train(spec(), run_dir=first.run_dir)
    with pytest.raises(InputError, match="no run to resume"):
        netspec.train(spec(), run_dir=tmp_path / "nothing", resume=True)


def test_a_non_finite_loss_stops_the_run_and_saves_the_previous_weights(spec: Make, tmp_path: Path) -> None:
    wild = spec()
    wild["solver"] = {"type": "SGD", "learning_rate": 1e30}
    with pytest.raises(RunError, match="the loss is not finite at step") as caught:
        netspec.train(wild, run_dir=tmp_path / "run")
    (problem,) = caught.value.problems
    # The variance overflows; the fused kernel that notices it also computes `drop`.
    assert problem.message.endswith("at step 2: first in layer `norm` (BatchNormalization)")
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert str(checkpoint) in problem.notes[0]
    assert not (tmp_path / "run" / "weights.h5").exists()


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the platform has no SIGUSR1")
def test_sigusr1_writes_a_checkpoint_and_training_continues(spec: Make, tmp_path: Path) -> None:
    def ask(event: Event) -> None:
        if event["event"] == "log" and event["step"] == 10:
            os.kill(os.getpid(), signal.SIGUSR1)

    run = netspec.train(spec(checkpoint_every=0), run_dir=tmp_path / "run", listeners=[ask])
    assert run.steps == 40
    saved = [event["step"] for event in events(run.run_dir) if event["event"] == "checkpoint"]
    assert saved == [11, 40] or saved == [10, 40]  # the signal may be handled during the step or right after it


def test_a_new_run_starts_from_weights_and_names_those_that_do_not_fit(spec: Make, tmp_path: Path) -> None:
    first = netspec.train(spec(), run_dir=tmp_path / "first")
    other = json.loads(json.dumps(spec(max_steps=1)))
    other["net"]["layers"][-1]["units"] = 5
    log_events: list[Event] = []
    netspec.train(other, run_dir=tmp_path / "second", weights=first.weights, listeners=[log_events.append])
    (warning,) = [event["message"] for event in log_events if event["event"] == "warning"]
    assert warning.endswith("not in it, or of another shape, so initialized: logits/bias, logits/kernel")
    other["net"]["layers"] = [{"name": "other", "type": "Dense", "units": 3}]
    other["net"]["losses"][0]["from"] = other["net"]["metrics"][0]["from"] = ["other", "label"]
    with pytest.raises(InputError, match=r"nothing in .* fits the net"):
        netspec.train(other, run_dir=tmp_path / "third", weights=first.weights)


def test_epochs_count_whole_passes_and_the_last_batch_is_not_lost(spec: Make, tmp_path: Path) -> None:
    changed = spec(max_epochs=2)
    del changed["train"]["max_steps"]
    run = netspec.train(changed, run_dir=tmp_path / "run")
    assert run.steps == 2 * 8  # 230 samples in batches of 32: 7 full ones and one of 6
    tests = [event["step"] for event in events(run.run_dir) if event["event"] == "test"]
    assert tests == [8, 16]


def test_overrides_by_keyword_and_by_dotted_name(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(), run_dir=tmp_path / "run", train={"max_steps": 4}, **{"solver.learning_rate": 0.5})
    assert run.steps == 4
    log = [event for event in events(run.run_dir) if event["event"] == "log"]
    assert log[-1]["learning_rate"] == 0.5


def test_a_second_process_is_refused_and_the_lock_holder_named(spec: Make, tmp_path: Path) -> None:
    run = tmp_path / "run"
    holder = (
        "import sys; from pathlib import Path; from netspec.training.lock import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    netspec.train(spec(max_steps=1), run_dir=run)
    process = subprocess.Popen(
        [sys.executable, "-c", holder, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"is being written by process {process.pid}"):
            netspec.train(spec(), run_dir=run, resume=True)
        (run / "spec.yaml").rename(run / "other.yaml")  # as if the first process had not written its spec yet
        with pytest.raises(InputError, match=f"is being written by process {process.pid}"):
            netspec.train(spec(), run_dir=run)
        (run / "other.yaml").rename(run / "spec.yaml")
    finally:
        process.kill()
        process.communicate()
    # The system has released the lock of the killed process.
    assert netspec.train(spec(max_steps=2), run_dir=run, resume=True).steps == 2


def test_a_lock_file_is_used_without_system_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    with lock.locked(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(InputError, match=f"process {os.getpid()}"), lock.locked(tmp_path):
            pass
    assert not (tmp_path / "lock").exists()


def test_the_spec_of_a_run_resumes_that_run(spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = netspec.train(spec(max_steps=2)), netspec.train(spec(max_steps=3))
    spec_file = first.run_dir / "spec.yaml"
    longer = {"train.max_steps": 4}
    assert netspec.train(spec_file, resume=True, **longer).run_dir == first.run_dir
    assert netspec.train(first.run_dir, resume=True, **longer).run_dir == first.run_dir
    assert netspec.check(first.run_dir).parameters == netspec.check(spec_file).parameters
    assert netspec.train(spec_file, resume=True, run_dir=second.run_dir, **longer).run_dir == second.run_dir
    assert netspec.train(spec_file).run_dir == Path("runs/small-3")  # without `resume`, it is a spec like any other


def test_an_override_of_one_length_replaces_the_other(spec: Make) -> None:
    in_steps, in_epochs = spec(max_steps=40), spec(max_steps=None, max_epochs=2)
    for overrides in (["train.max_epochs=3"], {"train": {"max_epochs": 3}}, {"train.max_epochs": 3}):
        loop = load_train(in_steps, overrides).train
        assert (loop.max_steps, loop.max_epochs) == (None, 3)
    loop = load_train(in_epochs, ["train.max_steps=7"]).train
    assert (loop.max_steps, loop.max_epochs) == (7, None)
    with pytest.raises(InputError, match="`max_steps` and `max_epochs` cannot be combined"):
        load_train(in_epochs, ["train.max_steps=7", "train.max_epochs=3"])
    with pytest.raises(InputError, match="`max_steps` or `max_epochs` is missing"):
        load_train(in_epochs, ["train.max_epochs=null"])


def test_a_missing_path_of_a_divided_source_is_one_error(spec: Make, tmp_path: Path) -> None:
    training = spec()
    del training["data"]["test"]
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(training))
    divided = ["data.train.path=none.npz", "data.train.split={validation: 0.2, test: 0.2}"]
    with pytest.raises(InputError) as caught:
        next(training_steps(tmp_path / "train.yaml", divided, run_dir=tmp_path / "run"))
    assert [problem.message for problem in caught.value.problems] == ["`none.npz` does not exist"]
    assert not (tmp_path / "run").exists()


def test_a_finished_run_has_nothing_left_to_do(spec: Make, tmp_path: Path) -> None:
    # The last checkpoint precedes the last evaluation, whose result must be saved, too.
    options = {"max_steps": 10, "test_every": 0, "checkpoint_every": 5}
    run = netspec.train(spec(**options), run_dir=tmp_path / "run")
    written_at = run.last_weights.stat().st_mtime_ns
    log_events: list[Event] = []
    resumed = netspec.train(spec(**options), run_dir=tmp_path / "run", resume=True, listeners=[log_events.append])
    assert [event["event"] for event in log_events] == ["start", "note", "done"]
    assert log_events[1]["message"] == "nothing to do: the run is complete after 10 steps"
    assert run.test is not None
    assert resumed.test == run.test
    assert log_events[2]["test"] == run.test.as_json()
    assert resumed.seconds == log_events[2]["elapsed"] == run.seconds
    assert run.last_weights.stat().st_mtime_ns == written_at
    # With other evaluation settings, or without the final weights, there is something to do.
    other = spec(**options)
    other["data"]["test"]["limit"] = 20
    evaluation = netspec.train(other, run_dir=tmp_path / "run", resume=True).test
    assert evaluation is not None
    assert evaluation.samples == 20
    run.last_weights.unlink()
    netspec.train(other, run_dir=tmp_path / "run", resume=True)
    assert run.last_weights.exists()


class StopAfter(netspec.Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, training: TrainingLoop) -> None:
        if training.step == self.step:
            training.request_stop("the test")


def test_a_finished_run_chosen_by_name_names_the_interrupted_one(
    spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log_events: list[Event] = []

    def notes(**options: Any) -> list[str]:
        log_events.clear()
        netspec.train(spec(max_steps=2), resume=True, listeners=[log_events.append], **options)
        return [event["message"] for event in log_events if event["event"] == "note"]

    finished = netspec.train(spec(max_steps=2))
    nothing = "nothing to do: the run is complete after 2 steps"
    assert notes() == [nothing]
    for folder, name in (("other", "another"), ("long", "small")):
        with pytest.raises(netspec.Interrupted):
            netspec.train({**spec(), "name": name}, run_dir=f"runs/{folder}", callbacks=[StopAfter(1)])
    assert notes() == [nothing, "runs/long was interrupted; to continue: netspec train runs/long/spec.yaml --resume"]
    assert notes(run_dir=finished.run_dir) == [nothing]
    netspec.train("runs/long/spec.yaml", resume=True)
    assert notes() == [nothing]


def test_the_last_checkpoint_is_written_once_and_holds_the_last_evaluation(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(max_steps=10, test_every=5, checkpoint_every=5), run_dir=tmp_path / "run")
    kinds = ("test", "checkpoint")
    logged = [(event["event"], event["step"]) for event in events(run.run_dir) if event["event"] in kinds]
    assert logged == [("checkpoint", 5), ("test", 5), ("test", 10), ("checkpoint", 10)]
    assert read_checkpoint(run.run_dir / "checkpoints" / "step-00000010.h5").progress["tested_step"] == 10


def test_a_failing_last_evaluation_loses_no_step(spec: Make, points: Path, tmp_path: Path) -> None:
    arrays = dict(np.load(points / "test.npz"))
    np.savez(points / "test.npz", x=np.full_like(arrays["x"], np.nan), label=arrays["label"])
    with pytest.raises(InputError, match="not a finite"):
        netspec.train(spec(max_steps=10, checkpoint_every=5, test_every=0), run_dir=tmp_path / "run")
    names = [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()]
    assert sorted(names) == ["step-00000005.h5", "step-00000010.h5"]


@pytest.mark.parametrize("split", ["train", "test"])
def test_labels_are_checked_once_before_the_first_step(spec: Make, points: Path, tmp_path: Path, split: str) -> None:
    arrays = dict(np.load(points / f"{split}.npz"))
    arrays["label"][5:45:2] = 9
    arrays["label"][50] = -1
    np.savez(points / f"{split}.npz", x=arrays["x"], label=arrays["label"])
    with pytest.raises(InputError) as caught:
        netspec.train(spec(max_steps=10), run_dir=tmp_path / "run")
    (problem,) = caught.value.problems
    assert problem.message == f"`label` is out of range in 21 of {len(arrays['label'])} samples"
    assert problem.got == "9 (20 samples), -1 (1 sample)"
    assert problem.notes == (f"samples: {split}.npz, sample 5, 7, 9, 11, 13, 15, 17, 19, 21, 23 and 11 more",)
    assert caught.value.exit_status == 2
    assert not (tmp_path / "run").exists()


def test_the_first_step_is_logged(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(max_steps=25), run_dir=tmp_path / "run")
    assert [event["step"] for event in events(run.run_dir) if event["event"] == "log"] == [1, 10, 20, 25]


def test_evaluations_more_frequent_than_log_lines_have_one_each(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(max_steps=13, test_every=4, log_every=None), run_dir=tmp_path / "run")
    logged = [event for event in run.history if event["event"] == "log"]
    assert [event["step"] for event in logged] == [1, 4, 8, 12, 13]
    every_step = netspec.train(spec(max_steps=13, test_every=1, log_every=None), run_dir=tmp_path / "each").history
    losses = {event["step"]: event["loss"] for event in every_step if event["event"] == "log"}
    assert logged[2]["loss"] == pytest.approx(np.mean([losses[step] for step in (5, 6, 7, 8)]))


def test_the_log_has_the_check_of_the_device(spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = DeviceCheck("a:Good", "kernel", "passed"), DeviceCheck("a:Bad", "kernel", "failed", reason="wrong")
    result = Verification("cuda:0", True, checks, 1.0)
    monkeypatch.setattr(CpuDevice, "verification", result)
    monkeypatch.setattr(CpuDevice, "warnings", result.warnings())
    run = netspec.train(spec(max_steps=1), run_dir=tmp_path / "run", device="reference")
    warning, start, *_ = events(run.run_dir)
    assert warning["message"].startswith(
        "a:Bad is disabled, because it failed the check of `cuda:0`: wrong; please report"
    )
    assert [check["name"] for check in start["verification"]["checks"]] == ["a:Bad"]
    assert not start["verification"]["passed"]


def test_the_log_starts_with_versions_and_threads_and_resume_warns_of_changes(
    spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    run = netspec.train(spec(max_steps=2), run_dir=tmp_path / "run")
    start = events(run.run_dir)[0]
    assert start["threads"] == 3
    expected = {
        "netspec": netspec.__version__,
        "numpy": np.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
    assert start["machine"].keys() == {"processor", "system", "memory_bytes", "gpu"}
    assert start["versions"].items() >= expected.items()
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 5, 7}, raising=False)
    log_events: list[Event] = []
    netspec.train(spec(max_steps=4), run_dir=tmp_path / "run", resume=True, listeners=[log_events.append])
    warnings = [event["message"] for event in log_events if event["event"] == "warning"]
    assert any(message.startswith("4 threads are used instead of 3") for message in warnings)


def test_errors_about_changed_settings_show_how_to_resume(spec: Make, tmp_path: Path) -> None:
    netspec.train(spec(max_steps=2), run_dir=tmp_path / "run", **{"solver.global_clipnorm": None})
    with pytest.raises(InputError) as caught:
        netspec.train(spec(max_steps=2), run_dir=tmp_path / "run", resume=True)
    (problem,) = caught.value.problems
    assert (problem.path, problem.expected, problem.got) == ("solver.global_clipnorm", "nothing", "5.0")
    assert problem.hint is not None
    assert f"`netspec train {tmp_path / 'run' / 'spec.yaml'} --resume`" in problem.hint


def test_a_changed_setting_is_reported_at_the_override(spec: Make, tmp_path: Path) -> None:
    netspec.train(spec(max_steps=2), run_dir=tmp_path / "run")
    with pytest.raises(InputError) as caught:
        netspec.train(tmp_path / "run" / "spec.yaml", resume=True, **{"solver.global_clipnorm": 0.5})
    (problem,) = caught.value.problems
    assert problem.location is not None
    assert (problem.location.file, problem.location.text) == ("<python>", "solver.global_clipnorm=0.5")
    assert problem.hint is not None
    assert f"`netspec train {tmp_path / 'run' / 'spec.yaml'} --resume`" in problem.hint


def test_a_second_ctrl_c_stops_at_once(spec: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt(event: Event) -> None:
        if event["event"] == "log" and event["step"] == 10:
            signal.raise_signal(signal.SIGINT)
            assert capfd.readouterr().err == "finishing this step, then saving; Ctrl-C again stops now\n"
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted) as caught:
        netspec.train(spec(checkpoint_every=4), run_dir=tmp_path / "run", listeners=[interrupt])
    assert caught.value.at_once
    assert caught.value.step == 8


def test_a_device_that_cannot_run_leaves_no_run_directory(spec: Make, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only plans"):
        netspec.train(spec(), run_dir=tmp_path / "run", device="null")
    assert not (tmp_path / "run").exists()


def test_a_schedule_longer_than_the_training_is_reported(spec, tmp_path):
    """Only a note, since a training may be tried for a few steps; equal lengths of a warm-up and its part are fine."""
    warm = {"steps": 4, "schedule": {"type": "Warmup", "steps": 4, "then": 0.1}}
    train_spec = spec(max_steps=6)
    train_spec["solver"] = {
        "type": "SGD", "learning_rate": [warm, {"steps": 2, "schedule": 0.1}, {"schedule": 0.01}],
        "groups": [
            {"match": "fc1/*", "learning_rate": {"type": "Warmup", "steps": 7, "then": 0.1}},
            {"match": "logits/*", "learning_rate": [warm, {"schedule": 0.01}]},
        ],
    }  # fmt: skip
    log_events: list[Event] = []
    netspec.train(train_spec, run_dir=tmp_path / "run", listeners=[log_events.append])
    warnings = [event["message"] for event in log_events if event["event"] == "warning"]
    assert [message.split(": ")[1] for message in warnings] == [
        "the 6 steps of the run never reach part 3, from step 7",
        "the 6 steps of the run never reach the end of a warm-up of 7 steps",
    ]


def test_a_finished_run_is_opened_from_its_folder(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(max_steps=20, test_every=10), run_dir=tmp_path / "run")
    opened = netspec.open_run(str(tmp_path / "run"))
    assert opened == run
    assert (opened.history, opened.best_weights) == (run.history, run.best_weights)
    assert opened._repr_html_() == run._repr_html_()
    (tmp_path / "run").rename(tmp_path / "moved")
    moved = netspec.open_run(tmp_path / "moved")
    assert moved.weights == tmp_path / "moved" / "best.h5"
    assert moved.weights.is_file()
    log = tmp_path / "moved" / "log.jsonl"
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if '"done"' not in line))
    with pytest.raises(
        InputError, match=r"the run .*moved has not finished\n  got: a stopped run\n  hint: `netspec.load`"
    ):
        netspec.open_run(tmp_path / "moved")
    with pytest.raises(InputError, match=r"there is no run in (.|\n)*did you mean `.*moved`"):
        netspec.open_run(tmp_path / "moved2")


def test_a_run_has_history_and_best_weights(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(max_steps=20, test_every=10), run_dir=tmp_path / "run")
    run = netspec.train(spec(max_steps=30, test_every=10), run_dir=tmp_path / "run", resume=True)
    rows = [(event["event"], event["step"]) for event in run.history]
    assert rows == [("log", 1), *((kind, step) for step in (10, 20, 30) for kind in ("log", "test"))]
    assert run.history[-1]["loss"] == run.test.loss if run.test else False
    assert run.best_weights == tmp_path / "run" / "best.h5"
    untested = netspec.train({**spec(max_steps=2), "data": {"train": spec()["data"]["train"]}}, run_dir=tmp_path / "b")
    assert untested.best_weights is None
