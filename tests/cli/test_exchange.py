"""`netspec export` and `netspec import`: round trips of models."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from netspec.cli.options import batch_or_dynamic
from netspec.exchange.formats.native.safetensors import write_safetensors
from netspec.exchange.formats.pytorch.state_dicts import to_state_dict
from netspec.schema.language.provenance import spec_sha256
from netspec.schema.load import load_net
from netspec.training.inference.model import load
from tests.exchange.formats.keras.recorded import FILES
from tests.peers.keras_nets import batch
from tests.peers.recordings import load_answers

WEIGHTS = ("--weights", "run/weights.h5")


@pytest.fixture
def exported(trained, netspec):
    netspec.ok("export", "net.yaml", *WEIGHTS, "--output", "model.onnx")
    return trained


def batch_axis(path: str):
    return onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0]


def test_the_batch_is_dynamic_or_fixed(netspec, trained):
    result = netspec("export", "train.yaml", *WEIGHTS, "--output", "model.onnx")
    assert (result.status, result.err) == (0, "")
    assert "features [N, 3] → probabilities [N, 2]" in result.out
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
    result = netspec("export", *words, "--output", "model.onnx", "--json").json
    assert result["max_abs_difference"]["probabilities"] < 1e-4
    assert {tensor.data_type for tensor in onnx.load("model.onnx").graph.initializer} <= {
        onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    }  # fmt: skip


def test_the_opset_and_the_counts_of_plan_are_printed(netspec, trained):
    text = (trained / "net.yaml").read_text()
    (trained / "norm.yaml").write_text(
        text.replace("  - {name: logits", "  - {name: norm, type: BatchNormalization}\n  - {name: logits")
    )
    load("norm.yaml").save_weights("norm.h5")
    words = ("export", "norm.yaml", "--weights", "norm.h5", "--output", "norm.onnx", "--opset", "17")
    lines = netspec(*words).out.splitlines()
    assert lines[0].startswith("norm.onnx: ONNX opset 17 (--opset selects a different one), ")
    planned = netspec("plan", "norm.yaml", "--json").json["parameters"]
    assert planned == 26 + 8
    assert lines[1].endswith(" nodes, 34 parameters, 8 moving statistics")
    result = netspec(*words, "--json").json
    assert (result["parameters"], result["statistics"]) == (planned, 8)


def test_transforms_of_the_training_are_listed_and_recorded(netspec, work):
    transforms = "transforms: [{type: Rescaling, scale: 0.5}, {type: Normalization, adapt: true}]"
    text = (work / "train.yaml").read_text().replace("path: blobs.npz", f"path: blobs.npz, {transforms}")
    (work / "train.yaml").write_text(text)
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    result = netspec.ok("export", "net.yaml", *WEIGHTS, "--output", "model.onnx")
    assert result.err.startswith("note: transforms are not applied here")
    metadata = {entry.key: entry.value for entry in onnx.load("model.onnx").metadata_props}
    first, second = json.loads(metadata["netspec_transforms"])
    assert first == {"input": "features", "type": "Rescaling", "scale": 0.5, "offset": 0.0}
    assert (second["input"], second["type"], len(second["mean"]), len(second["variance"])) == (
        "features", "Normalization", 3, 3,
    )  # fmt: skip
    features = np.load("blobs.npz")["features"].astype(np.float64) * 0.5
    # The features are float32 products, summed in float64.
    np.testing.assert_allclose(second["mean"], features.mean(0), rtol=1e-6)
    # An imported copy keeps the recorded preprocessing.
    netspec.ok("import", "run/weights.h5", "--output", "new")
    assert load("new/net.yaml", "new/weights.h5").preprocessing == load("net.yaml", "run/weights.h5").preprocessing


CLASSES = """\
netspec: 1
net: net.yaml
data: {train: {source: csv, path: blobs.csv, label: kind, header: true, classes: [cat, dog], batch_size: 8}}
solver: {type: SGD, learning_rate: 0.5}
train: {max_steps: 2}
"""


def test_the_metadata_have_the_net_and_its_classes(netspec, work):
    rows = [f"{index}.5,1.5,2.5,{'cat' if index % 2 else 'dog'}" for index in range(8)]
    (work / "blobs.csv").write_text("\n".join(["x,y,z,kind", *rows]))
    (work / "train.yaml").write_text(CLASSES)
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    netspec.ok("export", "run", "--output", "model.onnx")
    metadata = {entry.key: entry.value for entry in onnx.load("model.onnx").metadata_props}
    assert json.loads(metadata["netspec_classes"]) == {"probabilities": ["cat", "dog"]}
    (work / "saved.yaml").write_text(metadata["netspec_spec"])
    assert spec_sha256(load("saved.yaml").spec) == metadata["netspec_spec_sha256"]


def test_the_training_form_names_trained_parameters(netspec, trained):
    text = (trained / "net.yaml").read_text()
    layers = "  - {type: Dropout, rate: 0.2}\n  - {name: norm, type: BatchNormalization}\n"
    (trained / "norm.yaml").write_text(text.replace("  - {name: logits", f"{layers}  - {{name: logits"))
    load("norm.yaml").save_weights("norm.h5")
    words = ("export", "norm.yaml", "--weights", "norm.h5", "--output", "norm.onnx", "--form", "training")
    netspec.ok("check", "norm.yaml", "--export", "onnx", "--form", "training")
    result = netspec.ok(*words, "--inputs", "blobs.npz")
    assert result.err == "note: the random masks of Dropout are left out of the comparison\n"
    assert "features [N, 3], label [N] → logits [N, 2], loss [], " in result.out
    metadata = {entry.key: entry.value for entry in onnx.load("norm.onnx").metadata_props}
    assert metadata["netspec_form"] == "training"
    assert json.loads(metadata["netspec_trainable"]) == [
        "hidden/kernel", "hidden/bias", "norm/gamma", "norm/beta", "logits/kernel", "logits/bias",
    ]  # fmt: skip
    assert json.loads(metadata["netspec_updates"]) == {
        f"norm/moving_{name}": f"norm/moving_{name}/new" for name in ("mean", "variance")
    }
    result = netspec(*words[:-1], "other")
    assert (result.status, "--form is unknown" in result.err) == (2, True)


def test_a_dynamic_batch_size_also_has_its_name_of_release_0_2_0():
    assert [batch_or_dynamic(text) for text in ("dynamic", "symbolic", "5")] == [None, None, 5]


def test_a_part_of_a_model_of_the_zoo_is_imported(netspec, work):
    result = netspec.ok("import", "lenet_mnist", "--output", "features", "--drop-head", "1")
    assert result.out.endswith("\nto fine-tune it on images:\n  netspec init FOLDER --trunk features\n")
    assert [layer.name for layer in load_net("features/net.yaml").layers][-1] == "fc1"


def test_an_invalid_opset_is_rejected(netspec, trained):
    result = netspec("export", "net.yaml", *WEIGHTS, "--output", "model.onnx", "--opset", "3")
    assert result.status == 2
    assert not (trained / "model.onnx").exists()


def test_weights_of_another_net(netspec, trained):
    result = netspec("export", "net.yaml", "vars.width=5", *WEIGHTS, "--output", "model.onnx")
    assert result.status == 2
    assert "hidden/kernel" in result.err


@pytest.mark.parametrize("file", ["model.onnx", "run/weights.h5", "run/checkpoints/step-00000012.h5"])
def test_an_imported_net_computes_the_same(netspec, exported, file):
    result = netspec("import", file, "--output", "new/net")
    assert (result.status, result.err) == (0, "")
    assert sorted(path.name for path in (exported / "new" / "net").iterdir()) == ["net.yaml", "weights.h5"]
    assert "26 parameters" in result.out
    features = np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)
    ours = load("net.yaml", "run/weights.h5").predict({"features": features})["logits"]
    theirs = load("new/net/net.yaml", "new/net/weights.h5").predict({"features": features})["logits"]
    np.testing.assert_array_equal(theirs, ours)
    netspec.ok("check", "new/net/net.yaml")


@pytest.mark.parametrize(
    ("file", "words", "message"),
    [
        ("model.onnx", ("--phase", "train", "--level", "2"),
         "is an ONNX model (.onnx), which takes no --level, --phase\n  expected: --drop-head, --shape, "),
        ("run/weights.h5", ("--stage", "deploy"), "is weights or a checkpoint that netspec wrote (.h5), which takes"),
        ("run/weights.h5", ("--shape", "x=3", "--net", "net.yaml"), "is read for a net (--net), which takes no"),
    ],
)  # fmt: skip
def test_options_of_other_formats_are_refused(netspec, exported, file, words, message):
    result = netspec("import", file, "--output", "new", *words)
    assert result.status == 2
    assert result.err.startswith(f"error: {file} {message}")


def test_operators_without_a_layer_are_reported(netspec, exported):
    model = onnx.load("model.onnx")
    model.graph.node[0].op_type = "NoSuchOperator"
    onnx.save(model, "other.onnx")
    result = netspec("import", "other.onnx", "--output", "new")
    assert result.status == 2
    assert "NoSuchOperator" in result.err
    assert "internal error" not in result.err


def test_nothing_is_left_of_an_import_that_fails(netspec, exported):
    (exported / "torn.onnx").write_bytes((exported / "model.onnx").read_bytes()[:100])
    before = sorted(path.name for path in exported.iterdir())
    assert netspec("import", "torn.onnx", "--output", "new").status == 2
    assert sorted(path.name for path in exported.iterdir()) == before


@pytest.mark.parametrize("shape", ["features", "features=", "features=0,3", "features=3x3", "=3"])
def test_an_invalid_shape_is_rejected(netspec, exported, shape):
    result = netspec("import", "model.onnx", "--output", "new", "--shape", shape)
    assert result.status == 2
    assert "is not an input's shape" in result.err


def test_samples_and_tolerance_of_the_comparison(netspec, trained):
    words = ("export", "net.yaml", *WEIGHTS, "--output", "model.onnx")
    np.savez("some.npz", features=np.ones((5, 3)))
    result = netspec(*words, "--inputs", "some.npz")
    assert (result.status, result.err) == (0, "")
    assert "on your samples, onnxruntime gives the same results: largest difference" in result.out
    assert netspec(*words, "--inputs", "some.npz", "--json").json["max_abs_difference_on_inputs"]["logits"] < 1e-5
    np.savez("wrong.npz", features=np.ones((5, 4)))
    assert "the input `features` has the wrong shape" in netspec(*words, "--inputs", "wrong.npz").err
    assert netspec(*words, "--tolerance", "0").status == 2
    # The results are bit-identical or not, depending on the CPU.
    assert netspec(*words, "--tolerance", "1e-30", "--inputs", "some.npz").status in (0, 1)


def test_weights_of_another_program_are_laid_onto_a_net(netspec, trained):
    arrays = dict(load("net.yaml", "run/weights.h5").parameters)
    first, *rest = to_state_dict(arrays).items()
    write_safetensors("theirs.safetensors", {"model.old": first[1], **{f"model.{name}": array for name, array in rest},
                                             "model.extra": first[1]}, {})  # fmt: skip
    result = netspec("import", "theirs.safetensors", "--net", "net.yaml", "--output", "mine")
    assert result.status == 2
    assert "is missing" in result.err
    mapping = ("--map", f"model.old=model.{first[0]}", "--map", "model.extra=")
    result = netspec("import", "theirs.safetensors", "--net", "net.yaml", *mapping, "--output", "mine")
    assert (result.status, result.err) == (0, "")
    reloaded = load("mine/net.yaml", "mine/weights.h5").parameters
    assert all((reloaded[name] == array).all() for name, array in arrays.items())


def test_a_map_must_fit_something(netspec, trained):
    np.savez("theirs.npz", a=np.zeros(2, "float32"))
    result = netspec("import", "theirs.npz", "--net", "net.yaml", "--map", "b*=c", "--map", "=x", "--output", "mine")
    assert (result.status, "`=x` is not a renaming" in result.err) == (2, True)
    result = netspec("import", "theirs.npz", "--net", "net.yaml", "--map", "b*=c", "--output", "mine")
    assert (result.status, "`b*` fits no name in the file" in result.err) == (2, True)
    result = netspec("import", "theirs.npz", "--map", "b*=c", "--output", "mine")
    assert (result.status, "--map has no effect without --net" in result.err) == (2, True)
    result = netspec("import", "theirs.npz", "--output", "mine")
    assert (result.status, "holds weights without the net" in result.err) == (2, True)


def test_a_model_and_weights_for_keras(netspec, trained):
    result = netspec.ok("export", "train.yaml", *WEIGHTS, "--output", "model.keras")
    assert result.out.startswith("model.keras: keras, ")
    report = netspec("export", "net.yaml", *WEIGHTS, "--output", "model.weights.h5", "--json").json
    assert (report["format"], report["parameters"], report["files"]) == ("keras_weights", 26, ["model.weights.h5"])
    netspec.ok("check", "train.yaml", "--export", "keras")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--output", "model.foo"), "its name says no format that is written"),
        (("--output", "model.pt"), "hint: PyTorch loads .safetensors: "),
        (("--output", "model.keras", "--opset", "13"), "has no opset to choose"),
        (("--output", "model.keras", "--batch-size", "1"), "has no batch to choose"),
        (("--output", "model.keras", "--form", "training"), "has no form to choose"),
        (("--output", "model.keras", "--inputs", "blobs.npz"), "--inputs is only used for a comparison in onnxruntime"),
    ],
)
def test_impossible_exports_are_refused(netspec, trained, words, why):
    result = netspec("export", "net.yaml", *WEIGHTS, *words)
    assert (result.status, why in result.err) == (2, True)


def test_a_file_that_cannot_be_read_again_is_written_with_a_note(netspec, work):
    # Keras has no layer for this, so it is written as operations, which netspec does not import.
    steps = "{type: TimeDistributed, layer: {type: LayerNormalization, axis: 1}}"
    Path("net.yaml").write_text(f"netspec: 1\ninputs: {{x: {{shape: [3, 2, 4, 4]}}}}\nlayers:\n  - {steps}\n")
    load("net.yaml").save_weights("weights.h5")
    result = netspec.ok("export", "net.yaml", "--weights", "weights.h5", "--output", "net.keras")
    assert Path("net.keras").is_file()
    assert "the results were not compared: the written file can't be read back: " in result.err


def test_layers_without_a_form_are_reported_at_their_line(netspec, trained):
    net = Path("net.yaml").read_text().replace("activation: relu", "activation: gelu")
    Path("gelu.yaml").write_text(net)
    netspec.ok("export", "gelu.yaml", "--weights", "run/best.h5", "--output", "gelu.npz")
    result = netspec("convert", "gelu.npz", "gelu.caffemodel")
    assert result.status == 2
    assert "cannot be written for Caffe" in result.err
    assert result.err.startswith("gelu.npz (its net):")


FOLDING = """
netspec: 1
inputs: {x: {shape: [3]}}
layers:
  - {name: fc, type: Dense, units: 4, use_bias: false}
  - {name: norm, type: BatchNormalization}
  - {name: y, type: ReLU}
