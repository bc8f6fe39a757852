"""Trainings of workers with a simulated GPU each, whose NCCL messages are sent by MPI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.exchange.formats.native.hdf5 import read_weights
from tests.backends.cuda.emulator import compiler
from tests.distributed.conftest import trainings

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with"),
]
NET = """\
netspec: 1
inputs: {image: {shape: [1, 6, 6]}, label: {shape: [], dtype: int32}}
layers:
  - {name: conv, type: Conv2D, filters: 3, kernel_size: 3}
  - {name: norm, type: BatchNormalization, axis: 1, synchronized: SYNCHRONIZED}
  - {name: flat, type: Flatten}
  - {name: hidden, type: Dense, units: 8, activation: relu}
  - {name: logits, type: Dense, units: 2}
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
"""
TRAIN = """\
netspec: 1
net: NET.yaml
data: {train: {source: npz, path: images.npz, batch_size: 7, shuffle: true}}
solver: {type: SGD, learning_rate: 0.05, momentum: 0.9}
train: {max_steps: 4, log_every: 2, seed: 3, precision: PRECISION}
"""
WAYS: dict[str, dict[str, Any]] = {
    "buckets": {"strategy": "all_reduce", "first_bucket": 100, "bucket": 400},
    "bfloat16": {"strategy": "all_reduce", "reduce_in": "bfloat16"},
    "pieces": {"strategy": "sharded_optimizer", "first_bucket": 100, "bucket": 2000},
    "factors": {"strategy": "sufficient_factors", "layers": "all"},
    "averages": {"strategy": "local_sgd", "every": 2},
    "half": {"strategy": "all_reduce", "reduce_in": "float16", "precision": "float16"},
}
"""Trainings on a GPU with netspec's kernels: results agree with the reference except in the last digits."""
PLAIN: dict[str, dict[str, Any]] = {
    "center": {"strategy": "elastic_averaging", "every": 2},
    "parts": {"strategy": "all_reduce", "deterministic": True, "shards": 4},
    "signs": {"strategy": "one_bit", "smallest": 1},
    "largest": {"strategy": "top_k", "density": 0.3, "smallest": 1},
    "columns": {"strategy": "model", "layers": {"hidden": "columns", "logits": "rows"}},
    "rows": {"strategy": "model", "layers": {"hidden": "rows", "logits": "columns"}},
    "stages": {"strategy": "pipeline", "micro_batches": 3},
    "served": {"strategy": "parameter_server"},
    "served late": {"strategy": "parameter_server", "mode": "asynchronous", "fetch_every": 2},
    "served stale": {"strategy": "parameter_server", "mode": "stale_synchronous"},
}
"""Trainings on a simulated GPU with NumPy's kernels, whose results have the same bits as the reference. Operations that
NCCL lacks go through the CPU."""
HALF = 0.0, 2e-3
"""Tolerances if only one of the two rounds to 11 bits: gradients below 4 are rounded in four steps with rate 0.05 and
momentum; weights are below 1."""
APART = ("averages", "center", "parts", "stages", "served", "served late", "served stale")
"""Trainings whose workers do not compute a batch at the same time, so that no layer can use all of it."""


def test_weights_and_bytes_equal_cpu_workers(jobs: Any, tmp_path: Path) -> None:
    """Batches have 7 samples, so one worker has more. A replayed graph counts the bytes of its plan."""
    noise = np.random.default_rng(0)
    images = noise.normal(size=(40, 1, 6, 6)).astype(np.float32)
    np.savez(tmp_path / "images.npz", image=images, label=noise.integers(0, 2, 40).astype(np.int32))
    for together in ("true", "false"):
        (tmp_path / f"{together}.yaml").write_text(NET.replace("SYNCHRONIZED", together))
    listed = []
    for name, way in {**WAYS, **PLAIN}.items():
        parallel, precision = dict(way), way.get("precision", "float32")
        parallel.pop("precision", None)
        text = TRAIN.replace("NET", "false" if name in APART else "true").replace("PRECISION", precision)
        (tmp_path / f"{name}.train.yaml").write_text(f"{text}parallel: {json.dumps(parallel)}\n")
        spec = str(tmp_path / f"{name}.train.yaml")
        listed += [
            {"spec": spec, "run_dir": str(tmp_path / f"{device} {name}"), "device": device} for device in _devices(name)
        ]
    assert trainings(jobs, 2, listed, tmp_path, "gpus.py") == {}
    for name in (*WAYS, *PLAIN):
        runs = [tmp_path / f"{device} {name}" for device in _devices(name)]
        expected, actual = (read_weights(run / "weights.h5").arrays for run in runs)
        assert actual.keys() == expected.keys()
        for key, array in actual.items():
            if name in PLAIN:
                np.testing.assert_array_equal(array, expected[key], err_msg=f"{name}: {key}")
            else:  # products and sums may be fused into one instruction
                relative, most = HALF if "precision" in WAYS[name] else (1e-4, 1e-6)
                np.testing.assert_allclose(array, expected[key], relative, most, err_msg=f"{name}: {key}")
        assert _sent(runs[0]) == _sent(runs[1]), name


def _devices(name: str) -> tuple[str, str]:
    return "reference", "plain" if name in PLAIN else "cuda"


def _sent(run: Path) -> dict[str, int]:
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    actual: dict[str, int] = events[-1]["bytes_per_step"]
    return actual
