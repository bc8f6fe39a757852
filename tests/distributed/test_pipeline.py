"""`strategy: pipeline` on real workers: steps, trainings, bytes, and impossible settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netspec.cli import main
from netspec.distributed.worker_checks import check_workers
from netspec.errors import InputError, SpecError
from netspec.schema.load import load_train
from tests.training.conftest import points, spec

pytestmark = pytest.mark.slow

__all__ = ["points", "spec"]

WAY = {"strategy": "pipeline", "micro_batches": 4}
PLAIN = {"NETSPEC_KERNELS": "workers"}
"""Environment with the kernels of messages and array code only, so that nothing is compiled."""
Make = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_steps_equal_one_accumulating_worker(jobs: Any, workers: int) -> None:
    """Nets with skip connections, shared and frozen layers, several inputs and losses, masks and random numbers."""
    job = jobs(workers, "stages.py", variables=PLAIN)
    assert job.end() == 0, job.err
    distances = json.loads(job.out)
    assert len(distances) == 5
    assert max(distances) < 1e-14  # sums of values near 1, in float64


@pytest.mark.exhaustive
def test_training_resumes_with_any_number_of_workers(jobs: Any, spec: Make, tmp_path: Path) -> None:
    """Bit-identical on the same number of workers, else equal up to rounding; with averages and global clipping."""
    train_spec = spec(precision="float64", loss_scale="dynamic", keep_checkpoints=9)
    train_spec["solver"] = {"type": "Adam", "learning_rate": 0.01, "global_clipnorm": 0.5, "ema": {"decay": 0.9},
                       "beta_1": {"type": "OneCycle", "initial": 0.95, "peak": 0.8, "end": 0.9}}  # fmt: skip
    actual = {}
    for workers in (1, 3):
        (folder := tmp_path / str(workers)).mkdir()
        path = folder / "spec.json"
        path.write_text(json.dumps(train_spec))
        job = jobs(workers, "train.py", str(path), json.dumps(WAY), variables=PLAIN)
        assert job.end() == 0, job.err
        actual[workers] = json.loads(job.out)
    for line in actual.values():
        assert line["again"]["states"] == line["whole"]["states"]
        assert line["whole"]["losses"][-1] < 0.5 * line["whole"]["losses"][0]
        assert line["whole"]["names"] == actual[1]["whole"]["names"]
        assert line["whole"]["losses"] == pytest.approx(actual[1]["whole"]["losses"], abs=1e-12)
        assert line["whole"]["test"] == pytest.approx(actual[1]["whole"]["test"], abs=1e-12)
    done, start = (actual[3]["whole"][name] for name in ("done", "start"))
    # The last of the 8 batches of an epoch has 6 samples instead of 32, so it sends fewer bytes.
    assert done["measured"] == start["expected"]
    for workers in (2, 1):
        job = jobs.train(
            path, f"parallel={json.dumps(WAY)}", "--run-dir", tmp_path / f"again{workers}", "train.max_steps=40",
            "--resume", path.parent / "0" / "whole" / "checkpoints" / "step-00000020.h5", "--json",
            by=workers, variables=PLAIN,
        )  # fmt: skip
        assert job.end() == 0, job.err
        last = json.loads(job.out.splitlines()[-1])
        assert last["test"]["loss"] == pytest.approx(actual[1]["whole"]["test"], abs=1e-12)


def test_stages_are_planned(spec: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec() | {"parallel": WAY | {"cuts": ["drop"]}}))
    assert main(["plan", str(path), "--workers", "2", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert [stage["layers"] for stage in data["stages"]] == [["fc1", "norm"], ["drop", "logits"]]
    assert [stage["parameters"] for stage in data["stages"]] == [6 * 16 + 16 + 32, 16 * 3 + 3]
    # 8 samples of 16 elements are sent, and their gradients returned, 4 times; two parts of the loss (the second
    # aligned), the squared norm of the gradients and the stop votes are reduced.
    each = 4 * 8 * 16 * 4 + 64 + 4 + 4 + 8
    assert data["sent"]["sent_bytes"] == {"stage 0": each, "stage 1": each}
    assert main(["plan", str(path), "--workers", "2"]) == 0
    assert "stage 1  drop" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("parallel", "changes", "workers", "message"),
    [
        ({}, {}, 5, "the net has fewer layers than there are workers"),
        ({"cuts": ["drop"]}, {}, 3, "`cuts` makes 2 stages for 3 workers"),
        ({"cuts": ["norms"]}, {}, 2, "there is no layer `norms`"),
        ({"cuts": ["fc1"]}, {}, 2, "a pipeline stage can't begin with `fc1`"),
        ({"micro_batches": 33}, {}, 2, "`micro_batches` is larger than the batch"),
        (
            {},
            {"accumulate": 2},
            2,
            "`accumulate` cannot be combined with a pipeline, which accumulates gradients over `micro_batches`",
        ),
        ({}, {"recompute": "all"}, 2, "`recompute: all` is not supported by a pipeline"),
    ],
)
def test_impossible_strategies_give_a_reason(
    spec: Make, parallel: dict[str, Any], changes: dict[str, Any], workers: int, message: str
) -> None:
    with pytest.raises((InputError, SpecError)) as caught:
        check_workers(load_train(spec(**changes) | {"parallel": WAY | parallel}), workers)
    (problem,) = caught.value.problems
    assert problem.message == message
    assert problem.location is not None