"""


def test_batch_normalization_is_folded_on_request(netspec, current_folder):
    Path("net.yaml").write_text(FOLDING)
    model = load("net.yaml")
    random = np.random.default_rng(0)
    for name in model.parameters:
        model.parameters[name] = random.uniform(0.5, 2, model.parameters[name].shape).astype(np.float32)
    model.save_weights("w.h5")
    for file in ("m.onnx", "m.keras", "m.caffemodel"):
        netspec.ok("export", "net.yaml", "--weights", "w.h5", "--output", file)
        result = netspec("import", file, "--output", f"of-{file}", "--fold-batch-norm")
        assert (result.status, result.err) == (0, "")
        assert "note: 1 BatchNormalization folded into the layer before\n" in result.out
        text = Path(f"of-{file}/net.yaml").read_text()
        assert "BatchNormalization" not in text
        x = random.normal(size=(5, 3)).astype(np.float32)
        (actual,) = load(f"of-{file}/net.yaml", f"of-{file}/weights.h5").predict({"x": x}).values()
        (expected,) = model.predict({"x": x}).values()
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)  # float32, products in another order
    imported = netspec("import", "w.h5", "--output", "own", "--fold-batch-norm")
    assert imported.status == 2
    assert "is not a model of another program with weights" in imported.err
    assert not Path("own").exists()


def test_a_keras_training_continues_once_its_data_is_set(netspec, work):
    """The recorded training took three steps in Keras; the fourth, on the same samples, gives the same weights."""
    result = netspec("import", FILES / "trained_adam.keras", "--output", "taken")
    command = "netspec train taken/train.yaml --resume taken/checkpoint.h5"
    assert result.out.endswith(f"after replacing `source: python` in taken/train.yaml with your data:\n  {command}\n")
    refused = netspec("train", "taken/train.yaml", "--resume", "taken/checkpoint.h5")
    assert refused.status == 2
    assert "python" in refused.err
    images, classes = batch(3)
    np.savez("samples.npz", image=np.moveaxis(images, -1, 1), target=classes)
    spec = Path("taken/train.yaml")
    source = "{source: npz, path: ../samples.npz, batch_size: 4}"
    spec.write_text(re.sub(r"\{source: python.*\}", source, spec.read_text()))
    resume = ("--resume", "taken/checkpoint.h5", "train.max_steps=4")
    netspec.ok("train", spec, *resume, "--json", "--device", "reference")
    expected = load_answers("keras/trained_adam")["after_classes/bias"]
    # Adam divides by roots of small values, in float32 in both programs.
    (run,) = Path().rglob("runs/*")
    actual = load(run / "spec.yaml", run / "weights.h5").parameters["classes/bias"]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


AMBIGUOUS = """
netspec: 1
inputs: {x: {shape: [4]}}
layers:
  - {name: one, type: Dense, units: 4}
  - {name: two, type: Dense, units: 4}
  - {name: head/out, type: Dense, units: 2}
