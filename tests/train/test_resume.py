"""Going on with a run whose own files were lost or damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError
from netspec.exchange.hdf5 import read_checkpoint, read_weights, write_checkpoint
from netspec.train.events import Event

Make = Callable[..., dict[str, Any]]


def same(one: Path, other: Path) -> bool:
    """Whether two weights files hold the same numbers, bit for bit."""
    first, second = read_weights(one).arrays, read_weights(other).arrays
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def test_without_the_spec_file_the_checkpoint_says_what_may_not_change(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(), run_dir=tmp_path / "run")
    (run.run_dir / "spec.yaml").unlink()
    other = spec()
    other["data"]["train"]["batch_size"] = 16
    other["train"]["seed"] = 4
    with pytest.raises(InputError) as caught:
        netspec.train(other, run_dir=run.run_dir, resume=True)
    assert {problem.path for problem in caught.value.problems} == {"data.train.batch_size", "train.seed"}
    again = netspec.train(spec(), run_dir=run.run_dir, resume=True)
    assert again.test == run.test
    assert (run.run_dir / "spec.yaml").exists()


def test_a_run_whose_checkpoints_are_all_damaged_is_not_begun_anew_in_silence(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(checkpoint_every=20), run_dir=tmp_path / "run")
    saved = sorted((run.run_dir / "checkpoints").iterdir())
    assert len(saved) == 2
    for path in saved:
        damage(path)
    with pytest.raises(InputError, match=r"no checkpoint in .* can be read") as caught:
        netspec.train(spec(checkpoint_every=20), run_dir=run.run_dir, resume=True)
    (problem,) = caught.value.problems
    assert all(str(path) in str(problem.got) for path in saved)
    assert f"--weights {run.weights}" in str(problem.hint)
    for path in saved:
        path.unlink()
    told: list[Event] = []
    netspec.train(spec(), run_dir=run.run_dir, resume=True, listeners=[told.append])
    assert any("there is no checkpoint yet" in one.get("message", "") for one in told)


def test_a_torn_last_line_of_the_log_spoils_no_other(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(max_steps=10), run_dir=tmp_path / "run")
    whole = run.log.read_text()
    for name in ("log.jsonl", "log.txt"):
        path = run.run_dir / name
        path.write_text(path.read_text()[:-9])
    netspec.train(spec(max_steps=20), run_dir=tmp_path / "run", resume=True)
    lines = run.log.read_text().splitlines()
    torn = len(whole.splitlines()) - 1
    assert whole.splitlines()[torn].startswith(lines[torn])
    assert [json.loads(line)["event"] for line in lines[:torn] + lines[torn + 1 :]][-1] == "done"
    assert (run.run_dir / "log.txt").read_text().splitlines()[torn + 1].startswith("warning: changed since")


def test_what_a_killed_writer_left_is_removed_at_the_start(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(max_steps=10), run_dir=tmp_path / "run")
    left = [
        run.run_dir / "checkpoints" / ".step-00000020.h5.0123456789ab.tmp",
        run.run_dir / ".best.h5.0123456789ab.tmp",
    ]
    for path in left:
        path.write_bytes(b"half")
    netspec.train(spec(max_steps=20), run_dir=run.run_dir, resume=True)
    assert not any(path.exists() for path in left)


def steady(spec: Make, steps: int) -> dict[str, Any]:
    """A training whose rate does not depend on its length."""
    made = spec(max_steps=steps)
    made["solver"]["learning_rate"] = 0.01
    return made


def test_a_new_run_goes_on_from_the_checkpoint_of_another(spec: Make, tmp_path: Path) -> None:
    whole = netspec.train(steady(spec, 20), run_dir=tmp_path / "whole")
    half = netspec.train(steady(spec, 10), run_dir=tmp_path / "half")
    checkpoint = max((half.run_dir / "checkpoints").iterdir())
    rest = netspec.train(steady(spec, 20), run_dir=tmp_path / "rest", resume=checkpoint)
    assert rest.steps == 20
    assert same(rest.weights, whole.weights)
    assert rest.test == whole.test


def test_a_checkpoint_without_a_place_in_the_data_goes_on_after_as_many_steps(spec: Make, tmp_path: Path) -> None:
    """As `netspec import` writes them."""
    whole = netspec.train(steady(spec, 20), run_dir=tmp_path / "whole")
    half = netspec.train(steady(spec, 13), run_dir=tmp_path / "half")
    path = max((half.run_dir / "checkpoints").iterdir())
    found = read_checkpoint(path)
    write_checkpoint(tmp_path / "other.h5", found.states, found.roles, {"step": 13}, found.spec)
    rest = netspec.train(steady(spec, 20), run_dir=tmp_path / "rest", resume=str(tmp_path / "other.h5"))
    assert same(rest.weights, whole.weights)


def test_a_checkpoint_of_another_solver_is_refused_before_a_step(spec: Make, tmp_path: Path) -> None:
    half = netspec.train(steady(spec, 10), run_dir=tmp_path / "half")
    path = max((half.run_dir / "checkpoints").iterdir())
    other = steady(spec, 20)
    other["solver"] = {"type": "Adagrad"}
    with pytest.raises(InputError, match="is of another net or solver"):
        netspec.train(other, run_dir=tmp_path / "rest", resume=path)
