"""`netspec check`: all mistakes in all files, as text and as JSON."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netspec.exchange.formats.registry import FORMATS
from netspec.schema.bundled import zoo_root


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def place(file: Path, word: str) -> tuple[int, int]:
    """Line and column of a word in a file, from 1."""
    before = file.read_text().partition(word)[0].split("\n")
    return len(before), len(before[-1]) + 1


def test_a_right_spec_is_confirmed(netspec, work):
    result = netspec("check", "net.yaml", "train.yaml")
    assert (result.status, result.err) == (0, "")
    assert result.out == ("OK: net.yaml (2 layers, 26 parameters)\nOK: train.yaml (2 layers, 26 parameters)\n")


def test_right_is_an_empty_list(netspec, work):
    assert netspec("check", "net.yaml", "--json").json == []


def test_a_mistake_is_reported_once_with_layers_only_in_training(netspec, work):
    change(work / "net.yaml", "layers:\n", "layers:\n  - {name: drop, type: Dropout, rate: 0.1}\n")
    change(work / "net.yaml", ", dtype: int32", "")
    result = netspec("check", "train.yaml", "--json")
    text = (work / "net.yaml").read_text()
    assert len(result.json) == text.count("[logits, label]") > 0
    for problem in result.json:
        assert any(note.startswith("came from: features (batch, 3) → ") for note in problem["notes"])
    train = work / "train.yaml"
    result = netspec("train", train)
    assert result.status == 2
    assert "came from: features" in result.err
    assert "$rng" not in result.err


def test_export_problems_are_known_before_training(netspec, work):
    assert netspec("check", "train.yaml", "--export", "onnx").out.endswith("parameters; exports to onnx)\n")
    most = "{name: %s, type: Maximum, from: [label, label]}\n"
    change(work / "net.yaml", "losses:", f"  - {most % 'one'}  - {most % 'two'}outputs: [logits, one, two]\nlosses:")
    result = netspec("check", "train.yaml", "--export", "onnx", "--opset", "11", "--json")
    assert result.status == 2
    assert [(problem["line"], problem["path"]) for problem in result.json] == [
        (place(work / "net.yaml", "{name: one")[0], "layers.one"),
        (place(work / "net.yaml", "{name: two")[0], "layers.two"),
    ]
    netspec.ok("check", "train.yaml", "--export", "onnx")


def test_a_mistake_in_the_net_is_reported_once_with_export(netspec, work):
    change(work / "net.yaml", "features: {shape: [3]}", "features: {shape: [3, 4, 5, 6, 7, 8]}")
    text = netspec("check", "net.yaml", "--json").json
    assert netspec("check", "net.yaml", "--export", "onnx", "--json").json == text


def test_unknown_export_formats_and_unused_opsets_are_rejected(netspec, work):
    result = netspec("check", "net.yaml", "--export", "onxx")
    assert (result.status, "did you mean `onnx`?" in result.err) == (2, True)
    result = netspec("check", "net.yaml", "--opset", "13")
    assert (result.status, "--export onnx" in result.err) == (2, True)


def test_parts_that_an_export_leaves_out_are_listed(netspec, work):
    result = netspec("check", "train.yaml", "--export", "keras", "solver.weight_decay=0.1")
    assert (result.status, result.out.endswith("; exports to keras with notes)\n")) == (0, True)
    assert result.err == "train.yaml: note: `weight_decay` of the solver is left out: Keras's is decoupled\n"
    change(work / "train.yaml", "type: SGD", "type: LBFGS")
    result = netspec("check", "train.yaml", "~solver.momentum", "--export", "keras", "--json")
    assert (
        result.json,
        "note: the training configuration is left out: Keras has no optimizer like LBFGS" in result.err,
    ) == ([], True)


def test_every_format_that_is_written_is_named(netspec, work):
    text = " ".join(netspec("check", "--help").out.split()).partition(" Formats: ")[2].partition(". ")[0]
    listed = re.sub(r" \(.*?\)", "", text).split(", ")  # suffixes are in parentheses
    assert sorted(listed) == sorted(form.name for form in FORMATS if form.write)
    for name in listed:
        assert f"exports to {name}" in netspec("check", "net.yaml", "--export", name).out


def test_overrides_change_every_file(netspec, work):
    (work / "other.yaml").write_text((work / "net.yaml").read_text().replace("blobs", "other"))
    result = netspec("check", "net.yaml", "vars.width=10", "other.yaml")
    assert [line.split()[-2] for line in result.out.splitlines()] == ["62", "62"]


def test_a_variable_of_the_net_that_the_training_file_replaces_is_noted(netspec, work):
    """The net's own file does not show that its value has no effect."""
    spec, text = work / "train.yaml", (work / "train.yaml").read_text()
    spec.write_text(text.replace("net: net.yaml\n", "net: net.yaml\nvars: {width: 6}\n"))
    note = (
        "note: `vars.width` is 6 (train.yaml:3), not 4 (net.yaml:3): "
        "variables of the training file replace those of the net file\n"
    )
    checked = netspec("check", "train.yaml", "--strict")
    assert (checked.status, checked.err) == (0, f"train.yaml: {note}")
    assert note in netspec("train", "train.yaml", "train.max_steps=1").out
    assert netspec("check", "train.yaml", "vars.width=5").err == "", "an override is known to who wrote it"
    spec.write_text(text.replace("net: net.yaml\n", "net: net.yaml\nvars: {width: 4}\n"))
    assert netspec("check", "train.yaml").err == "", "the values are equal"


