"""`netspec export` and `netspec import`: models that come back as they went."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from netspec.exchange.safetensors import write_safetensors
from netspec.exchange.state_dicts import to_state_dict
from netspec.train.model import load
from tests.exchange.keras.recorded import FILES
from tests.peers.keras_nets import batch

WEIGHTS = ("--weights", "run/weights.h5")


@pytest.fixture
def exported(trained, netspec):
    assert netspec("export", "net.yaml", *WEIGHTS, "--output", "model.onnx").status == 0
    return trained


def batch_axis(path: str):
    return onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0]


def test_the_batch_is_open_or_fixed(netspec, trained):
    found = netspec("export", "train.yaml", *WEIGHTS, "--output", "model.onnx")
    assert (found.status, found.err) == (0, "")
    assert "features [N, 3] → logits [N, 2]" in found.out
    assert batch_axis("model.onnx").dim_param == "N"
    fixed = netspec(
        "export", "net.yaml", *WEIGHTS, "--output", "fixed.onnx", "--batch-size", "6", "--opset", "13", "--json"
    ).json
    assert batch_axis("fixed.onnx").dim_value == 6
    assert fixed["opset"] == onnx.load("fixed.onnx").opset_import[0].version == 13
    assert fixed["inputs"] == {"features": [6, 3]}
    # Rounding errors of float32 over four products, in results of a magnitude near ten.
    assert fixed["max_abs_difference"]["logits"] < 1e-4


def test_a_training_in_bfloat16_is_exported_in_float32(netspec, trained):
    words = ("train.yaml", "train.precision=bfloat16", *WEIGHTS)
    found = netspec("export", *words, "--output", "model.onnx", "--json").json
    assert found["max_abs_difference"]["logits"] < 1e-4
    assert {one.data_type for one in onnx.load("model.onnx").graph.initializer} <= {
        onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    }  # fmt: skip


def test_the_opset_and_the_counts_of_plan_are_told(netspec, trained):
    text = (trained / "net.yaml").read_text()
    (trained / "norm.yaml").write_text(
        text.replace("  - {name: logits", "  - {name: norm, type: BatchNormalization}\n  - {name: logits")
    )
    load("norm.yaml").save_weights("norm.h5")
    words = ("export", "norm.yaml", "--weights", "norm.h5", "--output", "norm.onnx", "--opset", "17")
    lines = netspec(*words).out.splitlines()
    assert lines[0].startswith("norm.onnx: ONNX opset 17 (--opset writes another), ")
    planned = netspec("plan", "norm.yaml", "--json").json["parameters"]
    assert planned == 26 + 8
    assert lines[1].endswith(" nodes, 34 parameters, 8 moving statistics")
    found = netspec(*words, "--json").json
    assert (found["parameters"], found["statistics"]) == (planned, 8)


def test_the_transforms_of_the_training_are_told_and_recorded(netspec, work):
    transforms = "transforms: [{type: Rescaling, scale: 0.5}, {type: Normalization, adapt: true}]"
    text = (work / "train.yaml").read_text().replace("path: blobs.npz", f"path: blobs.npz, {transforms}")
    (work / "train.yaml").write_text(text)
    assert netspec("train", "train.yaml", "--run-dir", "run").status == 0
    found = netspec("export", "net.yaml", *WEIGHTS, "--output", "model.onnx")
    assert found.status == 0
    assert found.err.startswith("note: inputs are taken as the net sees them")
    told = {one.key: one.value for one in onnx.load("model.onnx").metadata_props}
    first, second = json.loads(told["netspec_transforms"])
    assert first == {"input": "features", "type": "Rescaling", "scale": 0.5, "offset": 0.0}
    assert (second["input"], second["type"], len(second["mean"]), len(second["variance"])) == (
        "features", "Normalization", 3, 3,
    )  # fmt: skip
    features = np.load("blobs.npz")["features"].astype(np.float64) * 0.5
    np.testing.assert_allclose(second["mean"], features.mean(0), rtol=1e-6)  # of float32 products, summed in float64
    # What an import copies keeps what it knows.
    assert netspec("import", "run/weights.h5", "--output", "new").status == 0
    assert load("new/net.yaml", "new/weights.h5").preparation == load("net.yaml", "run/weights.h5").preparation


def test_the_training_form_says_what_is_trained(netspec, trained):
    text = (trained / "net.yaml").read_text()
    layers = "  - {type: Dropout, rate: 0.2}\n  - {name: norm, type: BatchNormalization}\n"
    (trained / "norm.yaml").write_text(text.replace("  - {name: logits", f"{layers}  - {{name: logits"))
    load("norm.yaml").save_weights("norm.h5")
    words = ("export", "norm.yaml", "--weights", "norm.h5", "--output", "norm.onnx", "--form", "training")
    assert netspec("check", "norm.yaml", "--export", "onnx", "--form", "training").status == 0
    found = netspec(*words, "--inputs", "blobs.npz")
    assert found.status == 0
    assert found.err == "note: what Dropout draws was left out where results were compared\n"
    assert "features [N, 3], label [N] → logits [N, 2], loss [], " in found.out
    told = {one.key: one.value for one in onnx.load("norm.onnx").metadata_props}
    assert told["netspec_form"] == "training"
    assert json.loads(told["netspec_trainable"]) == [
        "hidden/kernel", "hidden/bias", "norm/gamma", "norm/beta", "logits/kernel", "logits/bias",
    ]  # fmt: skip
    assert json.loads(told["netspec_updates"]) == {
        f"norm/moving_{one}": f"norm/moving_{one}/new" for one in ("mean", "variance")
    }
    found = netspec(*words[:-1], "other")
    assert (found.status, "--form is none" in found.err) == (2, True)


def test_an_opset_that_is_none(netspec, trained):
    found = netspec("export", "net.yaml", *WEIGHTS, "--output", "model.onnx", "--opset", "3")
    assert found.status == 2
    assert not (trained / "model.onnx").exists()


def test_weights_of_another_net(netspec, trained):
    found = netspec("export", "net.yaml", "vars.width=5", *WEIGHTS, "--output", "model.onnx")
    assert found.status == 2
    assert "hidden/kernel" in found.err


@pytest.mark.parametrize("file", ["model.onnx", "run/weights.h5", "run/checkpoints/step-00000012.h5"])
def test_what_is_imported_computes_the_same(netspec, exported, file):
    found = netspec("import", file, "--output", "new/net")
    assert (found.status, found.err) == (0, "")
    assert sorted(path.name for path in (exported / "new" / "net").iterdir()) == ["net.yaml", "weights.h5"]
    assert "26 parameters" in found.out
    features = np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)
    ours = load("net.yaml", "run/weights.h5").predict({"features": features})["logits"]
    theirs = load("new/net/net.yaml", "new/net/weights.h5").predict({"features": features})["logits"]
    np.testing.assert_array_equal(theirs, ours)
    assert netspec("check", "new/net/net.yaml").status == 0


@pytest.mark.parametrize(
    ("file", "words", "says"),
    [
        ("model.onnx", ("--phase", "train", "--level", "2"),
         "is an ONNX model (.onnx), which takes no --level, --phase\n  expected: --shape, --value, or none"),
        ("run/weights.h5", ("--stage", "deploy"), "is weights or a checkpoint that netspec wrote (.h5), which takes"),
        ("run/weights.h5", ("--shape", "x=3", "--net", "net.yaml"), "is laid onto a net (--net), which takes no"),
    ],
)  # fmt: skip
def test_what_says_nothing_of_such_a_file_is_refused(netspec, exported, file, words, says):
    found = netspec("import", file, "--output", "new", *words)
    assert found.status == 2
    assert found.err.startswith(f"error: {file} {says}")


def test_what_no_layer_is_for_is_told(netspec, exported):
    model = onnx.load("model.onnx")
    model.graph.node[0].op_type = "NoSuchOperator"
    onnx.save(model, "other.onnx")
    found = netspec("import", "other.onnx", "--output", "new")
    assert found.status == 2
    assert "NoSuchOperator" in found.err
    assert "internal error" not in found.err


def test_nothing_is_left_of_an_import_that_fails(netspec, exported):
    (exported / "torn.onnx").write_bytes((exported / "model.onnx").read_bytes()[:100])
    before = sorted(path.name for path in exported.iterdir())
    assert netspec("import", "torn.onnx", "--output", "new").status == 2
    assert sorted(path.name for path in exported.iterdir()) == before


@pytest.mark.parametrize("shape", ["features", "features=", "features=0,3", "features=3x3", "=3"])
def test_a_shape_that_is_none(netspec, exported, shape):
    found = netspec("import", "model.onnx", "--output", "new", "--shape", shape)
    assert found.status == 2
    assert "no shape" in found.err


def test_samples_and_tolerance_of_the_comparison(netspec, trained):
    words = ("export", "net.yaml", *WEIGHTS, "--output", "model.onnx")
    np.savez("some.npz", features=np.ones((5, 3)))
    found = netspec(*words, "--inputs", "some.npz")
    assert (found.status, found.err) == (0, "")
    assert "on the samples given it computes the same: largest difference" in found.out
    assert netspec(*words, "--inputs", "some.npz", "--json").json["max_abs_difference_on_inputs"]["logits"] < 1e-5
    np.savez("wrong.npz", features=np.ones((5, 4)))
    assert "the input `features` has another shape" in netspec(*words, "--inputs", "wrong.npz").err
    assert netspec(*words, "--tolerance", "0").status == 2
    assert netspec(*words, "--tolerance", "1e-30", "--inputs", "some.npz").status in (0, 1)  # equal to the bit, or not


def test_weights_of_another_program_are_laid_onto_a_net(netspec, trained):
    arrays = dict(load("net.yaml", "run/weights.h5").parameters)
    first, *rest = to_state_dict(arrays).items()
    write_safetensors("theirs.safetensors", {"model.old": first[1], **{f"model.{name}": one for name, one in rest},
                                             "model.extra": first[1]}, {})  # fmt: skip
    found = netspec("import", "theirs.safetensors", "--net", "net.yaml", "--output", "mine")
    assert found.status == 2
    assert "is missing" in found.err
    told = ("--map", f"model.old=model.{first[0]}", "--map", "model.extra=")
    found = netspec("import", "theirs.safetensors", "--net", "net.yaml", *told, "--output", "mine")
    assert (found.status, found.err) == (0, "")
    again = load("mine/net.yaml", "mine/weights.h5").parameters
    assert all((again[name] == array).all() for name, array in arrays.items())


def test_a_map_must_fit_something(netspec, trained):
    np.savez("theirs.npz", a=np.zeros(2, "float32"))
    found = netspec("import", "theirs.npz", "--net", "net.yaml", "--map", "b*=c", "--map", "=x", "--output", "mine")
    assert (found.status, "`=x` is no new name" in found.err) == (2, True)
    found = netspec("import", "theirs.npz", "--net", "net.yaml", "--map", "b*=c", "--output", "mine")
    assert (found.status, "`b*` fits no name in the file" in found.err) == (2, True)
    found = netspec("import", "theirs.npz", "--map", "b*=c", "--output", "mine")
    assert (found.status, "--map is for weights that are laid onto a net" in found.err) == (2, True)
    found = netspec("import", "theirs.npz", "--output", "mine")
    assert (found.status, "holds weights without the net" in found.err) == (2, True)


def test_a_model_and_weights_for_keras(netspec, trained):
    found = netspec("export", "train.yaml", *WEIGHTS, "--output", "model.keras")
    assert found.status == 0
    assert found.out.startswith("model.keras: keras, ")
    told = netspec("export", "net.yaml", *WEIGHTS, "--output", "model.weights.h5", "--json").json
    assert (told["format"], told["parameters"], told["files"]) == ("keras_weights", 26, ["model.weights.h5"])
    assert netspec("check", "train.yaml", "--export", "keras").status == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--output", "model.foo"), "its name says no format that is written"),
        (("--output", "model.keras", "--opset", "13"), "has no opset to choose"),
        (("--output", "model.keras", "--batch-size", "1"), "has no batch to choose"),
        (("--output", "model.keras", "--form", "training"), "has no form to choose"),
        (("--output", "model.keras", "--inputs", "blobs.npz"), "of the comparison in onnxruntime"),
    ],
)
def test_an_export_that_can_not_be(netspec, trained, words, why):
    found = netspec("export", "net.yaml", *WEIGHTS, *words)
    assert (found.status, why in found.err) == (2, True)


def test_what_is_not_read_again_is_written_and_told(netspec, work):
    steps = "{type: TimeDistributed, layer: {type: LayerNormalization, axis: 1}}"  # operations on steps of all samples
    Path("net.yaml").write_text(f"netspec: 1\ninputs: {{x: {{shape: [3, 2, 4, 4]}}}}\nlayers:\n  - {steps}\n")
    load("net.yaml").save_weights("weights.h5")
    found = netspec("export", "net.yaml", "--weights", "weights.h5", "--output", "net.keras")
    assert found.status == 0, found.err
    assert Path("net.keras").is_file()
    assert "the results were not compared: it can't be read again: " in found.err


def test_what_an_imported_net_has_no_form_for_is_told_at_its_line(netspec, trained):
    net = Path("net.yaml").read_text().replace("activation: relu", "activation: gelu")
    Path("gelu.yaml").write_text(net)
    assert netspec("export", "gelu.yaml", "--weights", "run/best.h5", "--output", "gelu.npz").status == 0
    found = netspec("convert", "gelu.npz", "gelu.caffemodel")
    assert found.status == 2
    assert "has no form in Caffe" in found.err
    assert found.err.startswith("gelu.npz (its net):")


FOLDING = """
netspec: 1
inputs: {x: {shape: [3]}}
layers:
  - {name: fc, type: Dense, units: 4, use_bias: false}
  - {name: norm, type: BatchNormalization}
  - {name: y, type: ReLU}
