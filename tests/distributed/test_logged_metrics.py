"""Metrics of training batches and gradient norms in the log of several workers equal those of one worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import netspec
from tests.distributed.conftest import trainings
from tests.distributed.test_training import EXACT, NORMALIZED, SERVED, make_points, training

pytestmark = pytest.mark.slow

LOGGING: dict[str, Any] = {"log_every": 7, "log_gradient_norm": True, "max_steps": 20, "checkpoint_every": 11}
CLIPPED = {"type": "Adam", "learning_rate": 0.01, "global_clipnorm": 0.5}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipped": {"solver": CLIPPED},
    "accumulated": {"train": {"accumulate": 3}},
    "sharded": {"parallel": {"strategy": "sharded_optimizer"}, "solver": CLIPPED},
    "exact": {"parallel": EXACT, "train": {"precision": "float32"}},
    "factors": {"parallel": {"strategy": "sufficient_factors", "layers": "all"}},
}


def logged(run: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == "log"]


def test_workers_log_metrics_and_norms_of_all_samples(jobs, tmp_path: Path) -> None:
    make_points(tmp_path)
    specs = {
        name: training(tmp_path, **{**case, "train": {**LOGGING, **case.get("train", {})}})
        for name, case in CASES.items()
    }
    apart = {"strategy": "local_sgd", "every": 5}
    specs["apart"] = training(tmp_path, NORMALIZED, train=LOGGING, parallel=apart)
    specs["served"] = training(tmp_path, train=LOGGING, parallel=SERVED, solver={"type": "SGD", "learning_rate": 0.1})
    listed: list[dict[str, Any]] = [
        {"spec": spec, "run_dir": str(tmp_path / "two" / name)} for name, spec in specs.items()
    ]
    listed.append({
        "spec": specs["plain"], "run_dir": str(tmp_path / "two" / "again"), "resume": True,
        "of": str(tmp_path / "two" / "plain"),
    })  # fmt: skip
    assert trainings(jobs, 2, listed, tmp_path) == {}
    for name in CASES:
        spec = {key: value for key, value in specs[name].items() if key != "parallel" or name == "exact"}
        run = netspec.train(spec, run_dir=tmp_path / "one" / name, device="cpu")
        several = logged(tmp_path / "two" / name)
        rel = 1e-5 if name == "exact" else 1e-9  # float32 and float64
        assert [event["step"] for event in several] == [1, 7, 14, 20]
        for one, two in zip(logged(run.run_dir), several, strict=True):
            assert two["metrics"]["accuracy"] == pytest.approx(one["metrics"]["accuracy"], abs=1e-12), name
            assert two["gradient_norm"] == pytest.approx(one["gradient_norm"], rel=rel), name
    names = "step", "metrics", "gradient_norm"
    again, plain = ([{key: event[key] for key in names} for event in logged(tmp_path / "two" / name)]
                    for name in ("again", "plain"))  # fmt: skip
    assert again[-2:] == plain[-2:], "a resume restores the metrics since the last line"
    assert all("metrics" in event for event in logged(tmp_path / "two" / "apart"))
    text = (tmp_path / "two" / "served" / "log.txt").read_text()
    assert "the log has no norm of the gradients with `strategy: parameter_server`" in text
    assert "the log has no metrics of the training batches with `strategy: parameter_server`" in text
