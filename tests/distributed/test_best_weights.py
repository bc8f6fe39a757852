"""Several workers test the best weights, and continue with those of the last step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import netspec
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights
from tests.distributed.conftest import trainings
from tests.training.conftest import points, spec

pytestmark = pytest.mark.slow

__all__ = ["points", "spec"]

STRATEGIES: dict[str, dict[str, Any]] = {
    "all_reduce": {"strategy": "all_reduce"},
    "sharded": {"strategy": "sharded_optimizer"},
    "local_sgd": {"strategy": "local_sgd", "every": 3},
    "hogwild": {"strategy": "hogwild", "every": 7},
    "servers": {"strategy": "parameter_server", "servers": 1},
}


def log(folder: Path, kind: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == kind]


def test_workers_test_the_best_weights_and_keep_the_last(jobs, spec, tmp_path: Path) -> None:
    training = spec(test_every=4, max_steps=20, monitor="accuracy", mode="min")
    training["data"]["validation"] = training["data"]["test"]
    runs = {name: training | {"parallel": strategy} for name, strategy in STRATEGIES.items()}
    listed = [{"spec": run, "run_dir": str(tmp_path / name)} for name, run in runs.items()]
    assert trainings(jobs, 2, listed, tmp_path) == {}
    for name in runs:
        folder = tmp_path / name
        *validations, test = log(folder, "test")
        lowest = min(validations, key=lambda event: (event["metrics"]["accuracy"], event["step"]))
        assert (test["split"], test["step"], test["metrics"]) == ("test", lowest["step"], lowest["metrics"]), name
        assert test["loss"] == pytest.approx(lowest["loss"], rel=1e-6)
        assert read_weights(folder / "best.h5").meta["step"] == lowest["step"]
        resumed = netspec.test(folder)
        assert resumed.loss == pytest.approx(test["loss"], rel=1e-5)
        # The last checkpoint and weights.h5 are of the last step.
        last = read_checkpoint(folder / "checkpoints" / "step-00000020.h5").learned()
        for state, array in read_weights(folder / "weights.h5").arrays.items():
            assert array.tobytes() == last[state].tobytes(), (name, state)
        assert lowest["step"] == 20 or read_weights(folder / "best.h5").arrays["fc1/kernel"].tobytes() != (
            last["fc1/kernel"].tobytes()
        )
