"""Resuming a run whose files were lost or damaged."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError, RunError
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights, write_checkpoint
from netspec.exchange.formats.native.safetensors import write_safetensors
from netspec.schema.language.provenance import resolved_yaml
from netspec.schema.load import load_net
from netspec.training import environment, resume
from netspec.training.events import Event
from tests.training.conftest import NET

Make = Callable[..., dict[str, Any]]


def same(path: Path, other: Path) -> bool:
    """Whether two weights files have bit-identical arrays."""
    first, second = read_weights(path).arrays, read_weights(other).arrays
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def test_without_the_spec_file_the_checkpoint_fixes_the_settings(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(), run_dir=tmp_path / "run")
    (run.run_dir / "spec.yaml").unlink()
    other = spec()
    other["data"]["train"]["batch_size"] = 16
    other["train"]["seed"] = 4
    with pytest.raises(InputError) as caught:
        netspec.train(other, run_dir=run.run_dir, resume=True)
    assert {problem.path for problem in caught.value.problems} == {"data.train.batch_size", "train.seed"}
    resumed = netspec.train(spec(), run_dir=run.run_dir, resume=True)
    assert resumed.test == run.test
    assert (run.run_dir / "spec.yaml").exists()


def test_a_run_with_only_damaged_checkpoints_does_not_restart_silently(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(checkpoint_every=20), run_dir=tmp_path / "run")
    saved = sorted((run.run_dir / "checkpoints").iterdir())
    assert len(saved) == 2
    for path in saved:
        damage(path)
    with pytest.raises(InputError, match=r"no checkpoint in .* can be read") as caught:
        netspec.train(spec(checkpoint_every=20), run_dir=run.run_dir, resume=True)
    (problem,) = caught.value.problems
    assert all(str(path) in str(problem.got) for path in saved)
    assert f"--weights {run.last_weights}" in str(problem.hint)


def test_a_run_with_removed_checkpoints_does_not_restart(
    spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = netspec.train(spec(max_steps=2)), netspec.train(spec(max_steps=2))
    shutil.rmtree(first.run_dir / "checkpoints")
    with pytest.raises(InputError, match="there is no checkpoint in runs/small/checkpoints, although") as caught:
        netspec.train(first.run_dir / "spec.yaml", resume=True)
    assert f"--weights {first.last_weights}" in str(caught.value.problems[0].hint)
    first.last_weights.unlink()  # the log shows it, too
    with pytest.raises(InputError, match="there is no checkpoint in runs/small/checkpoints, although"):
        netspec.train(first.run_dir / "spec.yaml", resume=True)
    # A run without any checkpoint starts again.
    lines = [line for line in first.log.read_text().splitlines(keepends=True) if '"checkpoint"' not in line]
    first.log.write_text("".join(lines))
    log_events: list[Event] = []
    assert (
        netspec.train(first.run_dir / "spec.yaml", resume=True, listeners=[log_events.append]).run_dir == first.run_dir
    )
    assert any("there is no checkpoint yet" in event.get("message", "") for event in log_events)
    assert sorted(Path("runs").iterdir()) == [first.run_dir, second.run_dir]


def edit(path: Path, old: str, new: str) -> int:
    """Replace a text that occurs once in a file; return its line number."""
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + 1


def test_editing_the_spec_of_a_run_cannot_change_its_results(spec: Make, tmp_path: Path) -> None:
    train_spec = spec(max_steps=10)
    train_spec["net"] = NET | {"layers": [{**NET["layers"][0], "units": 17}, *NET["layers"][1:]]}
    run = netspec.train(train_spec, run_dir=tmp_path / "run")
    spec_file = run.run_dir / "spec.yaml"
    original_text = spec_file.read_text()
    lines = {
        "data.train.batch_size": edit(spec_file, "batch_size: 32", "batch_size: 16"),
        "solver.learning_rate.initial": edit(spec_file, "initial: 0.01", "initial: 0.001"),
        "net.layers.fc1.units": edit(spec_file, "units: 17", "units: 18"),
    }
    with pytest.raises(InputError) as caught:
        netspec.train(spec_file, resume=True, **{"train.max_steps": 12})
    problems = {problem.path: problem for problem in caught.value.problems}
    assert problems.keys() == lines.keys()
    for path, problem in problems.items():
        assert problem.location is not None
        assert (problem.location.file, problem.location.line) == (str(spec_file), lines[path])
        assert problem.hint == "restore the earlier value; or start a new run with --weights"
    spec_file.write_text(original_text)
    edit(spec_file, "max_steps: 10", "max_steps: 12")
    log_events: list[Event] = []
    assert netspec.train(spec_file, resume=True, listeners=[log_events.append]).steps == 12
    warnings = [event["message"] for event in log_events if event["event"] == "warning"]
    assert "changed since the run began: train.max_steps: 10 → 12" in warnings


def test_the_training_data_may_have_moved(spec: Make, points: Path, tmp_path: Path) -> None:
    run = netspec.train(spec(max_steps=5), run_dir=tmp_path / "run")
    (points / "train.npz").rename(points / "moved.npz")
    moved = {"data.train.path": str(points / "moved.npz"), "train.max_steps": 6}
    assert netspec.train(run.run_dir / "spec.yaml", resume=True, **moved).steps == 6


def test_a_resumed_run_keeps_the_origins_of_its_values(spec: Make, tmp_path: Path) -> None:
    train_spec = spec(max_steps=4)
    net, train_file = tmp_path / "net.yaml", tmp_path / "train.yaml"
    net.write_text(resolved_yaml(load_net(train_spec["net"])))
    train_file.write_text(json.dumps({**train_spec, "net": "net.yaml"}, indent=1))
    run = netspec.train(train_file, run_dir=tmp_path / "run")
    spec_file, original_text = run.run_dir / "spec.yaml", (run.run_dir / "spec.yaml").read_text()
    assert f"# {train_file}:" in original_text
    netspec.train(spec_file, resume=True)
    assert spec_file.read_text() == original_text
    line = edit(spec_file, "log_every: 10 ", "log_every: 11 ")
    netspec.train(spec_file, resume=True, **{"train.max_steps": 5})
    now = dict(re.split(" +# (?=[^#]*$)", text.strip()) for text in spec_file.read_text().splitlines())
    assert now["log_every: 11"] == f"{spec_file}:{line}"
    assert now["max_steps: 5"] == "python"
    assert now["seed: 3"].startswith(f"{train_file}:")


@pytest.mark.parametrize("removed", ["run", "run/checkpoints"])
def test_a_removed_run_directory_is_created_again(spec: Make, tmp_path: Path, removed: str) -> None:
    log_events: list[Event] = []

    def remove(event: Event) -> None:
        log_events.append(event)
        if event["event"] == "log" and event["step"] == 10:
            shutil.rmtree(tmp_path / removed)

    run = netspec.train(spec(max_steps=20, checkpoint_every=0), run_dir=tmp_path / "run", listeners=[remove])
    (warning,) = [warning_event["message"] for warning_event in log_events if warning_event["event"] == "warning"]
    assert warning.startswith(f"{tmp_path / removed} was removed during the run")
    assert read_weights(run.last_weights).meta["step"] == 20
    assert json.loads(run.log.read_text().splitlines()[-1])["event"] == "done"
    assert netspec.train(run.run_dir / "spec.yaml", resume=True).steps == 20


def test_a_run_directory_that_cannot_be_created_again_fails_the_run(spec: Make, tmp_path: Path) -> None:
    def replace(event: Event) -> None:
        if event["event"] == "log" and event["step"] == 10:
            shutil.rmtree(tmp_path / "run")
            (tmp_path / "run").write_text("a file")

    with pytest.raises(RunError, match="cannot create the run directory"):
        netspec.train(spec(max_steps=20), run_dir=tmp_path / "run", listeners=[replace])


def test_an_incomplete_last_log_line_damages_no_other(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(max_steps=10), run_dir=tmp_path / "run")
    log_text = run.log.read_text()
    for name in ("log.jsonl", "log.txt"):
        path = run.run_dir / name
        path.write_text(path.read_text()[:-9])
    netspec.train(spec(max_steps=20), run_dir=tmp_path / "run", resume=True)
    lines = run.log.read_text().splitlines()
    torn = len(log_text.splitlines()) - 1
    assert log_text.splitlines()[torn].startswith(lines[torn])
    assert [json.loads(line)["event"] for line in lines[:torn] + lines[torn + 1 :]][-1] == "done"
    assert (run.run_dir / "log.txt").read_text().splitlines()[torn + 1].startswith("warning: changed since")


def test_files_of_a_killed_writer_are_removed_at_the_start(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(max_steps=10), run_dir=tmp_path / "run")
    left = [
        run.run_dir / "checkpoints" / ".step-00000020.h5.0123456789ab.tmp",
        run.run_dir / ".best.h5.0123456789ab.tmp",
    ]
    for path in left:
        path.write_bytes(b"half")
    netspec.train(spec(max_steps=20), run_dir=run.run_dir, resume=True)
    assert not any(path.exists() for path in left)


def constant_rate(spec: Make, steps: int) -> dict[str, Any]:
    """A training whose rate does not depend on its length."""
    train_spec = spec(max_steps=steps)
    train_spec["solver"]["learning_rate"] = 0.01
    return train_spec


def test_a_new_run_continues_from_the_checkpoint_of_another(spec: Make, tmp_path: Path) -> None:
    uninterrupted = netspec.train(constant_rate(spec, 20), run_dir=tmp_path / "whole")
    half = netspec.train(constant_rate(spec, 10), run_dir=tmp_path / "half")
    checkpoint = max((half.run_dir / "checkpoints").iterdir())
    continued = netspec.train(constant_rate(spec, 20), run_dir=tmp_path / "rest", resume=checkpoint)
    assert continued.steps == 20
    assert same(continued.last_weights, uninterrupted.last_weights)
    assert continued.test == uninterrupted.test


def test_a_new_run_from_a_checkpoint_of_its_last_step_warns(spec: Make, tmp_path: Path) -> None:
    half = netspec.train(constant_rate(spec, 10), run_dir=tmp_path / "half")
    checkpoint = max((half.run_dir / "checkpoints").iterdir())
    for steps, warns in ((8, True), (10, True), (11, False)):
        log_events: list[Event] = []
        netspec.train(
            constant_rate(spec, steps), run_dir=tmp_path / f"{steps}", resume=checkpoint, listeners=[log_events.append]
        )
        assert (
            any("no steps left to train" in event["message"] for event in log_events if event["event"] == "warning")
            == warns
        )


def test_a_checkpoint_without_a_loader_state_resumes_after_its_steps(spec: Make, tmp_path: Path) -> None:
    """Checkpoints from `netspec import` look like this."""
    uninterrupted = netspec.train(constant_rate(spec, 20), run_dir=tmp_path / "whole")
    half = netspec.train(constant_rate(spec, 13), run_dir=tmp_path / "half")
    path = max((half.run_dir / "checkpoints").iterdir())
    checkpoint = read_checkpoint(path)
    write_checkpoint(tmp_path / "other.h5", checkpoint.states, checkpoint.roles, {"step": 13}, checkpoint.spec)
    continued = netspec.train(constant_rate(spec, 20), run_dir=tmp_path / "rest", resume=str(tmp_path / "other.h5"))
    assert same(continued.last_weights, uninterrupted.last_weights)


def test_a_resume_warns_of_other_versions(spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = netspec.train(spec(max_steps=2), run_dir=tmp_path / "run")
    content = read_checkpoint(max((run.run_dir / "checkpoints").iterdir()))
    assert content.progress["versions"] == dict(environment.versions())
    assert {"netspec", "python", "numpy", "numba"} <= content.progress["versions"].keys()
    monkeypatch.setattr(resume, "versions", lambda: {**environment.versions(), "numpy": "9.9"})
    log_events: list[Event] = []
    netspec.train(spec(max_steps=3), run_dir=run.run_dir, resume=True, listeners=[log_events.append])
    (warning,) = [event["message"] for event in log_events if "versions" in event.get("message", "")]
    assert warning.endswith(f"may differ by rounding: numpy {np.__version__} → 9.9")


def test_a_checkpoint_of_another_solver_is_refused_before_a_step(spec: Make, tmp_path: Path) -> None:
    half = netspec.train(constant_rate(spec, 10), run_dir=tmp_path / "half")
    path = max((half.run_dir / "checkpoints").iterdir())
    other = constant_rate(spec, 20)
    other["solver"] = {"type": "Adagrad"}
    with pytest.raises(InputError, match="belongs to a different net or solver"):
        netspec.train(other, run_dir=tmp_path / "rest", resume=path)


@pytest.mark.parametrize("first", [None, {"strategy": "all_reduce"}], ids=["none", "default"])
def test_no_strategy_equals_the_default_strategy(spec: Make, tmp_path: Path, first: Any) -> None:
    run = netspec.train({**spec(max_steps=2), "parallel": first}, run_dir=tmp_path / "run")
    other = None if first else {"strategy": "all_reduce", "heartbeat": 60}
    netspec.train({**spec(max_steps=4), "parallel": other}, run_dir=run.run_dir, resume=True)
    with pytest.raises(InputError) as caught:
        netspec.train({**spec(max_steps=4), "parallel": {"strategy": "one_bit"}}, run_dir=run.run_dir, resume=True)
    (problem,) = caught.value.problems
    assert (problem.path, problem.expected, problem.got) == ("parallel.strategy", "all_reduce", "one_bit")
    assert f"--resume {run.run_dir}/checkpoints/step-00000004.h5" in str(problem.hint)
    (run.run_dir / "spec.yaml").unlink()
    with pytest.raises(InputError) as caught:
        netspec.train({**spec(max_steps=4, seed=9)}, run_dir=run.run_dir, resume=True)
    assert "spec.yaml" not in str(caught.value.problems[0].hint)


def test_a_refused_checkpoint_leaves_no_run_directory(spec: Make, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for folder in (tmp_path / "new" / "run", tmp_path / "mine"):
        with pytest.raises(InputError):
            netspec.train(spec(), run_dir=folder, resume=tmp_path / "none.h5")
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "mine").iterdir()) == []


def test_parameters_that_pytorch_has_not_trained_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    arrays = {"out.weight": np.zeros((2, 3), np.float32), "out.bias": np.zeros(2, np.float32)}
    state = {f"optimizer.state.out.bias.{name}": np.zeros(2, np.float32) for name in ("exp_avg", "exp_avg_sq")}
    description = {"type": "Adam", "step": 0, "param_groups": [{"params": ["out.weight", "out.bias"]}]}
    write_safetensors(path, arrays | state, {"optimizer": json.dumps(description)})
    net = {
        "netspec": 1,
        "inputs": {"x": {"shape": [3]}, "y": {"shape": [2]}},
        "layers": [{"name": "out", "type": "Dense", "units": 2}],
        "losses": [{"type": "MeanSquaredError"}],
    }
    training = {
        "netspec": 1,
        "net": net,
        "data": {"train": {"source": "python", "fields": ["x", "y"], "batch_size": 2}},
        "solver": {"type": "Adam", "epsilon_mode": "bias_corrected"},
        "train": {"max_steps": 2},
    }
    samples = {"train": {"x": np.zeros((4, 3), np.float32), "y": np.zeros((4, 2), np.float32)}}
    with pytest.raises(InputError) as caught:
        netspec.train(training, run_dir=tmp_path / "run", resume=path, samples=samples)
    (problem,) = caught.value.problems
    assert "has no state of `out.weight`, which it has not trained: set `trainable: false` for `out`" in problem.message
