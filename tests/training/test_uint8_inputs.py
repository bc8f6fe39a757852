"""Images are sent to the device as bytes and converted there, with the same weights as if converted before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.backends.device_registry import CpuDevice
from netspec.compile import Compiler, ProgramKind
from netspec.data.base import FieldType
from netspec.data.transforms.rescaling import Rescaling
from netspec.data.uint8_lut import lookup_table
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.schema.load import load_train
from netspec.training.compiler import open_training_loader, training_compiler

NET = {
    "netspec": 1,
    "inputs": {"image": {"shape": [3, 6, 5]}, "label": {"shape": [], "dtype": "int32"}},
    "layers": [
        {"name": "conv", "type": "Conv2D", "filters": 4, "kernel_size": 3, "activation": "relu"},
        {"name": "flat", "type": "Flatten"},
        {"name": "logits", "type": "Dense", "units": 3},
    ],
    "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
}
FLIP = {"type": "RandomFlip"}
CROP = {"type": "RandomCrop", "height": 6, "width": 5, "padding": 1, "fill_mode": "reflect"}
"""A transform that only moves pixels: it may come before or after those that compute new values."""
PADDED = {"type": "RandomCrop", "height": 6, "width": 5, "padding": 2, "fill_value": 7}
SMALLER, MIDDLE = {"type": "RandomCrop", "height": 6, "width": 7}, {"type": "CenterCrop", "height": 6, "width": 5}
RESCALING = {"type": "Rescaling", "scale": 1 / 255, "offset": -0.1}
CHANNELS = {"type": "Normalization", "adapt": True}


def training(
    folder: Path, transforms: list[dict[str, Any]], dtype: str = "uint8", size: tuple[int, int] = (6, 5)
) -> dict[str, Any]:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (70, 3, *size)).astype(dtype)
    np.savez(folder / "images.npz", image=images, label=random.integers(0, 3, 70).astype(np.int32))
    split = {"source": "npz", "path": str(folder / "images.npz"), "batch_size": 16, "transforms": transforms}
    return {
        "netspec": 1, "net": NET, "data": {"train": {**split, "shuffle": True}, "test": split},
        "solver": {"type": "SGD", "learning_rate": 0.05, "momentum": 0.9}, "train": {"max_steps": 12, "seed": 2},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("transforms", "size"),
    [
        ([RESCALING], (6, 5)),
        ([CHANNELS, FLIP], (6, 5)),
        ([RESCALING, CROP, CHANNELS], (6, 5)),
        ([PADDED, FLIP, CHANNELS], (6, 5)),
        ([{**FLIP, "mode": "vertical"}, SMALLER, RESCALING, MIDDLE, {**FLIP, "mode": "horizontal"}], (7, 8)),
    ],
)
@pytest.mark.slow
def test_weights_are_bit_identical(
    transforms: list[dict[str, Any]], size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, results = training(tmp_path, transforms, size=size), []
    for bytes_ in (False, True):
        monkeypatch.setattr(CpuDevice, "accepts_uint8", bytes_)
        run = netspec.train(spec, run_dir=tmp_path / str(bytes_), device="cpu")
        assert run.test is not None
        results.append((run.test.loss, dict(read_weights(run.last_weights).arrays)))
    (loss, weights), (other_loss, other) = results
    assert loss == other_loss
    assert {name: array.tobytes() for name, array in weights.items()} == {
        name: array.tobytes() for name, array in other.items()
    }


def compiled(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Compiler, dict[str, Any], list[str]]:
    """Return batches of a device that prefers bytes, and the transforms that the loader defers."""
    monkeypatch.setattr(CpuDevice, "accepts_uint8", True)
    loaded = load_train(spec)
    compiler = training_compiler(loaded, "cpu")
    with open_training_loader(loaded, compiler) as loader:
        batch = next(iter(loader))
        return compiler, dict(batch.inputs), [str(transform.type) for _, transform in loader.transforms]  # type: ignore[attr-defined]  # of a loader


def test_programs_read_uint8_and_the_loader_lists_all_transforms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, batch, transform_names = compiled(training(tmp_path, [FLIP, RESCALING, CHANNELS]), monkeypatch)
    assert transform_names == ["RandomFlip", "Rescaling", "Normalization"]
    assert batch["image"].dtype == np.uint8
    assert compiler.program(ProgramKind.TRAIN, 16).inputs["image"].dtype == "uint8"
    assert compiler.program(ProgramKind.TEST, 16).inputs["image"].dtype == "float32"
    assert compiler.uint8_inputs["image"].table.shape == (3, 256)


@pytest.mark.parametrize(
    ("transforms", "dtype"), [([RESCALING, {**CROP, "fill_mode": "constant"}], "uint8"), ([RESCALING], "float32")]
)
def test_transforms_without_a_lookup_table_run_in_the_loader(
    transforms: list[dict[str, Any]], dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, batch, _ = compiled(training(tmp_path, transforms, dtype), monkeypatch)
    assert batch["image"].dtype == np.float32
    assert not compiler.uint8_inputs


@pytest.mark.parametrize(
    ("transforms", "size", "parts"),
    [
        ([PADDED, FLIP, RESCALING], (6, 5), [(6, 5, 7), (6, 5, 0)]),
        # The mirrored border is not a constant, so the loader applies the crop.
        ([CROP, FLIP, RESCALING], (6, 5), [(6, 5, 0)]),
        ([{**PADDED, "fill_value": 0.5}, RESCALING, FLIP], (6, 5), [(6, 5, 0)]),
        ([SMALLER, MIDDLE, RESCALING], (6, 8), [(6, 7, 0), (6, 5, 0)]),
        # The crop drops most bytes, so the loader applies it.
        ([SMALLER, MIDDLE, RESCALING], (9, 12), [(6, 5, 0)]),
    ],
)
def test_crops_are_applied_before_the_conversion_to_floats(
    transforms: list[dict[str, Any]],
    size: tuple[int, int],
    parts: list[tuple[int, int, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler, batch, transform_names = compiled(training(tmp_path, transforms, size=size), monkeypatch)
    assert transform_names == [transform["type"] for transform in transforms]
    assert list(compiler.uint8_inputs["image"].parts) == parts
    program = compiler.program(ProgramKind.TRAIN, 16)
    for number in range(len(parts)):
        assert batch[f"image/part{number}"].shape == program.inputs[f"image/part{number}"].shape == (16, 4)
    assert batch["image"].shape == program.inputs["image"].shape


def test_a_lookup_table_with_non_finite_values_is_not_used() -> None:
    """The loader reports which sample has such a value."""
    field = FieldType((3, 6, 5), "uint8")
    assert lookup_table(field, [Rescaling(scale=3e38)]) is None
    table = lookup_table(field, [Rescaling(scale=2.0)])
    assert table is not None
    np.testing.assert_array_equal(table, [np.arange(0, 512, 2)])
