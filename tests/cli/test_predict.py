"""`netspec predict`: arrays in, arrays out, under the net's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.exchange.npz import write_npz
from netspec.train.model import load


def predict(
    netspec: Any, *words: str, spec: str = "net.yaml", given: str = "in.npz", weights: str | Path = "run/weights.h5"
) -> Any:
    return netspec("predict", spec, "--weights", weights, "--input", given, "--output", "out.npz", *words)


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


def rescaled(trained: Path, netspec: Any) -> None:
    """Train once more in `run2`, on features that are scaled by 0.5."""
    text = (trained / "train.yaml").read_text()
    spec = text.replace("path: blobs.npz", "path: blobs.npz, transforms: [{type: Rescaling, scale: 0.5}]")
    (trained / "scaled.yaml").write_text(spec)
    assert netspec("train", "scaled.yaml", "--run-dir", "run2").status == 0


NOTE = "note: inputs are taken as the net sees them; in training they had been transformed:\n"


def test_transforms_that_are_not_applied_are_told(netspec, trained):
    rescaled(trained, netspec)
    np.savez("in.npz", features=np.zeros((5, 3), np.float32))
    assert predict(netspec).err == ""  # a training without transforms
    told = f"{NOTE}  `features`: Rescaling, scale 0.5, offset 0.0\n"
    newest = max((trained / "run2" / "checkpoints").iterdir())
    for weights in ("run2/weights.h5", newest):  # the weights know, with a net file too
        assert predict(netspec, weights=weights).err == told
    # Weights of no training say nothing: then the training file does, as far as it knows.
    load("net.yaml").save_weights("fresh.h5")
    assert predict(netspec, weights="fresh.h5").err == ""
    found = predict(netspec, spec="scaled.yaml", weights="fresh.h5")
    assert found.err == told.replace("`features`", "the first input that is no label")


def test_results_that_are_not_finite_are_told(netspec, trained):
    features = np.zeros((5, 3), np.float32)
    features[3] = np.nan
    np.savez("in.npz", features=features)
    assert (
        predict(netspec).err == "warning: `logits` is not finite (nan or inf) in 1 of 5 samples, the first at index 3\n"
    )


def test_another_name_of_the_output_is_told_what_it_holds(netspec, trained):
    words = ("predict", "net.yaml", "--weights", "run/weights.h5", "--input", "blobs.npz", "--output", "out")
    assert netspec(*words).out == "42 samples: logits [42, 2] in out (in NumPy's .npz format)\n"
    with np.load("out") as written:
        assert written.files == ["logits"]


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
