"""Nets are truncated at import: the rest gives the results of the full net, with the same weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from netspec.errors import InputError
from netspec.exchange.formats.onnx.messages import open_session
from netspec.exchange.formats.registry import Format
from netspec.exchange.importing import import_model
from netspec.exchange.interface import Imported, ImportOptions
from netspec.exchange.net_yaml_writer import clean
from netspec.exchange.truncation import truncated
from netspec.schema.language.provenance import canonical_yaml
from netspec.schema.load import load_net
from netspec.schema.yaml.reader import parse_yaml
from netspec.tools.exporting.export import write_model
from netspec.training.inference.model import Model, load
from tests.exchange.formats.keras.recorded import FILES as PEER_FILES
from tests.exchange.formats.keras.written import archive, layer, old_file, sequential
from tests.exchange.formats.onnx.test_real_models import OPEN
from tests.exchange.lift.models.generic import chain, floats, ints, model, node
from tests.exchange.nets import Net

LAYERS: list[dict[str, Any]] = [
    {"name": "conv", "type": "Conv2D", "filters": 3, "kernel_size": 3, "padding": "same", "activation": "relu"},
    {"name": "norm", "type": "BatchNormalization"},
    {"name": "sum", "type": "Add", "from": ["conv", "norm"]},
    {"name": "pool", "type": "MaxPooling2D", "pool_size": 2},
    {"name": "flat", "type": "Flatten"},
    {"name": "hidden", "type": "Dense", "units": 5, "activation": "tanh"},
    {"name": "head", "type": "Dense", "units": 4},
    {"name": "out", "type": "Softmax"},
]
JUDGED = {
    "losses": [
        {"name": "main", "type": "CategoricalCrossentropy", "from": ["out", "label"]},
        {"name": "decay", "type": "MeanSquaredError", "from": ["hidden", "target"]},
    ],
    "metrics": [{"type": "CategoricalAccuracy", "from": ["out", "label"]}],
}
INPUTS = {"image": {"shape": [2, 6, 6]}, "label": {"shape": [4]}, "target": {"shape": [5]}}
FILES = ("net.onnx", "net.keras", "net.caffemodel", "net.h5", "net.npz", "net.safetensors")
IMAGES = np.random.default_rng(3).normal(size=(3, 2, 6, 6)).astype("float32")


def spec(outputs: list[str] | None = None) -> dict[str, Any]:
    data = {"netspec": 1, "name": "whole", "inputs": INPUTS, "layers": LAYERS, **JUDGED}
    return data if outputs is None else {**data, "outputs": outputs}


@pytest.fixture(scope="module")
def whole() -> Model:
    model = load(spec(), device="reference")
    random = np.random.default_rng(8)
    for name in model.parameters:
        model.parameters[name] = random.uniform(0.2, 1, model.parameters[name].shape).astype("float32")
    return model


@pytest.fixture(scope="module")
def files(whole: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name in FILES:
        write_model(whole, whole.spec, folder / name, whole.preprocessing)
    return folder


def expected(whole: Model, *names: str) -> dict[str, np.ndarray]:
    """Return the results of the layers of the full net."""
    other = load(spec(list(names)), device="reference")
    for name in other.parameters:
        other.parameters[name] = whole.parameters[name]
    return other.predict({"image": IMAGES})


def computed(actual: Imported, images: np.ndarray = IMAGES) -> dict[str, np.ndarray]:
    """Return the results of the imported net."""
    net = Net(load_net(parse_yaml(actual.net, "net.yaml")), actual.arrays)
    return net.predict({next(iter(net.spec.inputs)): images})


def check(imported: Imported, expected: Mapping[str, np.ndarray]) -> None:
    actual = computed(imported)
    assert list(actual) == list(expected)
    for name, array in expected.items():
        # Both are float32 on the reference device; weights of other formats are only transposed.
        np.testing.assert_allclose(actual[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("until", [("pool",), ("hidden",), ("hidden", "norm"), ("norm", "conv"), ("head",)])
def test_outputs_equal_the_full_net(whole: Model, files: Path, file: str, until: tuple[str, ...]) -> None:
    actual = import_model(files / file, ImportOptions(until=until))
    check(actual, expected(whole, *until))
    left = parse_yaml(actual.net, "net.yaml")
    assert not any(name.startswith("out") for name in actual.arrays)
    assert {layer["name"] for layer in left["layers"]}.isdisjoint({"out"})
    for name, array in import_model(files / file).arrays.items():
        if name in actual.arrays:
            np.testing.assert_array_equal(actual.arrays[name], array)
    assert ("head/kernel" in actual.arrays) == ("head" in until)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(("count", "last"), [(1, "hidden"), (2, "flat")])
def test_the_head_is_dropped_with_its_readers(whole: Model, files: Path, file: str, count: int, last: str) -> None:
    imported = import_model(files / file, ImportOptions(drop_head=count))
    (actual,) = computed(imported).values()
    (full_output,) = expected(whole, last).values()
    np.testing.assert_allclose(actual, full_output, rtol=1e-5, atol=1e-6)  # float32
    assert any("dropped: " in note and "head" in note for note in imported.notes)
    with pytest.raises(InputError, match="has 4 layers with parameters"):
        import_model(files / file, ImportOptions(drop_head=4))


def test_both_options_are_applied_in_order(whole: Model, files: Path) -> None:
    actual = import_model(files / "net.h5", ImportOptions(until=("hidden",), drop_head=1))
    check(actual, expected(whole, "flat"))


def test_losses_and_metrics_of_dropped_layers_are_left_out_with_notes(files: Path) -> None:
    """A loss of a kept layer is kept, with its target."""
    actual = import_model(files / "net.h5", ImportOptions(until=("hidden",)))
    net = load_net(parse_yaml(actual.net, "net.yaml"))
    assert [loss.name for loss in net.losses] == ["decay"]
    assert not net.metrics
    assert list(net.inputs) == ["image", "target"]
    assert actual.notes == (
        "the net is cut at hidden; dropped: head, out",
        "the loss `main` is left out: it reads `out`",
        "the metric `categorical_accuracy` is left out: it reads `out`",
    )


@pytest.mark.parametrize("file", FILES)
def test_an_unknown_name_lists_others_the_nearest_first(files: Path, file: str) -> None:
    with pytest.raises(InputError) as caught:
        import_model(files / file, ImportOptions(until=("pol", "conv", "xyz")))
    first, second = caught.value.problems
    assert "has no `pol` to cut at" in first.message
    assert first.hint == "did you mean `pool`?"
    assert str(first.expected).startswith("a layer or tensor: pool, ")
    assert len(str(first.expected).split(",")) <= 11
    assert "has no `xyz` to cut at" in second.message


def test_onnx_constants_are_not_valid_cut_points(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    nodes = [helper.make_node("Neg", ["w"], ["constant"]), helper.make_node("Add", ["x", "constant"], ["sum"]),
             helper.make_node("Relu", ["sum"], ["y"])]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "xy"]
    weights = [numpy_helper.from_array(np.ones(3, np.float32), "w")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(InputError) as caught:
        import_model(path, ImportOptions(until=("nothing",)))
    assert caught.value.problems[0].expected == "a layer or tensor: sum, y"


def test_a_model_that_cannot_be_imported_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only after an unknown name, the model is also imported in full, to find layers that the importer creates."""
    path = tmp_path / "model.onnx"
    steps = ("boxes = Neg x", "kept = NonMaxSuppression boxes x most", "y = Cast kept")
    path.write_bytes(model(chain(*steps, Cast={"to": 1}), (1, 6, 4), most=ints(3)).SerializeToString())
    reads: list[Path] = []
    read = Format.reads

    def counted(self: Format, path: Path, options: ImportOptions) -> Imported:
        reads.append(path)
        return read(self, path, options)

    monkeypatch.setattr(Format, "reads", counted)
    with pytest.raises(InputError, match="static shapes"):
        import_model(path, ImportOptions(until=("kept",)))
    assert len(reads) == 1
    with pytest.raises(InputError, match="has no `nothing` to cut at"):
        import_model(path, ImportOptions(until=("nothing",)))
    assert len(reads) == 3