def test_all_mistakes_of_all_files_at_once(netspec, work):
    change(work / "net.yaml", "activation: relu", "activaton: relu")
    change(work / "net.yaml", "units: 2", "units: two")
    change(work / "train.yaml", "momentum: 0.9", "momentum: [1]")
    result = netspec("check", "train.yaml", "missing.yaml", "--json")
    assert result.status == 2
    locations = [(problem["file"], problem["line"], problem["column"]) for problem in result.json]
    assert locations == [
        ("net.yaml", *place(work / "net.yaml", "activaton")),
        ("net.yaml", *place(work / "net.yaml", "two")),
        ("train.yaml", *place(work / "train.yaml", "[1]")),
        ("missing.yaml", None, None),
    ]
    assert "did you mean `activation`?" in result.json[0]["hint"]


def test_shapes_are_checked(netspec, work):
    result = netspec(
        "check", "train.yaml", "net.layers.hidden={name: hidden, type: Conv2D, filters: 4, kernel_size: 3}"
    )
    assert result.status == 2
    assert result.err.startswith("<command line>:1:")
    assert "Conv2D" in result.err


def test_a_mistake_in_every_form_of_the_net_is_reported_once(netspec, work):
    result = netspec(
        "check", "train.yaml", "net.layers.hidden={name: hidden, type: Conv2D, filters: 4, kernel_size: 3}", "--json"
    )
    assert len(result.json) == 1


def test_a_training_needs_a_loss(netspec, work):
    result = netspec("check", "train.yaml", "~net.losses")
    assert result.status == 2
    assert "the net has no losses" in result.err


def test_a_split_must_feed_inputs_that_exist(netspec, work):
    result = netspec("check", "train.yaml", "data.train.inputs={lable: label}", "data.test.inputs={x: y}", "--json")
    assert [problem["path"] for problem in result.json] == ["data.train.inputs.lable", "data.test.inputs.x"]
    assert result.json[0]["hint"] == "did you mean `label`?"


LENET = zoo_root() / "lenet_mnist" / "train.yaml"


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ("net.inputs.image.shape=[1,32,32]", "data.train.source", "float32 of shape [1, 28, 28] from the source"),
        ("data.test.inputs={image: img}", "data.test.inputs.image", None),
        ("net.inputs.label.dtype=bool", "data.train.source", "int32 of shape [] from the source"),
    ],
)
def test_data_that_is_known_beforehand_is_compared_with_the_net(netspec, change, path, message):
    result = netspec("check", LENET, change, "--json")
    assert result.status == 2
    assert path in {problem["path"] for problem in result.json}
    assert message in {problem["got"] for problem in result.json}


def test_data_that_does_not_exist_is_an_error(netspec, work):
    (work / "blobs.npz").rename(work / "blob.npz")
    result = netspec("check", "train.yaml")
    assert result.status == 2
    assert "`blobs.npz` does not exist" in result.err
    assert "hint: did you mean `blob.npz`?" in result.err


def test_data_is_not_looked_for_without_data(netspec, work):
    (work / "blobs.npz").unlink()
    netspec.ok("check", "train.yaml", "--no-data")


def test_a_file_may_look_like_an_override(netspec, work):
    folder = work / "lr=0.1"
    folder.mkdir()
    (folder / "net.yaml").write_text((work / "net.yaml").read_text())
    netspec.ok("check", "lr=0.1/net.yaml")
