"""`netspec predict`: arrays in, arrays out, under the net's names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.cli.arrays import write_npz
from netspec.train.model import load


def predict(netspec: Any, *words: str, spec: str = "net.yaml", given: str = "in.npz") -> Any:
    return netspec("predict", spec, "--weights", "run/weights.h5", "--input", given, "--output", "out.npz", *words)


@pytest.mark.parametrize("spec", ["net.yaml", "train.yaml", "run/spec.yaml"])
def test_outputs_are_the_models(netspec, trained, spec):
    features = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    np.savez("in.npz", features=features)
    found = predict(netspec, "--batch-size", "2", spec=spec)
    assert (found.status, found.out) == (0, "5 samples: logits [5, 2] in out.npz\n")
    with np.load("out.npz") as written:
        assert written.files == ["logits"]
        # The same float32 arithmetic, in batches of another size.
        expected = load("net.yaml", "run/weights.h5").predict({"features": features})["logits"]
        np.testing.assert_allclose(written["logits"], expected, rtol=1e-5, atol=1e-6)


def test_an_input_that_is_not_needed_may_be_there(netspec, trained):
    assert predict(netspec, given="blobs.npz").status == 0


def test_all_that_does_not_fit_is_listed(netspec, trained):
    np.savez("in.npz", feature=np.zeros((5, 3)), label=np.zeros(5, np.int32))
    found = predict(netspec)
    assert found.status == 2
    assert "the net has no input `feature`" in found.err
    assert "did you mean `features`?" in found.err
    assert "the input `features` is missing" in found.err


def test_a_wrong_shape_is_told(netspec, trained):
    np.savez("in.npz", features=np.zeros((5, 4), np.float32))
    found = predict(netspec)
    assert found.status == 2
    assert "got: " in found.err
    assert "4]" in found.err


def test_nothing_is_written_where_something_is_wrong(netspec, trained):
    np.savez("in.npz", features=np.zeros((5, 4), np.float32))
    predict(netspec)
    assert not (trained / "out.npz").exists()
    assert not [path for path in trained.iterdir() if path.name.startswith(".")]


def test_any_name_of_a_layer_will_do(tmp_path):
    arrays = {name: np.full(3, number) for number, name in enumerate(["file", "args", "a/b", "x.y"])}
    write_npz(tmp_path / "out.npz", arrays)
    with np.load(tmp_path / "out.npz") as written:
        assert set(written.files) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(written[name], array)


def test_the_same_arrays_make_the_same_bytes(tmp_path):
    for name in ("a.npz", "b.npz"):
        write_npz(tmp_path / name, {"x": np.arange(4.0)})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