"""


def test_batch_normalization_is_folded_when_asked(netspec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text(FOLDING)
    model = load("net.yaml")
    random = np.random.default_rng(0)
    for name in model.parameters:
        model.parameters[name] = random.uniform(0.5, 2, model.parameters[name].shape).astype(np.float32)
    model.save_weights("w.h5")
    for file in ("m.onnx", "m.keras", "m.caffemodel"):
        assert netspec("export", "net.yaml", "--weights", "w.h5", "--output", file).status == 0
        found = netspec("import", file, "--output", f"of-{file}", "--fold-batch-norm")
        assert (found.status, found.err) == (0, "")
        assert "note: 1 BatchNormalization folded into the layer before\n" in found.out
        text = Path(f"of-{file}/net.yaml").read_text()
        assert "BatchNormalization" not in text
        x = random.normal(size=(5, 3)).astype(np.float32)
        (got,) = load(f"of-{file}/net.yaml", f"of-{file}/weights.h5").predict({"x": x}).values()
        (expected,) = model.predict({"x": x}).values()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)  # float32, products in another order
    own = netspec("import", "w.h5", "--output", "own", "--fold-batch-norm")
    assert own.status == 2
    assert "gives no net with weights of another program" in own.err
    assert not Path("own").exists()


def test_a_training_of_keras_goes_on_once_its_data_is_said(netspec, work):
    """Three steps were taken there: the fourth, on the same samples, leaves the same weights as there."""
    found = netspec("import", FILES / "trained_adam.keras", "--output", "taken")
    again = "netspec train taken/train.yaml --resume taken/checkpoint.h5"
    assert found.out.endswith(f"once taken/train.yaml says its data in the place of `source: python`:\n  {again}\n")
    refused = netspec("train", "taken/train.yaml", "--resume", "taken/checkpoint.h5")
    assert refused.status == 2
    assert "python" in refused.err
    images, classes = batch(3)
    np.savez("samples.npz", image=np.moveaxis(images, -1, 1), target=classes)
    spec = Path("taken/train.yaml")
    said = "{source: npz, path: ../samples.npz, batch_size: 4}"
    spec.write_text(re.sub(r"\{source: python.*\}", said, spec.read_text()))
    went = netspec("train", spec, "--resume", "taken/checkpoint.h5", "train.max_steps=4", "--json")
    assert went.status == 0, went.err
    with np.load(FILES / "trained_adam.npz") as after:
        expected = after["after_classes/bias"]
    # Adam divides by roots of small numbers, in float32 on both sides.
    (run,) = Path().rglob("runs/*")
    got = load(run / "spec.yaml", run / "weights.h5").parameters["classes/bias"]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
