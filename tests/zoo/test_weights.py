"""The trained weights in the model zoo give the results on the cards; the model is loaded by its name."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import netspec
from netspec.data.readers.idx import read_idx
from netspec.schema.bundled import model_path, zoo_root
from netspec.schema.specs.paths import resolve_path
from netspec.tools.specs import load_train

MNIST = zoo_root() / "data" / "mnist"


def test_lenet_reads_digits_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images = read_idx(MNIST / "t10k-images-idx3-ubyte.gz")[0][:400]
    labels = read_idx(MNIST / "t10k-labels-idx1-ubyte.gz")[0][:400]
    outputs = netspec.load("lenet_mnist", device="reference").predict({"image": images[:, None] / np.float32(256)})
    assert np.mean(outputs["logits"].argmax(axis=1) == labels) > 0.985  # 99.25 % of all 10,000
    Image.fromarray(images[0]).save("digit.png")
    answers = netspec.predict("lenet_mnist", "digit.png", device="reference").answers
    assert list(answers["class"]) == [labels[0]]


def test_seq2seq_rewrites_dates() -> None:
    date = "Tuesday, 3 May 2019"
    assert netspec.generate("seq2seq", date, temperature=0, device="reference") == "2019-05-03"
    assert netspec.generate("seq2seq", date, beams=2, device="reference") == "2019-05-03"


def test_siamese_puts_images_of_the_same_digit_close_to_each_other() -> None:
    script = runpy.run_path(str(zoo_root() / "siamese_mnist" / "nearest_neighbors.py"))
    model = netspec.load("siamese_mnist", device="reference")
    # 97.98 % of all 10,000 among all 60,000
    assert script["accuracy"](model, train_images=5000, test_images=1000) > 0.95


def test_the_script_of_siamese_names_a_missing_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["nearest_neighbors.py", "nowhere"])
    with pytest.raises(SystemExit) as exit_:
        runpy.run_path(str(zoo_root() / "siamese_mnist" / "nearest_neighbors.py"), run_name="__main__")
    assert exit_.value.code == "error: no such file: nowhere"


@pytest.mark.parametrize("name", ["text_cnn", "transformer_encoder"])
def test_nets_for_sentences_tell_good_from_bad_reviews(name: str) -> None:
    rows = [{"text": "A lovely, moving film."}, {"text": "Dull and far too long."}]
    answers = netspec.predict(name, rows, device="reference").answers
    assert list(answers["class"]) == ["positive", "negative"]


def test_a_file_or_folder_of_the_same_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert model_path("lenet_mnist") == str(zoo_root() / "lenet_mnist")
    assert model_path("data") == "data", "the zoo has a folder of that name, which is no model"
    assert model_path("./lenet_mnist") == "./lenet_mnist"
    Path("lenet_mnist").mkdir()
    assert model_path("lenet_mnist") == "lenet_mnist"


def test_a_misspelled_name_has_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (netspec.plan, netspec.test):
        with pytest.raises(netspec.InputError, match="did you mean the model `lenet_mnist` of the zoo"):
            call("lenet_mnits")
    with pytest.raises(netspec.InputError) as error:
        netspec.plan("lenet_mnits.yaml")
    assert "zoo" not in str(error.value)


def test_paths_may_be_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos/train").mkdir(parents=True)
    spec = load_train("resnet18", ["vars.folder=photos"])
    assert resolve_path(spec.data.train, "path") == tmp_path / "photos" / "train"
    missing = load_train("resnet18", ["vars.folder=pictures"])
    assert zoo_root() in resolve_path(missing.data.train, "path").parents


def test_a_test_without_its_data_says_what_is_missing_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(netspec.InputError) as error:
        netspec.test("keyword_spotting", device="reference")
    (problem,) = error.value.problems
    assert problem.got == f"nothing at {tmp_path / 'digits' / 'test'}"
    assert "make_digits.py" in (problem.hint or "")


def test_new_samples_need_no_pairs_and_a_model_without_weights_says_so(tmp_path: Path) -> None:
    Image.fromarray(read_idx(MNIST / "t10k-images-idx3-ubyte.gz")[0][0]).save(tmp_path / "digit.png")
    answers = netspec.predict("siamese_mnist", tmp_path / "digit.png", device="reference").answers
    assert len(answers) > 0
    with pytest.raises(netspec.InputError, match="netspec has no trained weights of squeezenet"):
        netspec.predict("squeezenet", tmp_path / "digit.png", device="reference")