def test_a_tail_of_onnx_without_a_counterpart_is_cut_off(tmp_path: Path) -> None:
    """Cuts at boxes and scores, at names of nodes, and at tensors that are renamed in the net."""
    steps = ("/f/Relu_output_0 = Relu x", "boxes = Mul /f/Relu_output_0 two", "scores = Neg /f/Relu_output_0",
             "kept = NonMaxSuppression boxes scores most", "y = Cast kept")  # fmt: skip
    proto = model(chain(*steps, Cast={"to": 1}), (1, 6, 4), two=floats(1), most=ints(3))
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InputError, match="static shapes"):
        import_model(path)
    x = np.random.default_rng(0).normal(size=(1, 6, 4)).astype("float32")
    imported = import_model(path, ImportOptions(until=("boxes", "/f/Relu_output_0")))
    actual = computed(imported, x)
    np.testing.assert_array_equal(actual["f/Relu_output_0"], np.maximum(x, 0))
    assert list(actual) == ["boxes", "f/Relu_output_0"]
    assert list(computed(import_model(path, ImportOptions(until=("f/Relu_output_0",))), x)) == ["f/Relu_output_0"]


def test_an_output_has_the_requested_name(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "t", name="/first/Relu"), node("Neg", "t", "u", name="/second/Neg"), node("Abs", "u")]
    path = tmp_path / "model.onnx"
    path.write_bytes(model(nodes, ("N", 3)).SerializeToString())
    for name, called in (("/first/Relu", "first/Relu"), ("first/Relu", "first/Relu"), ("t", "t"), ("u", "u")):
        actual = import_model(path, ImportOptions(until=(name,)))
        assert list(computed(actual, np.ones((2, 3), "float32"))) == [called]


