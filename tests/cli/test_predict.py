"""`netspec predict`: answers for arrays, tables and images, as tables and files."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO, TextIOWrapper
from json import loads
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import netspec as netspec_package
from netspec.backends.device import Device
from netspec.backends.device_registry import open_device
from netspec.errors import InputError
from netspec.exchange.formats.native.npz import write_npz
from netspec.training.inference.model import load


def predict(
    netspec: Any, *words: str, spec: str = "net.yaml", samples: str = "in.npz", weights: str | Path = "run/weights.h5"
) -> Any:
    return netspec("predict", spec, "--weights", weights, "--input", samples, "--output", "out.npz", *words)


@pytest.mark.parametrize("spec", ["net.yaml", "train.yaml", "run/spec.yaml"])
def test_outputs_equal_the_model(netspec, trained, spec):
    features = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    np.savez("in.npz", features=features)
    result = predict(netspec, "--batch-size", "2", spec=spec)
    assert (result.status, result.out) == (0, "5 samples written to out.npz: logits [5, 2]\n")
    with np.load("out.npz") as written:
        assert written.files == ["logits"]
        # The same float32 arithmetic, in batches of another size.
        expected = load("net.yaml", "run/weights.h5").predict({"features": features})["logits"]
        np.testing.assert_allclose(written["logits"], expected, rtol=1e-5, atol=1e-6)


def test_a_runs_folder_has_the_weights(netspec, trained):
    np.savez("in.npz", features=np.ones((5, 3), np.float32))
    result = netspec("predict", "run", "--input", "in.npz", "--output", "out.npz")
    assert (result.status, "note: using the weights in run/" in result.err) == (0, True)
    netspec.ok("test", "run")


def test_results_have_the_faults_of_the_device(trained, monkeypatch):
    fault = "numba:AddKernel failed the check of `cuda:0`"

    def faulty_device(*words: Any, **options: Any) -> Device:
        device = open_device(*words, **options)
        device.warnings = [fault]
        return device

    np.savez("in.npz", features=np.ones((5, 3), np.float32))
    for module in ("evaluation", "inference.model"):
        monkeypatch.setattr(f"netspec.training.{module}.open_device", faulty_device)
    assert netspec_package.predict("run", "in.npz", device="reference").device_warnings == (fault,)
    assert netspec_package.test("run", device="reference").device_warnings == (fault,)


IMAGES = """
netspec: 1
net:
  netspec: 1
  inputs: {image: {shape: [1, 4, 6]}, label: {shape: [], dtype: int32}}
  layers:
    - {type: Flatten, name: flat, from: image}
    - {type: Dense, name: logits, units: 2}
  losses:
    - {type: SparseCategoricalCrossentropy, name: loss, from: [logits, label], from_logits: true}