"""


def test_an_ambiguous_state_dict_names_the_options_that_resolve_it(netspec, current_folder) -> None:
    """Two modules fit each of two layers, and their names do not help."""
    Path("net.yaml").write_text(AMBIGUOUS)
    theirs = {f"fc.{n}.{name}": np.full(shape, n, "float32") for n in (0, 2) for name, shape in
              (("weight", (4, 4)), ("bias", (4,)))}  # fmt: skip
    theirs |= {"fc.4.weight": np.ones((2, 4), "float32"), "fc.4.bias": np.ones(2, "float32")}
    write_safetensors("net.safetensors", theirs, {})
    words = ["import", "net.safetensors", "--net", "net.yaml", "--output", "new"]
    refused = netspec(*words)
    assert refused.status == 2
    assert (
        "`one/kernel` is missing\n  expected: [4, 4]\n  hint: `fc.0.weight`, `fc.2.weight` of the file fit; name the "
        "module of the layer: `netspec import … --net … --map 'fc.0.*=one.*'`\n"
    ) in refused.err
    assert "--map 'fc.4.*=head.out.*'" in refused.err
    named = netspec(*words, "--map", "fc.0.*=two.*", "--map", "fc.2.*=one.*", "--map", "fc.4.*=head.out.*")
    assert (named.status, named.err) == (0, "")
    assert (load("new/net.yaml", "new/weights.h5").parameters["one/kernel"] == 2).all()


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--until", "hidden"), ("run", "--drop-head", "1"), ("net.yaml", *WEIGHTS, "--until", "hidden"),
        ("run/weights.h5", "--net", "net.yaml", "--drop-head", "1"), ("run/weights.h5", "--drop-head", "1"),
    ],
)  # fmt: skip
def test_a_part_of_a_net_of_netspec(netspec, trained, words):
    result = netspec("import", *words, "--output", "part")
    assert (result.status, result.err) == (0, "")
    assert "note: the net is cut at hidden; dropped: logits\n" in result.out
    assert "note: 2 losses and metrics are left out, since their inputs are dropped: `" in result.out
    part = load("part/net.yaml", "part/weights.h5")
    model = load("net.yaml", "run/weights.h5")
    assert list(part.parameters) == ["hidden/kernel", "hidden/bias"]
    for name in part.parameters:
        np.testing.assert_array_equal(part.parameters[name], model.parameters[name])
    if "--net" not in words:  # which imports only arrays, without the preprocessing
        assert part.preprocessing == model.preprocessing
    netspec.ok("check", "part/net.yaml")


def test_impossible_cuts_are_refused(netspec, trained):
    result = netspec("import", "run", "--until", "hiden", "--output", "part")
    assert (result.status, "hint: did you mean `hidden`?" in result.err) == (2, True)
    result = netspec("import", "run", "--drop-head", "2", "--output", "part")
    assert (result.status, "run has 2 layers with parameters" in result.err) == (2, True)
    assert not Path("part").exists()


def test_notes_of_one_kind_are_one_line_and_json_has_all(netspec, current_folder):
    """Twelve layers with names that Keras does not allow, and twelve inputs that are channels-last in Keras."""
    numbers = range(12)
    inputs = ", ".join(f"x{n}: {{shape: [3, 4, 4]}}" for n in numbers)
    layers = "".join(f"  - {{name: b.{n}/c, type: Conv2D, filters: 3, kernel_size: 1, from: x{n}}}\n" for n in numbers)
    outputs = ", ".join(f"b.{n}/c" for n in numbers)
    Path("net.yaml").write_text(f"netspec: 1\ninputs: {{{inputs}}}\nlayers:\n{layers}outputs: [{outputs}]\n")
    load("net.yaml").save_weights("w.h5")
    export = ("export", "net.yaml", "--weights", "w.h5", "--output", "net.keras")
    errors = netspec(*export).err
    assert "note: 12 layers have other names in Keras: `b.0/c` → `b_0_c`, " in errors
    assert errors.count("note: ") == 2
    assert len(netspec(*export, "--json").json["notes"]) == 24
    assert netspec("check", "net.yaml", "--export", "keras").err.count("other names") == 1
    words = ("import", "net.keras", "--output")
    result = netspec(*words, "new").out
    assert "note: 12 inputs are channels first here, and channels last in Keras: `x0` [3, 4, 4], " in result
    assert result.count("note: ") == 2
    report = netspec(*words, "other", "--json").json
    assert (report["path"], report["layers"], len(report["notes"])) == ("other", 12, 24)
    assert report["files"] == ["other/net.yaml", "other/weights.h5"]
