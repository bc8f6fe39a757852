"""No file, however spoiled, brings an importer to a traceback, a hang, unbounded memory or a crash.

NETSPEC_FUZZ=5000 spoils each file that often; with NETSPEC_MODELS, real models of that folder are spoiled too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from netspec.cli.writing import write_model
from netspec.exchange.formats import FORMATS
from netspec.schema.load import load_net
from netspec.train.model import load
from tests.exchange.fuzzing import spoiled

TIMES = int(os.environ.get("NETSPEC_FUZZ", "40"))
MODELS = os.environ.get("NETSPEC_MODELS")
SUFFIXES = sorted({suffix for one in FORMATS if one.write and one.read for suffix in one.suffixes})
LARGEST = 3_000_000
"""Bytes of a real model that is worth spoiling."""

NET = {
    "netspec": 1,
    "inputs": {"image": {"shape": [2, 6, 6]}},
    "layers": [
        {"name": "conv", "type": "Conv2D", "filters": 3, "kernel_size": 3, "padding": "same", "activation": "relu"},
        {"name": "norm", "type": "BatchNormalization"},
        {"name": "pool", "type": "MaxPooling2D", "pool_size": 2},
        {"name": "flat", "type": "Flatten"},
        {"name": "head", "type": "Dense", "units": 4},
        {"name": "out", "type": "Softmax"},
    ],
}


def spoil(data: bytes, name: str, folder: Path) -> None:
    """Write `TIMES` spoiled copies of a file."""
    random = np.random.default_rng(len(data))
    for number in range(TIMES):
        (folder / f"{number:05}-{name}").write_bytes(spoiled(data, random))


def broken(folder: Path) -> list[dict[str, str]]:
    """What must not be, of the files in a folder."""
    found: list[dict[str, str]] = []
    while any(folder.iterdir()):  # again behind each file that ends the process
        command = [sys.executable, "-m", "tests.exchange.fuzzing", str(folder)]
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
        results = [json.loads(line) for line in run.stdout.splitlines()]
        assert results, run.stderr
        found += [one for one in results if one["state"] == "broken"]
        if run.returncode:
            found.append({**results[-1], "what": f"the process ended with {run.returncode}: {run.stderr[-300:]}"})
        for one in results:
            (folder / one["file"]).unlink(missing_ok=True)
    return found


def test_spoiled_files_are_refused_in_words(tmp_path: Path) -> None:
    """Of every format that is written and read, in one process: to start one takes longer than to read all."""
    model = load(load_net(NET))
    folder = tmp_path / "spoiled"
    folder.mkdir()
    for suffix in SUFFIXES:
        (tmp_path / suffix[1:]).mkdir()
        written = write_model(model, model.spec, tmp_path / suffix[1:] / f"model{suffix}", model.preparation)
        for file in written.files:
            spoil(file.read_bytes(), f"{suffix[1:]}-{file.name}", folder)
    assert broken(folder) == []


@pytest.mark.skipif(not MODELS, reason="NETSPEC_MODELS names no folder of real models")
def test_spoiled_real_models_are_refused_in_words(tmp_path: Path) -> None:
    kinds = {".onnx", ".caffemodel", ".prototxt", ".h5", ".hdf5", ".keras", ".binaryproto"}
    wrong = []
    for number, file in enumerate(sorted(Path(str(MODELS)).rglob("*"))):
        if file.suffix in kinds and file.is_file() and file.stat().st_size < LARGEST:
            folder = tmp_path / str(number)
            folder.mkdir()
            spoil(file.read_bytes(), file.name, folder)
            wrong += broken(folder)
    assert wrong == []