solver: {type: SGD, learning_rate: 0.1}
train: {max_epochs: 1}
data: {train: {SOURCE, batch_size: 2, transforms: [{type: Rescaling, apply_to: image, scale: 0.5}]}}
"""
FOLDER = "source: image_folder, path: photos, channels: 1"
SET = "source: idx, images: images.idx, labels: labels.idx"


@pytest.mark.parametrize("source", [FOLDER, SET])
def test_images_are_prepared_as_in_the_training(netspec, current_folder, source):
    pixels = np.random.default_rng(1).integers(0, 256, (3, 4, 6), np.uint8)
    for index, image in enumerate(pixels):
        Path(f"photos/{index % 2}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(f"photos/{index % 2}/{index}.png")
    Path("images.idx").write_bytes(b"\0\0\x08\x03" + np.array(pixels.shape, ">i4").tobytes() + pixels.tobytes())
    Path("labels.idx").write_bytes(b"\0\0\x08\x01" + np.array([3], ">i4").tobytes() + b"\0\1\0")
    Path("train.yaml").write_text(IMAGES.replace("SOURCE", source))
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    result = netspec("predict", "run", "--input", "photos", "--output", "out.npz")
    assert (result.status, result.out) == (0, "3 samples written to out.npz: logits [3, 2]\n")
    inputs = pixels[[0, 2, 1], None].astype(np.float32) / 2  # photos/0 is the first folder
    expected = load("run/spec.yaml", "run/weights.h5").predict({"image": inputs})["logits"]
    with np.load("out.npz") as written:
        np.testing.assert_array_equal(written["logits"], expected)
    single = netspec("predict", "run", "--input", "photos/0/2.png", "--output", "one.npz")
    assert (single.status, single.out) == (0, "1 sample written to one.npz: logits [1, 2]\n")
    Path("empty").mkdir()
    assert "empty holds no images" in netspec("predict", "run", "--input", "empty", "--output", "no.npz").err
    missing = netspec("predict", "run", "--input", "no.png", "none.png", "--output", "no.npz").err
    assert missing.count("no such file or folder: no") == 2
    assert "hint: to predict a text, use standard input" in netspec("predict", "run", "--input", "a good film").err
    other = netspec("predict", "run", "--input", "train.yaml", "--output", "no.npz").err
    assert "train.yaml cannot be read: the net was trained on images" in other


def rescaled(trained: Path, netspec: Any) -> None:
    """Train again in `run2`, on features that are scaled by 0.5."""
    text = (trained / "train.yaml").read_text()
    spec = text.replace("path: blobs.npz", "path: blobs.npz, transforms: [{type: Rescaling, scale: 0.5}]")
    (trained / "scaled.yaml").write_text(spec)
    netspec.ok("train", "scaled.yaml", "--run-dir", "run2")


NOTE = "note: transforms are not applied here; in training, inputs were transformed by:\n"


def test_transforms_that_are_not_applied_are_listed(netspec, trained):
    rescaled(trained, netspec)
    np.savez("in.npz", features=np.zeros((5, 3), np.float32))
    assert predict(netspec).err == ""  # this training has no transforms
    expected = f"{NOTE}  `features`: Rescaling, scale 0.5, offset 0.0\n"
    newest = max((trained / "run2" / "checkpoints").iterdir())
    for weights in ("run2/weights.h5", newest):  # the weights contain the transforms, even with a net file
        assert predict(netspec, weights=weights).err == expected
    # Weights without a training have no record of transforms; then those of the training file are listed.
    load("net.yaml").save_weights("fresh.h5")
    assert predict(netspec, weights="fresh.h5").err == ""
    result = predict(netspec, spec="scaled.yaml", weights="fresh.h5")
    assert result.err == expected.replace("`features`", "the first input that is not a label")


def test_results_that_are_not_finite_are_reported(netspec, trained):
    features = np.zeros((5, 3), np.float32)
    features[3] = np.nan
    np.savez("in.npz", features=features)
    assert (
        predict(netspec).err == "warning: `logits` is not finite (nan or inf) in 1 of 5 samples, the first at index 3\n"
    )


def test_an_unknown_suffix_is_an_error_before_anything_runs(netspec, trained):
    words = ("predict", "net.yaml", "--weights", "run/weights.h5", "--input", "no.npz", "--output", "out.pdf")
    result = netspec(*words)
    assert result.status == 2
    assert "predictions cannot be written as .pdf" in result.err
    assert ".csv, .json, .jsonl, .npz, .parquet, or a folder for masks and boxes" in result.err


def test_inputs_are_not_replaced(netspec, trained):
    np.savez("in.npz", features=np.ones((5, 3), np.float32))
    before = Path("in.npz").read_bytes()
    result = netspec("predict", "run", "--input", "*.npz", "--output", str(Path("in.npz").absolute()))
    assert (result.status, "the output would replace the input in.npz" in result.err) == (2, True)
    assert Path("in.npz").read_bytes() == before


def test_unneeded_inputs_are_accepted(netspec, trained):
    assert predict(netspec, samples="blobs.npz").status == 0


def test_all_that_does_not_fit_is_listed(netspec, trained):
    np.savez("in.npz", feature=np.zeros((5, 3)), label=np.zeros(5, np.int32))
    result = predict(netspec)
    assert result.status == 2
    assert "the net has no input `feature`" in result.err
    assert "did you mean `features`?" in result.err
    assert "the input `features` is missing" in result.err


def test_a_wrong_shape_is_reported(netspec, trained):
    np.savez("in.npz", features=np.zeros((5, 4), np.float32))
    result = predict(netspec)
    assert result.status == 2
    assert "got: " in result.err
    assert "4]" in result.err


def test_nothing_is_written_after_an_error(netspec, trained):
    np.savez("in.npz", features=np.zeros((5, 4), np.float32))
    predict(netspec)
    assert not (trained / "out.npz").exists()
    assert not [path for path in trained.iterdir() if path.name.startswith(".")]


def test_weights_of_a_net_that_was_changed_since_name_the_change(netspec, trained):
    np.savez(trained / "in.npz", features=np.zeros((2, 3), np.float32))
    change = trained / "net.yaml"
    change.write_text(change.read_text().replace("vars: {width: 4}", "vars: {width: 6}"))
    result = predict(netspec)
    assert result.status == 2
    assert "run/weights.h5: `hidden/kernel` has the wrong shape\n  expected: [3, 6]\n  got: [3, 4]\n" in result.err
    assert (
        "  hint: since run/weights.h5 was written, the net has changed: `layers.hidden.units` was 4 and is 6 "
        "(net.yaml:8); undo that, or train again: `netspec train SPEC --weights run/weights.h5` trains this net, "
        "starting from the arrays that fit\n"
    ) in result.err
    write_npz(trained / "foreign.npz", {"hidden/kernel": np.zeros((3, 4), np.float32)})
    foreign = predict(netspec, weights="foreign.npz")
    assert (
        "hint: foreign.npz belongs to a net with different layers or sizes; `netspec train SPEC --weights"
        in foreign.err
    )


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


def test_a_table_of_answers_is_printed(netspec, trained):
    np.savez("in.npz", features=np.array([[4, 4, 4], [-4, -4, -4]], np.float32))
    result = netspec.ok("predict", "run", "--input", "in.npz", "--top", "2")
    header, first, second = result.out.splitlines()
    assert header.split() == ["row", "class", "probability", "class_2", "probability_2"]
    assert first.split()[:2] == ["1", "1"]
    assert second.split()[:2] == ["2", "0"]
    assert first.split()[2].endswith("%")


def test_answers_as_json_lines(netspec, trained):
    np.savez("in.npz", features=np.array([[4, 4, 4], [-4, -4, -4]], np.float32))
    printed = netspec("predict", "run", "--input", "in.npz", "--json").lines
    assert [answer["class"] for answer in printed] == [1, 0]
    netspec.ok("predict", "run", "--input", "in.npz", "--output", "out.jsonl")
    assert [loads(line) for line in Path("out.jsonl").read_text().splitlines()] == printed


def test_the_summary_names_the_first_columns_only(netspec, trained, monkeypatch):
    monkeypatch.setattr("netspec.cli.predict.MAX_NAMES", 2)
    np.savez("in.npz", features=np.ones((5, 3), np.float32))
    result = netspec("predict", "run", "--input", "in.npz", "--output", "answers.csv")
    assert re.fullmatch(r"5 samples written to answers\.csv: \w+, \w+ and \d+ more\n", result.out), result.out


def test_answers_as_parquet(netspec, trained):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    np.savez("in.npz", features=np.zeros((5, 3), np.float32))
    netspec.ok("predict", "run", "--input", "in.npz", "--output", "out.parquet", "--batch-size", "2")
    table = parquet.read_table("out.parquet").to_pydict()
    assert table["row"] == [1, 2, 3, 4, 5]
    assert list(table) == ["row", "class", "probability"]


def test_patterns_files_and_standard_input_are_read(netspec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for index in range(4):
        Path(f"photos/{index % 2}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 6), 60 * index, np.uint8)).save(f"photos/{index % 2}/{index}.png")
    Path("train.yaml").write_text(IMAGES.replace("SOURCE", FOLDER))
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    by_pattern = netspec("predict", "run", "--input", "photos/*/[02].png", "--json").lines
    assert [answer["file"] for answer in by_pattern] == ["photos/0/0.png", "photos/0/2.png"]
    # as if a shell had expanded the pattern
    expanded = netspec("predict", "run", "photos/0/2.png", "--input", "photos/0/0.png", "--json").lines
    assert expanded == by_pattern
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(Path("photos/0/2.png").read_bytes())))
    (answer,) = netspec("predict", "run", "--input", "-", "--json").lines
    assert answer == {**by_pattern[1], "file": "-", "probability": pytest.approx(by_pattern[1]["probability"])}
    assert "no file matches photos/*.gif" in netspec("predict", "run", "--input", "photos/*.gif").err
    two = netspec("predict", "run", "--input", "-", "photos/0/0.png")
    assert (two.status, "--input - reads standard input" in two.err) == (2, True)
    result = netspec("predict", "run", "--input", "photos/0/0.png", "--keep")
    assert (result.status, "only the rows of a table have columns to keep" in result.err) == (2, True)


SEGMENTS = """
netspec: 1
net:
  netspec: 1
  inputs: {image: {shape: [1, 4, 6]}, mask: {shape: [4, 6], dtype: int32}}
  layers: [{type: Conv2D, name: logits, filters: 3, kernel_size: 1, from: image}]
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, mask], from_logits: true, axis: 1}]
solver: {type: SGD, learning_rate: 0.1}
train: {max_epochs: 1}
data: {train: {source: npz, path: data.npz, batch_size: 2}}
"""


def test_masks_are_written_as_images(netspec, current_folder):
    images = np.random.default_rng(1).random((3, 1, 4, 6), np.float32)
    np.savez("data.npz", image=images, mask=(3 * images[:, 0]).astype(np.int32))
    Path("train.yaml").write_text(SEGMENTS)
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    np.savez("in.npz", image=images)
    netspec.ok("predict", "run", "--input", "in.npz", "--output", "masks")
    logits = load("run/spec.yaml", "run/weights.h5").predict({"image": images})["logits"]
    for number, expected in enumerate(logits.argmax(axis=1), 1):
        with Image.open(f"masks/{number}.png") as mask:
            assert mask.mode == "P"
            np.testing.assert_array_equal(np.asarray(mask), expected)


def test_a_folder_is_for_masks_and_boxes_only(netspec, trained):
    np.savez("in.npz", features=np.zeros((5, 3), np.float32))
    result = netspec("predict", "run", "--input", "in.npz", "--output", "masks")
    assert result.status == 2
    assert "only masks and boxes are written to" in result.err
    assert not Path("masks").exists()


def test_a_report_has_class_names_and_files(netspec, current_folder):
    for index in range(6):
        name = ("ant", "bee")[index % 2]
        Path(f"photos/{name}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 6), 40 * index, np.uint8)).save(f"photos/{name}/{index}.png")
    text = IMAGES.replace("SOURCE", FOLDER)
    Path("train.yaml").write_text(
        text.replace("data: {train:", "data:\n  train:").replace("}]}}", "}]}\n")
        + "  test: {source: image_folder, path: photos, channels: 1, batch_size: 4,\n"
        "    transforms: [{type: Rescaling, apply_to: image, scale: 0.5}]}\n"
    )
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    result = netspec("test", "run", "--report", "--output", "results", "--json")
    tables = result.json["tables"]
    assert list(tables["confusion_matrix"]) == ["ant", "bee"]
    assert sum(sum(row.values()) for row in tables["confusion_matrix"].values()) == 6
    assert list(tables["classification_report"])[:2] == ["ant", "bee"]
    assert loads(Path("results/metrics.json").read_text()) == result.json
    header, *rows = Path("results/confusion_matrix.csv").read_text().splitlines()
    assert header == "actual \\ predicted,ant,bee"
    assert [row.split(",")[0] for row in rows] == ["ant", "bee"]
    with Image.open("results/confusion_matrix.png") as image:
        assert image.width > 88  # the matrix has two cells of 44 pixels, next to the names


@pytest.fixture
def gray_photos(netspec, current_folder):
    """A run that classifies gray images, and seven images of which two cannot be read."""
    for index in range(7):
        Path(f"photos/{index % 2}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 6), index, np.uint8)).save(f"photos/{index % 2}/{index}.png")
    Path("train.yaml").write_text(IMAGES.replace("SOURCE", FOLDER))
    netspec.ok("train", "train.yaml", "--run-dir", "run", "--device", "reference")
    Path("photos/0/2.png").write_text("no image")
    Path("photos/1/5.png").write_bytes(Path("photos/1/5.png").read_bytes()[:50])
    return current_folder


def test_foreign_weights_get_class_names_from_the_training_folder_or_the_spec(netspec, gray_photos):
    """Weights of other programs have no class names; without names, classes are numbers, with a note."""
    netspec.ok("convert", "run", "foreign.safetensors")
    for damaged in ("photos/0/2.png", "photos/1/5.png"):
        Path(damaged).unlink()
    Path("photos/0").rename("photos/ant")
    Path("photos/1").rename("photos/bee")
    Path("photos/ant/0.png").rename("new.png")
    command = ("predict", "train.yaml", "--weights", "foreign.safetensors", "--input", "new.png", "--json")

    def predicted(*overrides: str) -> tuple[str | int, str]:
        result = netspec.ok(*command, *overrides)
        return result.json["class"], result.err

    name, notes = predicted()
    assert (name in ("ant", "bee"), notes) == (True, "")
    Path("photos/cat").mkdir()
    Path("photos/ant/4.png").rename("photos/cat/4.png")
    number, notes = predicted()
    assert number == ("ant", "bee").index(name)
    assert (
        f"since the number of class folders in {gray_photos / 'photos'} is not the net's number of classes: set"
        in notes
    )
    Path("photos/cat/4.png").rename("photos/ant/4.png")
    Path("photos/cat").rmdir()
    Path("photos").rename("elsewhere")
    number, notes = predicted()
    assert number == ("ant", "bee").index(name)
    assert f"note: classes are numbers, since the training folder {gray_photos / 'photos'} does not exist: set" in notes
    assert predicted("data.train.path=elsewhere") == (name, "")
    assert predicted("data.train.classes=[x ant, x bee]") == (f"x {name}", "")


@pytest.mark.parametrize("inputs", [["photos"], ["photos/*/*.png"], ["photos/0", "photos/1"]])
def test_images_that_cannot_be_read_are_reported_and_the_others_predicted(netspec, gray_photos, inputs):
    result = netspec("predict", "run", "--input", *inputs, "--output", "out.csv", "--batch-size", "2")
    assert result.status == 1
    files = [Path(line.split(",")[0]).name for line in Path("out.csv").read_text().splitlines()[1:]]
    assert sorted(files) == ["0.png", "1.png", "3.png", "4.png", "6.png"]
    assert "2.png cannot be read" in result.err
    assert "got: a file of another kind, or a damaged one" in result.err
    assert "5.png cannot be read" in result.err
    assert "error: 2 of 7 files could not be read, and are not among the predictions" in result.err
    printed = netspec("predict", "run", "--input", *inputs, "--json")
    assert (printed.status, len(printed.out.splitlines())) == (1, 5)


def test_images_in_formats_that_are_not_read_are_noted(netspec, gray_photos):
    for name in ("photos/1/8.avif", "photos/1/9.AVIF", "photos/0/a.heic", "photos/notes.txt"):
        Path(name).write_text("")
    unread = "3 images are in a format that netspec does not read (2 .avif, 1 .heic), such as photos/0/a.heic"
    assert (
        f"note: left out: {unread}: convert them to JPEG or PNG\n" in netspec("predict", "run", "--input", "photos").err
    )
    assert "left out" not in netspec("predict", "run", "--input", "photos/0/0.png").err
    Path("scans").mkdir()
    Path("photos/1/8.avif").rename("scans/8.avif")
    result = netspec("predict", "run", "--input", "scans")
    assert result.status == 2
    assert "hint: 1 image is in a format that netspec does not read, such as scans/8.avif" in result.err


def test_files_of_another_kind_are_named(netspec, gray_photos):
    for name in ("rows.csv", "notes.txt"):
        Path(name).write_text("1,2")
    result = netspec("predict", "run", "--input", "photos", "rows.csv", "notes.txt")
    assert result.status == 2
    assert "error: rows.csv cannot be read: the net was trained on images" in result.err
    assert "error: notes.txt cannot be read" in result.err
    assert "photos cannot" not in result.err


def test_an_image_that_no_prediction_depends_on_is_refused(netspec, current_folder):
    """A generator has an input of random numbers, which a transform adds to the images of its training."""
    Image.new("L", (28, 28)).save("image.png")
    result = netspec("predict", "dcgan_mnist", "--input", "image.png", "--device", "reference")
    assert result.status == 2
    assert result.out == ""
    why = "the net computes them from `latent`, which transforms add to each sample"
    assert f"error: predictions do not depend on image.png: {why}\n" in result.err
    assert "expected: an .npz file with, for each sample, `latent`: float32 of shape [64]\n" in result.err


def test_empty_standard_input(netspec, gray_photos, monkeypatch):
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO()))
    result = netspec("predict", "run", "--input", "-")
    assert (result.status, result.err.splitlines()[-2:]) == (
        2, ["error: the standard input is empty", "  expected: the content of a file"]
    )  # fmt: skip


def test_absolute_and_relative_paths_can_be_mixed(netspec, gray_photos):
    netspec.ok("predict", "run", "--input", "photos/0/0.png", str(gray_photos / "photos/1/1.png"))


def test_a_single_image_that_cannot_be_read_is_a_wrong_input(netspec, gray_photos):
    result = netspec("predict", "run", "--input", "photos/0/2.png")
    assert result.status == 2
    assert "2.png cannot be read" in result.err
    assert "on_error" not in result.err


def test_a_training_warns_about_a_declared_class_without_images(netspec, gray_photos):
    text = Path("train.yaml").read_text().replace("channels: 1", "channels: 1, on_error: skip, classes: ['0', '1', x]")
    Path("train.yaml").write_text(text.replace("units: 2", "units: 3"))
    result = netspec.ok("train", "train.yaml", "--run-dir", "other")
    assert "warning: the training data has no sample of the class x\n" in result.out + result.err


def test_a_training_warns_about_fewer_classes_than_the_net_has(netspec, gray_photos):
    Path("train.yaml").write_text(Path("train.yaml").read_text().replace("units: 2", "units: 3"))
    result = netspec.ok("train", "train.yaml", "--run-dir", "other", "data.train.on_error=skip")
    assert "warning: `logits` has 3 scores, but `label` has only 2 classes\n" in result.out + result.err


def test_a_training_on_damaged_images_mentions_how_to_leave_them_out(netspec, gray_photos):
    hint = "hint: `on_error: skip` leaves out damaged samples"
    for words in (("train", "train.yaml", "--run-dir", "other"), ("check", "train.yaml")):
        result = netspec(*words)
        assert (result.status, result.err.count(hint)) == (2, 1), result.err


def test_python_raises_for_images_that_cannot_be_read_unless_told_to_skip(gray_photos):
    import netspec
    from netspec.errors import InputError

    with pytest.raises(InputError, match=r"2\.png cannot be read"):
        netspec.predict("run", "photos")
    stream = netspec.predict_stream("run", "photos", on_error="skip")
    unreadable = [problem.message for batch in stream for problem in batch.unreadable]
    assert len(unreadable) == stream.unreadable == 2
    assert stream.samples == 5


CARS = """
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [2]}, label: {shape: []}}
  layers: [{type: Dense, units: 1, from: features}, {name: price, type: Reshape, target_shape: []}]
  losses: [{type: MeanSquaredError, from: [price, label]}]
