"""Formats are told apart by content when read, and by suffix when written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.formats import FORMATS, format_of, format_to_write
from netspec.exchange.hdf5 import write_weights
from netspec.exchange.imported import Target
from netspec.exchange.importing import import_weights
from netspec.schema.load import load_net


def test_every_function_of_every_format_is_there() -> None:
    from importlib import import_module

    for one in FORMATS:
        for name in filter(None, (one.read, one.weights, one.write)):
            module, _, function = name.partition(":")
            assert callable(getattr(import_module(module), function)), name


def test_content_decides(tmp_path: Path) -> None:
    path = tmp_path / "weights.onnx"
    write_weights(path, {"a/kernel": np.zeros(2, "float32")})
    assert format_of(path).name == "netspec"


def test_a_file_of_no_format_is_told_with_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(InputError, match="of no format known here") as caught:
        format_of(path)
    (problem,) = caught.value.problems
    assert "an ONNX model (.onnx)" in str(problem.expected)
    assert problem.got == "a text file"


def test_a_name_that_says_no_format_is_refused() -> None:
    with pytest.raises(InputError, match="its name says no format"):
        format_to_write("model.xyz")


def test_weights_alone_are_laid_onto_a_net(tmp_path: Path) -> None:
    path = tmp_path / "weights.h5"
    write_weights(path, {"a/kernel": np.ones(2, "float32")})
    layers = [{"name": "a", "type": "Dense", "units": 1}]
    net = load_net({"netspec": 1, "inputs": {"x": {"shape": [2]}}, "layers": layers})
    found = import_weights(path, Target(net, {}))
    np.testing.assert_array_equal(found["a/kernel"], np.ones(2))
