"""Files that netspec 0.1.0 wrote (run directories, exports) still load, and their trainings can be continued."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import netspec
from netspec.cli import main

FILES = Path(__file__).parent / "version_0_1"
IMAGES = np.random.default_rng(0).normal(size=(5, 1, 8, 8)).astype(np.float32)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the floating-point datasets of a weights file."""
    arrays: dict[str, np.ndarray] = {}

    def add(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f":
            arrays[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(add)
    return arrays


def test_a_run_resumes(tmp_path: Path) -> None:
    """The checkpoint is at step 10 of 20, the recorded weights are those of step 20."""
    run_dir = tmp_path / "run"
    shutil.copytree(FILES / "run", run_dir, ignore=shutil.ignore_patterns("weights.h5"))
    run = netspec.train(str(run_dir / "spec.yaml"), run_dir=run_dir, resume=True, device="reference")
    assert run.steps == 20
    _compare(run.last_weights, "run", tolerance=3e-5)  # other CPUs round differently: by up to 1.02e-5, without AVX-512


# Two workers normalize by statistics of half a batch, and local SGD takes different steps, so weights are only close.
@pytest.mark.parametrize(("name", "tolerance"), [("sharded_optimizer", 1e-2), ("local_sgd", 0.1)])
def test_a_new_run_starts_from_a_checkpoint_of_two_workers(name: str, tolerance: float, tmp_path: Path) -> None:
    checkpoint = FILES / name / "checkpoints" / "step-00000010.h5"
    spec = str(FILES / name / "spec.yaml")
    run = netspec.train(spec, run_dir=tmp_path / "run", resume=checkpoint, device="reference", parallel=None)
    assert run.steps == 20
    _compare(run.last_weights, name, tolerance)


def _compare(weights: Path, name: str, tolerance: float) -> None:
    recorded, actual = _arrays(FILES / name / "weights.h5"), _arrays(weights)
    assert actual.keys() == recorded.keys()
    del recorded["arrays/conv/bias"]  # a normalization follows, so the gradient is only rounding, which Adam amplifies
    for path, array in recorded.items():
        np.testing.assert_allclose(actual[path], array, rtol=0, atol=tolerance, err_msg=path)


@pytest.mark.parametrize("suffix", ["h5", "npz", "safetensors", "weights.h5"])
def test_weights_load(suffix: str) -> None:
    source = FILES / "run"
    path = source / "weights.h5" if suffix == "h5" else FILES / "exports" / f"model.{suffix}"
    model = netspec.load(source / "spec.yaml", weights=path)
    np.testing.assert_allclose(model.predict({"image": IMAGES})["logits"], _expected(), rtol=0, atol=1e-5)


def _expected() -> np.ndarray:
    """Return the outputs of version 0.1.0 for `IMAGES`."""
    outputs: np.ndarray = np.load(FILES / "outputs.npy")
    return outputs


@pytest.mark.parametrize("name", ["model.onnx", "model.keras", "model.caffemodel"])
def test_exported_models_import(name: str, tmp_path: Path) -> None:
    imported = tmp_path / "imported"
    arguments = ["import", str(FILES / "exports" / name), "--output", str(imported)]
    if name == "model.caffemodel":
        arguments = ["import", str(FILES / "exports" / "model.prototxt"), "--weights", *arguments[1:]]
    assert main(arguments) == 0
    model = netspec.load(imported / "net.yaml", weights=imported / "weights.h5")
    (outputs,) = model.predict({"image": IMAGES}).values()
    np.testing.assert_allclose(outputs, _expected(), rtol=0, atol=1e-5)