solver: {type: SGD, learning_rate: 0.001}
train: {max_epochs: 1}
data:
  train:
    source: csv
    path: cars.csv
    header: true
    columns: {km: {type: numeric, missing: drop}, built: {type: numeric, missing: drop}, price: {type: numeric}}
    label: price
    batch_size: 2
"""


def test_a_net_of_tables_rejects_images_and_sounds(netspec, current_folder):
    Path("train.yaml").write_text(CARS)
    Path("cars.csv").write_text("km,built,price\n1,2,3\n2,3,4\n")
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    Image.new("RGB", (4, 4)).save("new.jpg")
    Path("new.wav").write_bytes(b"RIFF")
    result = netspec("predict", "run", "--input", "new.jpg", "cars.csv", "new.wav")
    for name, kind in (("new.jpg", "an image"), ("new.wav", "a sound")):
        message = f"error: {name} cannot be read: the net was trained on tables\n  expected: a table\n  got: {kind}\n"
        assert message in result.err
    assert result.err.count("error: ") == 2


def test_rows_without_a_value_are_named_and_the_others_keep_their_numbers(netspec, current_folder):
    Path("train.yaml").write_text(CARS)
    Path("cars.csv").write_text("km,built,price\n1,2,3\n2,3,4\n")
    Path("new.csv").write_text("km,built\n1,2\n3,\n,4\n5,6\n")
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    note = "2 of 4 rows have no prediction: `km` is missing in row 3; `built` is missing in row 2"
    result = netspec("predict", "run", "--input", "new.csv", "--json")
    assert (result.status, [answer["row"] for answer in result.lines]) == (0, [1, 4])
    assert f"note: {note}\n" in result.err
    assert f"note: {note}\n" in netspec("predict", "run", "--input", "new.csv", "--output", "out.csv", "--keep").err
    assert f"note: new.csv: {note}\n" in netspec("predict", "run", "--input", "cars.csv", "new.csv").err
    rows = [{"km": 1, "built": 2}, {"km": 3, "built": None}, {"km": 5, "built": 6}]
    prediction = netspec_package.predict("run", rows)
    assert prediction.answers["row"] == [1, 3]
    assert prediction.missing == ("1 of 3 rows has no prediction: `built` is missing in row 2",)
    # An array could not show which row has no prediction.
    with pytest.raises(InputError, match="1 of 3 rows has no prediction"):
        netspec_package.load("run").predict(rows)
    with pytest.raises(InputError, match="`built` is missing in row 1"):
        netspec_package.predict("run", [rows[1]])


def test_the_rows_of_a_table_that_is_named_twice_are_kept_twice(netspec, current_folder):
    Path("train.yaml").write_text(CARS)
    Path("cars.csv").write_text("km,built,price\n1,2,3\n2,3,4\n")
    Path("new.csv").write_text("km,built,id\n1,2,a\n3,,b\n,4,c\n5,6,d\n")
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    result = netspec("predict", "run", "--input", "new.csv", "--input", "new.csv", "--keep", "--json")
    assert (result.status, [answer["id"] for answer in result.lines]) == (0, ["a", "d", "a", "d"])


def test_long_texts_are_cut_in_a_table_and_complete_as_json(netspec, current_folder):
    Path("train.yaml").write_text(CARS)
    Path("cars.csv").write_text("km,built,price\n1,2,3\n2,3,4\n")
    remark = "one owner,\nno rust " * 20
    Path("new.csv").write_text(f'km,built,remark\n1,2,"{remark}"\n')
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    header, row = netspec("predict", "run", "--input", "new.csv", "--keep").out.splitlines()
    assert "remark" in header
    assert "one owner, no rust" in row
    assert "…" in row
    assert len(row) < 120
    (answer,) = netspec("predict", "run", "--input", "new.csv", "--keep", "--json").lines
    assert answer["remark"] == remark.strip()


def test_kept_columns_have_the_types_and_the_notation_of_their_table(netspec, current_folder):
    Path("train.yaml").write_text(CARS.replace("header: true", 'header: true\n    delimiter: ";"\n    decimal: ","'))
    Path("cars.csv").write_text("km;built;price\n1,5;2;3\n2;3;4\n")
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    Path("new.csv").write_text("km;built;code\n1,50;2;a\n2;3;\n")

    def predicted(source: str, target: str) -> Path:
        netspec.ok("predict", "run", "--input", source, "--keep", "--output", target)
        return Path(target)

    header, first, last = predicted("new.csv", "out.csv").read_text().splitlines()
    assert header == "km;built;code;row;prediction"
    summary = netspec("predict", "run", "--input", "new.csv", "--keep", "--output", "out.csv").out
    assert summary == "2 samples written to out.csv: row, prediction, km, built, code\n"
    assert re.fullmatch(r"1,50;2;a;1;-?\d+,\d+", first)
    assert re.fullmatch(r"2;3;;2;-?\d+,\d+", last)
    table = pq.read_table(predicted("new.csv", "out.parquet"))
    assert table.schema.types == [pa.float64(), pa.float64(), pa.string(), pa.int64(), pa.float64()]
    assert table.column("km").to_pylist() == [1.5, 2]
    (answer, _) = netspec("predict", "run", "--input", "new.csv", "--keep", "--json").lines
    assert answer.items() >= {"km": 1.5, "built": 2, "code": "a"}.items()
    kept = {
        "km": pa.array([1.5, 2], pa.float32()), "built": pa.array([2, 3], pa.int16()),
        "sold": pa.array([None, datetime(2024, 1, 2, 3)], pa.timestamp("ns")), "used": pa.array([True, None]),
        "code": pa.array(["a", "b"]).dictionary_encode(), "tax": pa.array([Decimal("1.50"), None]),
        "day": pa.array([date(2024, 1, 2), None]), "none": pa.nulls(2),
    }  # fmt: skip
    pq.write_table(pa.table(kept), "new.parquet")
    table = pq.read_table(predicted("new.parquet", "out.parquet"))
    assert table.select(list(kept)) == pq.read_table("new.parquet")
    assert (
        predicted("new.parquet", "out.csv").read_text().splitlines()[1].startswith("1.5,2,,true,a,1.50,2024-01-02,,1,")
    )
    lines = netspec("predict", "run", "--input", "new.parquet", "--keep", "--json").lines
    assert (
        lines[0].items() >= {"km": 1.5, "built": 2, "sold": None, "used": True, "tax": 1.5, "day": "2024-01-02"}.items()
    )


def test_files_with_columns_of_different_types_are_written_as_one_parquet_file(netspec, current_folder):
    Path("train.yaml").write_text(CARS)
    Path("cars.csv").write_text("km,built,price\n1,2,3\n2,3,4\n")
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    Path("new.csv").write_text("km,built,code\n1,2,8\n2,3,\n")
    pq.write_table(pa.table({"km": [1.0], "built": [2], "code": [7]}), "new.parquet")

    def predicted(*sources: str) -> Any:
        return netspec("predict", "run", "--input", *sources, "--keep", "--output", "out.parquet")

    assert predicted("new.csv", "new.parquet").status == 0
    assert pq.read_table("out.parquet").column("code").to_pylist() == ["8", "", "7"]
    assert predicted("new.parquet", "new.csv").status == 0
    assert pq.read_table("out.parquet").column("code").to_pylist() == [7, 8, None]
    Path("new.csv").write_text("km,built,code\n1,2,x\n")
    result = predicted("new.parquet", "new.csv")
    assert (result.status, result.err.splitlines()[1]) == (
        2, "error: the column `code` of new.csv cannot be written as int64, its type in the first file",
    )  # fmt: skip


def test_values_that_the_training_did_not_learn_are_noted(netspec, current_folder):
    numeric = "built: {type: numeric, missing: drop}"
    city = "city: {type: categorical, unknown: index, missing: unknown}"
    Path("train.yaml").write_text(CARS.replace("shape: [2]", "shape: [5]").replace(numeric, f"{numeric}, {city}"))
    Path("cars.csv").write_text("km,built,city,price\n1,2,Bonn,3\n2,3,Rome,4\n")
    Path("new.csv").write_text("km,built,city\n1,2,Atlantis\n3,4,Rome\n5,6,\n7,8,Atlantis\n9,8,Lemuria\n")
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    note = "3 rows of `city` have values that the training data does not have, such as 'Atlantis'"
    result = netspec("predict", "run", "--input", "new.csv", "--json")
    assert (result.status, len(result.lines)) == (0, 5)
    assert f"note: {note}\n" in result.err
    assert f"note: new.csv: {note}\n" in netspec("predict", "run", "--input", "cars.csv", "new.csv").err
    assert "learn" not in netspec("predict", "run", "--input", "cars.csv").err
    assert netspec_package.predict("run", [{"km": 1, "built": 2, "city": "Ur"}]).unknown == (
        "1 row of `city` has values that the training data does not have, such as 'Ur'",
    )
