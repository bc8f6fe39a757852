"""Trainings on a real GPU, in all ways that a spec can select, against the same trainings on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.tools.verification.trainings import CLASSES, NETS

CONVOLUTIONAL = NETS["convolutional net"]
NET = {**CONVOLUTIONAL, "layers": [layer for layer in CONVOLUTIONAL["layers"] if layer["type"] != "Dropout"]}
"""A net of `netspec devices --verify`."""
STEPS = 6
TOLERANCE = {"float32": 1e-5, "tf32": 2**-10, "bfloat16": 2**-8, "float16": 2**-10}
"""Relative tolerances of a loss after some steps. That of float32 is for sums in another order; the others are the
error of rounding a number once to the 11, 8 or 11 bits of an operand, since the errors of many samples, with either
sign, partly cancel in their mean. Without training the loss is off by 2⁻⁶."""


def spec(folder: Path, **more: Any) -> Path:
    """Write a training on synthetic images to the folder."""
    random = np.random.default_rng(3)
    images = random.standard_normal((48, 3, 12, 12)).astype(np.float32)
    np.savez(folder / "data.npz", image=images, label=np.arange(48, dtype=np.int32) % CLASSES)
    data = {"source": "npz", "path": "data.npz", "batch_size": 8}
    spec_fields = {
        "netspec": 1, "net": NET, "data": {"train": data, "test": data},
        "solver": {"type": "SGD", "learning_rate": 0.05, "momentum": 0.9},
        "train": {"max_steps": STEPS, "log_every": 1, "precision": more.pop("precision", "float32")}, **more,
    }  # fmt: skip
    (folder / "train.yaml").write_text(json.dumps(spec_fields))  # JSON is YAML, too
    return folder / "train.yaml"


def trained(file: Path, device: str | None) -> tuple[float, dict[str, Any]]:
    """Return the loss on the test data, and the first event of the log."""
    run = netspec.train(file, run_dir=file.parent / f"on_{device}", **({} if device is None else {"device": device}))
    assert run.test is not None
    assert run.test.loss is not None
    events = [json.loads(line) for line in run.log.read_text(encoding="utf-8").splitlines()]
    return run.test.loss, next(event for event in events if event["event"] == "start")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", TOLERANCE)
def test_each_precision_reaches_the_reference_loss(precision: str, tmp_path: Path) -> None:
    file = spec(tmp_path, precision=precision)
    expected = trained(spec(tmp_path, precision=precision), "reference")[0]
    assert trained(file, "cuda")[0] == pytest.approx(expected, rel=TOLERANCE[precision])


@pytest.mark.gpu
@pytest.mark.parametrize(
    "compile_settings", [{"deterministic": False}, {"autotune": "quick"}, {"autotune": "full"}], ids=str
)
def test_other_kernels_reach_the_same_loss(
    compile_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The winners of a race are selected again in the next run, whose loss is bit-identical."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = spec(tmp_path, compile=compile_settings)
    actual, expected = trained(file, "cuda")[0], trained(file, "reference")[0]
    assert actual == pytest.approx(expected, rel=TOLERANCE["float32"])
    if "autotune" in compile_settings:
        (tmp_path / "on_cuda").rename(tmp_path / "before")
        assert trained(file, "cuda")[0] == actual


@pytest.mark.gpu
def test_default_device_is_the_gpu(tmp_path: Path) -> None:
    file = spec(tmp_path)
    named, (loss, start) = trained(file, "cuda")[0], trained(file, None)
    assert start["device"] == "cuda"
    assert loss == named, "and the same to the bit"


@pytest.mark.gpu(2)
@pytest.mark.parametrize("strategy", ["all_reduce", "elastic_averaging"])
def test_two_gpus_reach_the_loss_of_two_cpus(strategy: str, tmp_path: Path) -> None:
    file = spec(tmp_path, parallel={"strategy": strategy})

    def loss(device: str) -> float:
        words = [
            "train",
            str(file),
            "--workers",
            "2",
            "--device",
            device,
            "--run-dir",
            str(tmp_path / device),
            "--json",
        ]
        process = subprocess.run([sys.executable, "-m", "netspec", *words], capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        events = [json.loads(line) for line in process.stdout.splitlines()]
        return float(next(event for event in events if event["event"] == "done")["test"]["loss"])

    assert loss("cuda") == pytest.approx(loss("cpu"), rel=TOLERANCE["float32"])
