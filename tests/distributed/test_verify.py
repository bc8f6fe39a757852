"""`netspec verify-parallel` finds bit-identical states, and reports those that differ."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import netspec.training.run  # noqa: F401  # registers the layers that specs name
from netspec.cli import main
from netspec.distributed.launcher.mpi_discovery import find_mpiexec
from netspec.distributed.strategies.all_reduce import AllReduce
from netspec.distributed.worker_checks import check_workers
from netspec.schema.load import load_train
from netspec.tools.reproducibility.bit_comparison import compare_states
from netspec.tools.reproducibility.verify_parallel import short_training, unverified_settings, verified_strategy
from tests.distributed.test_training import folder, training

pytestmark = pytest.mark.slow

__all__ = ["folder"]  # re-exports the fixture

needs_mpi = pytest.mark.skipif(
    find_spec("mpi4py") is None or find_mpiexec() is None, reason="mpi4py or an mpiexec is not installed"
)


@needs_mpi
def test_a_training_is_the_same_on_one_worker_and_on_two(folder: Path, tmp_path: Path) -> None:
    spec = tmp_path / "train.yaml"
    spec.write_text(json.dumps(training(folder, train={"max_steps": 1000})))
    words = [sys.executable, "-m", "netspec", "verify-parallel", str(spec), "--steps", "3", "--json"]
    process = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    data = json.loads(process.stdout)
    assert [(worker["workers"], worker["differ"], worker["most"]) for worker in data["runs"]] == [
        (1, [], 0),
        (2, [], 0),
    ]
    assert [run["arrays"] for run in data["runs"]] == [12] * 2  # four parameters, and two moments of Adam for each
    assert [path.name for path in tmp_path.iterdir()] == ["train.yaml"]


def test_a_small_batch_has_fewer_parts(folder: Path) -> None:
    spec = training(folder)
    spec["data"]["train"]["batch_size"] = 3
    train_spec = load_train(spec)
    actual = load_train(spec, short_training(train_spec, verified_strategy(train_spec, 2), 2)).parallel
    assert isinstance(actual, AllReduce)
    assert (actual.deterministic, actual.shards) == (True, 3)


def test_verification_keeps_exact_options_and_lists_the_others(folder: Path) -> None:
    parallel = {"strategy": "all_reduce", "bucket": 100, "heartbeat": 50, "reduce_in": "bfloat16", "hierarchical": True}
    spec = load_train(training(folder, parallel=parallel))
    short = load_train(training(folder, parallel=parallel), short_training(spec, verified_strategy(spec, 2), 2))
    check_workers(short, 2)
    actual = short.parallel
    assert isinstance(actual, AllReduce)
    assert (actual.bucket, actual.heartbeat, actual.reduce_in, actual.hierarchical) == (100, 50, "float32", "auto")
    expected = (
        'the file has reduce_in: "bfloat16", hierarchical: true, deterministic: false instead, which was not verified'
    )
    assert unverified_settings(spec, verified_strategy(spec, 2)) == expected
    other = load_train(training(folder, parallel={"strategy": "top_k", "stall": 30}))
    assert verified_strategy(other, 2).stall == 30
    assert str(unverified_settings(other, verified_strategy(other, 2))).startswith("the file trains with top_k, which")
    stages = [{"max_steps": 3, "freeze": "fc1"}, {"max_steps": 4}]
    staged = load_train(training(folder, stages=stages))
    assert "the file has stages, which" in str(unverified_settings(staged, verified_strategy(staged, 2)))
    short = load_train(training(folder, stages=stages), short_training(staged, verified_strategy(staged, 2), 2))
    assert (short.stages, short.train.max_steps) == ([], 2)
    plain = load_train(training(folder))
    assert unverified_settings(plain, verified_strategy(plain, 2)) is None


def test_comparison_detects_one_bit() -> None:
    first = {"a": np.ones(3, np.float32), "b": np.zeros(2, np.float32)}
    other = {"a": np.nextafter(first["a"], np.float32(2)), "b": -first["b"]}
    assert compare_states(first, dict(first)) == ((), 0)
    differ, most = compare_states(first, other)
    assert differ == ("a", "b")
    assert most == pytest.approx(2**-23)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workers", "1"], "--workers must be 2 or more"),
        (["--workers", "33"], "a batch has fewer samples than there are workers"),
        (["data.train.batch_size=1"], "a batch has fewer samples than there are workers"),
        (
            ["--workers", "3", "parallel={strategy: all_reduce, deterministic: true, shards: 2}"],
            "there are more workers than `shards`",
        ),
    ],
)
def test_incomparable_runs_are_reported(words: list[str], message: str, folder: Path, tmp_path: Path, capfd) -> None:
    spec = tmp_path / "train.yaml"
    spec.write_text(json.dumps(training(folder)))
    assert main(["verify-parallel", str(spec), *words]) == 2
    err = capfd.readouterr().err
    assert message in err
    assert err.count("error:") == 1
    assert "verify-parallel" not in err
    assert "stall" not in err, "settings that nobody wrote"