def test_layers_created_by_an_importer_keep_the_names_of_the_full_net(tmp_path: Path) -> None:
    """Two calls of a Keras layer become two layers; Keras's name refers to both."""
    path = PEER_FILES / "nested.h5"
    whole = import_model(path)
    names = [layer["name"] for layer in parse_yaml(whole.net, "net.yaml")["layers"]]
    assert "tower/shared_1" in names
    for name in names:
        actual = import_model(path, ImportOptions(until=(name,)))
        assert all((array == whole.arrays[state]).all() for state, array in actual.arrays.items())
        assert name in (load_net(parse_yaml(actual.net, "net.yaml")).outputs or ())


def test_a_tail_of_keras_without_a_counterpart_is_cut_off(tmp_path: Path) -> None:
    layers = (
        layer("InputLayer", batch_shape=[None, 3], name="in"), layer("Dense", units=2, name="dense"),
        layer("MyOwn", name="mine"),
    )  # fmt: skip
    weights = {"dense": {"kernel:0": floats(3, 2), "bias:0": floats(2)}}
    compiled = {
        "training_config": {"loss": "mse", "metrics": ["mae"], "optimizer_config": {"class_name": "SGD", "config": {}}}
    }
    path = old_file(tmp_path / "m.h5", sequential(*layers), weights, "2.4.0", **compiled)
    with pytest.raises(InputError, match="MyOwn"):
        import_model(path)
    actual = import_model(path, ImportOptions(until=("dense",)))
    np.testing.assert_array_equal(actual.arrays["dense/kernel"], weights["dense"]["kernel:0"])
    assert not actual.train
    assert "the loss 'mse' is left out: it reads `mine`" in actual.notes
    assert "the training file is left out: the net was cut" in actual.notes


def test_models_within_a_model_of_keras_are_cut_at_by_their_names(tmp_path: Path) -> None:
    inner = sequential(
        layer("InputLayer", batch_shape=[None, 4], name="i"), layer("ReLU", name="r"), layer("Softmax", name="s")
    )
    inner["config"] = {"name": "base", "layers": inner["config"]}
    outer = sequential(
        layer("InputLayer", batch_shape=[None, 4], name="in"), inner, layer("Activation", activation="tanh", name="t")
    )
    path = archive(tmp_path / "m.keras", outer)
    x = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    for name, last in (("base", "base/s"), ("base/r", "base/r")):
        (actual,) = computed(import_model(path, ImportOptions(until=(name,))), x)
        assert actual == last


NETS = """
name: "n"
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 3 dim: 4 dim: 4 } } }
layer { name: "label" type: "Input" top: "y" input_param { shape { dim: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" convolution_param { num_output: 2 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "scale" type: "Scale" bottom: "bn" top: "scaled" }
layer { name: "tail" type: "DetectionOutput" bottom: "scaled" top: "tail" }
layer { name: "fc" type: "InnerProduct" bottom: "scaled" top: "fc" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "y" top: "loss" }
"""


def test_a_tail_of_caffe_without_a_counterpart_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(NETS)
    with pytest.raises(InputError, match="DetectionOutput"):
        import_model(path)
    actual = import_model(path, ImportOptions(until=("conv",)))
    (conv,) = parse_yaml(actual.net, "net.yaml")["layers"]
    assert conv["activation"] == "relu"  # a blob has the value of the last layer that writes it
    assert actual.notes == ("`loss` (SoftmaxWithLoss) is left out: it reads `fc`",)
    actual = import_model(path, ImportOptions(until=("bn", "scaled")))  # without the cut, these are one layer
    assert list(load_net(parse_yaml(actual.net, "net.yaml")).outputs or ()) == ["bn", "scale"]
    assert len(load_net(parse_yaml(import_model(path, ImportOptions(until=("scale",))).net, "net")).layers) == 2
    actual = import_model(path, ImportOptions(until=("fc",)))
    assert len(load_net(parse_yaml(actual.net, "net.yaml")).losses) == 1
    with pytest.raises(InputError, match="has no `loss` to cut at"):
        import_model(path, ImportOptions(until=("loss",)))


def test_layers_that_share_weights_keep_the_layer_that_has_them() -> None:
    layers = [
        {"name": "a", "type": "Dense", "units": 2, "from": "x"},
        {"name": "b", "type": "Dense", "units": 2, "share": "a", "from": "z"},
        {"name": "s", "type": "Add", "from": ["a", "b"]},
    ]
    net = load(
        {"netspec": 1, "inputs": {"x": {"shape": [2]}, "z": {"shape": [2]}}, "layers": layers}, device="reference"
    )
    actual = truncated(Imported(canonical_yaml(net.spec), dict(net.parameters)), ImportOptions(until=("b",)), "net")
    assert list(actual.arrays) == ["a/kernel", "a/bias"]
    assert [layer["name"] for layer in parse_yaml(actual.net, "net.yaml")["layers"]] == ["a", "b"]


MODELS = os.environ.get("NETSPEC_MODELS")


@pytest.mark.skipif(not MODELS, reason="NETSPEC_MODELS names no folder with the models")
@pytest.mark.parametrize("name", ["mnist_cntk", "mtcnn_onet", "mtcnn_pnet", "mtcnn_rnet", "ppocrv2_cls"])
def test_real_models_are_cut_in_the_middle(name: str, tmp_path: Path) -> None:
    """Compare with onnxruntime, with the tensor as an additional output."""
    path = Path(MODELS or "", "onnx", name, "model.onnx")
    proto = onnx.load(path)
    tensors = [
        node.output[0] for node in proto.graph.node if node.op_type in ("Relu", "PRelu", "Conv", "MaxPool", "Add")
    ]
    tensor = tensors[len(tensors) // 2]
    results = import_model(path, ImportOptions(OPEN.get(name, {}), until=(tensor,)))
    net = Net(load_net(parse_yaml(results.net, "net.yaml")), results.arrays)
    with np.load(path.with_name("reference.npz")) as held:
        feeds = {str(in_name): held[f"in_{index}"] for index, in_name in enumerate(held["in_names"])}
    del proto.graph.output[:]
    proto.graph.output.append(helper.make_empty_tensor_value_info(tensor))
    (reference,) = open_session(proto.SerializeToString()).run(None, feeds)
    actual = net.predict({clean(name): array for name, array in feeds.items()})
    assert list(actual) == [clean(tensor)]
    # Other orders of summation in float32, relative to the largest value of the tensor.
    assert np.abs(actual[clean(tensor)] - reference).max() <= 1e-4 * np.abs(reference).max()
