"""Caffe weights: in the files of nets, in separate files, for existing nets; and files with false sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.formats.caffe.blobs import array_blob, fitted, read_mean, read_weights
from netspec.exchange.formats.caffe.proto.binary import encode
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.proto.text import parse
from netspec.exchange.formats.caffe.reading import read_caffemodel, read_prototxt
from netspec.exchange.formats.registry import format_of
from netspec.exchange.importing import import_model
from netspec.exchange.interface import ImportOptions
from netspec.training.inference.model import load
from tests.exchange.formats.caffe.prototxt import answers, dense, drafted, failure, lines, with_input

# Weights


def image_of(rng: Any, *shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32)


def test_weights_as_caffe_computes_with_them():
    rng = np.random.default_rng(0)
    text = with_input(
        'layer { name: "bn" type: "BatchNorm" bottom: "x" top: "x" }\n'
        'layer { name: "s" type: "Scale" bottom: "x" top: "x" scale_param { bias_term: true } }\n'
        'layer { name: "t" type: "InnerProduct" bottom: "x" top: "t" '
        "inner_product_param { num_output: 4 transpose: true } }\n"
        'layer { name: "p" type: "PReLU" bottom: "t" top: "t" }\n' + dense("y", "t"),
        2, 3, 2, 2,
    )  # fmt: skip
    mean, variance, gamma, beta = image_of(rng, 3), rng.random(3).astype(np.float32), image_of(rng, 3), image_of(rng, 3)
    weights, bias, slope = image_of(rng, 12, 4), image_of(rng, 4), image_of(rng, 4)
    kernel, last = image_of(rng, 3, 4), image_of(rng, 3)
    factor = np.array([4.0], np.float32)
    net_draft = drafted(text, {
        "bn": [mean * 4, variance * 4, factor], "s": [gamma, beta], "t": [weights, bias.reshape(1, 1, 1, 4)],
        "p": [slope], "y": [kernel.reshape(1, 1, 3, 4), last.reshape(1, 1, 1, 3)],
    })  # fmt: skip
    x = image_of(rng, 5, 3, 2, 2)
    (computed,) = answers(net_draft, x)
    spread = (1, 3, 1, 1)
    h = (x - mean.reshape(spread)) / np.sqrt(variance.reshape(spread) + 1e-5)
    h = (h * gamma.reshape(spread) + beta.reshape(spread)).reshape(5, 12) @ weights + bias
    h = np.where(h > 0, h, h * slope) @ kernel.T + last
    np.testing.assert_allclose(computed, h, rtol=1e-4, atol=1e-5)  # float32 products of 12 terms
    assert [(parameter.layer, parameter.index, parameter.state) for parameter in net_draft.learned] == [
        ("bn", 0, ""), ("bn", 1, ""), ("bn", 2, ""), ("s", 0, "bn/gamma"), ("s", 1, "bn/beta"), ("t", 0, "t/kernel"),
        ("t", 1, "t/bias"), ("p", 0, "p/alpha"), ("y", 0, "y/kernel"), ("y", 1, "y/bias"),
    ]  # fmt: skip


def test_embeddings_and_transposed_kernels():
    rng = np.random.default_rng(1)
    table, bias = image_of(rng, 5, 3), image_of(rng, 3)
    words = 'layer { name: "e" type: "Embed" bottom: "x" top: "e" embed_param { input_dim: 5 num_output: 3 } }\n'
    net_draft = drafted(with_input(words, 2, 4), {"e": [table, bias]})
    numbers = rng.integers(0, 5, (3, 4)).astype(np.int32)
    np.testing.assert_allclose(answers(net_draft, numbers)[0], table[numbers] + bias, rtol=1e-6)
    up = 'layer { name: "u" type: "Deconvolution" bottom: "x" top: "u" '
    up += "convolution_param { bias_term: false num_output: 2 kernel_size: 2 stride: 2 } }\n"
    kernel = image_of(rng, 3, 2, 2)
    net_draft = drafted(with_input(up, 2, 3, 2), {"u": [kernel]})
    x = image_of(rng, 2, 3, 2)
    expected = np.einsum("ncl,cok->nolk", x, kernel).reshape(2, 2, 4)
    np.testing.assert_allclose(answers(net_draft, x)[0], expected, rtol=1e-4, atol=1e-6)  # float32 sums of 3 products


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"z": [np.zeros((3, 4))]}, "w.caffemodel has no weights for this layer"),
        ({"y": [np.zeros((3, 4), np.float32)]}, "has 1 blobs for this layer, which needs 2"),
        ({"y": [np.zeros((4, 3)), np.zeros(3)]}, "its weights must have the shape [4, 3], got [3, 4] (blob 0 of `y`)"),
        ({"y": [np.zeros((3, 5)), np.zeros(3)]}, "its weights must have the shape [4, 3], got [5, 3]"),
        ({"y": [np.zeros(11), np.zeros(3)]}, "its weights have 11 elements for 3 outputs"),
        ({"y": [np.zeros((3, 4)), np.zeros(4)]}, "its weights must have the shape [3], got [4] (blob 1"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit(weights, expected):
    with pytest.raises(InputError) as caught:
        drafted(with_input(dense("y", "x"), 2, 4), weights)
    assert expected in caught.value.render()


@pytest.mark.parametrize(
    ("is_external", "named"),
    [
        ([], "deploy.prototxt"),
        (["small.prototxt", "other.prototxt"], "{}/small.prototxt"),
        (["lenet.prototxt", "lenet_solver.prototxt", "lenet_train_test.prototxt"], "{}/lenet.prototxt"),
        (["a.prototxt", "b.prototxt"], "deploy.prototxt"),
    ],
)
def test_weights_without_input_sizes_ask_for_the_net(tmp_path, is_external, named):
    path = tmp_path / "small.caffemodel"
    path.write_bytes(encode(parse('input: "x" ' + dense("a", "x"), "NetParameter")))
    for name in is_external:
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="the shape of the input `x` is not in the file") as caught:
        read_caffemodel(path, ImportOptions())
    hint = str(caught.value.problems[0].hint)
    assert f"import {named.format(tmp_path)} --weights {path}`; or give the sizes" in hint


def test_weights_with_their_net(tmp_path):
    net = parse(with_input(dense("a/b", "x"), 2, 4), "NetParameter")
    net["name"] = "small"
    kernel, bias = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(3)
    net["layer"][1]["blobs"] = [array_blob(kernel), array_blob(bias)]
    path = tmp_path / "small.caffemodel"
    path.write_bytes(encode(net) + b"\xc2\x3e\x01a")
    assert format_of(path).name == "caffemodel"
    imported = read_caffemodel(path, ImportOptions())
    np.testing.assert_array_equal(imported.arrays["a/b/kernel"], kernel.T)
    assert imported.arrays["a/b/bias"].dtype == np.float32  # Caffe's doubles too
    net["layer"][1]["type"] = "Odd"
    (tmp_path / "odd.caffemodel").write_bytes(encode(net))
    with pytest.raises(InputError, match=r"odd.caffemodel: layer `a/b` \(Odd\) has a type"):
        read_caffemodel(tmp_path / "odd.caffemodel", ImportOptions())
    with pytest.raises(InputError, match="has weights itself"):
        read_caffemodel(path, ImportOptions(weights=path))
    with h5py.File(tmp_path / "small.h5", "w") as file:
        file["data/a/b/0"], file["data/a/b/1"] = kernel, bias.astype(np.float32)
        file.create_group("data/in")
    assert format_of(tmp_path / "small.h5").name == "caffemodel.h5"
    (tmp_path / "net.prototxt").write_text(with_input(dense("a/b", "x"), 2, 4))
    other = read_prototxt(tmp_path / "net.prototxt", ImportOptions(weights=tmp_path / "small.h5"))
    np.testing.assert_array_equal(other.arrays["a/b/kernel"], kernel.T)
    with pytest.raises(InputError, match="weights without their net"):
        read_caffemodel(tmp_path / "small.h5", ImportOptions())


def test_large_kernels_are_turned_piece_by_piece():
    stored = np.frombuffer(b"\0" + np.arange(200 * 130, dtype=np.float32).tobytes(), np.uint8)[1:].view(np.float32)
    kernel = stored.reshape(200, 130)  # stored at an odd address, like data in a file
    transposed = fitted(kernel.T, (130, 200))
    np.testing.assert_array_equal(transposed, kernel.T)
    assert transposed.flags.aligned
    assert transposed.flags.c_contiguous


def test_weights_of_old_versions(tmp_path):
    kernel, bias = np.arange(12, dtype=np.float32), np.array([1, 2, np.nan], np.float32)
    blobs = [
        Message("BlobProto", num=1, channels=1, height=3, width=4, data=kernel),
        Message("BlobProto", num=1, channels=1, height=1, width=3, data=bias),
    ]
    product = Message("InnerProductParameter", num_output=3)
    second = Message(
        "V1LayerParameter", name="y", type="INNER_PRODUCT", bottom=["x"], top=["y"], blobs=blobs,
        inner_product_param=product,
    )  # fmt: skip
    inner = Message("V0LayerParameter", name="y", type="innerproduct", num_output=3, blobs=blobs)
    first = Message("V1LayerParameter", layer=inner, bottom=["x"], top=["y"])
    text = 'layer { name: "y" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 3 }\n'
    text += "  blobs { num: 1 channels: 1 height: 3 width: 4 data: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] }\n"
    text += "  blobs { shape { dim: 3 } double_data: 1 double_data: 2 double_data: nan } }\n"
    (tmp_path / "net.prototxt").write_text(with_input(text, 2, 4))
    files = [tmp_path / "net.prototxt"]
    for number, layer in enumerate((first, second)):
        files.append(tmp_path / f"v{number}.caffemodel")
        net = Message("NetParameter", layers=[layer], input=["x"], input_dim=[2, 4, 1, 1])
        files[-1].write_bytes(encode(net))
    for path in files:
        imported = format_of(path).reads(path, ImportOptions())
        np.testing.assert_array_equal(imported.arrays["y/kernel"], kernel.reshape(3, 4).T)
        np.testing.assert_array_equal(imported.arrays["y/bias"], bias)
        assert imported.arrays["y/kernel"].flags.aligned
        assert imported.notes == ("the weights `y/bias` hold values that are not finite",)


def test_a_net_without_weights_is_imported(tmp_path):
    (tmp_path / "net.prototxt").write_text(with_input(dense("y", "x"), 2, 4))
    imported = read_prototxt(tmp_path / "net.prototxt", ImportOptions())
    assert not imported.arrays


# Hostile files of weights


def blob_file(tmp_path: Path, *blobs: Message) -> Path:
    net = Message("NetParameter", layer=[Message("LayerParameter", name="a", type="InnerProduct", blobs=list(blobs))])
    path = tmp_path / "bad.caffemodel"
    path.write_bytes(encode(net))
    return path


@pytest.mark.parametrize(
    ("dims", "count"), [([2**62, 4], 1), ([3], 2), ([-1, -1], 1), ([0], 1), ([1] * 40, 1), ([10**6] * 3, 0)]
)
def test_false_shapes_are_refused(tmp_path, dims, count):
    blob = Message("BlobProto", shape=Message("BlobShape", dim=dims), data=np.zeros(count, np.float32))
    with pytest.raises(InputError, match=r"blob 0 of the layer `a`: its shape is"):
        read_weights(blob_file(tmp_path, blob))
    path = tmp_path / "mean.binaryproto"
    path.write_bytes(encode(blob))
    with pytest.raises(InputError, match="is not a mean image"):
        read_mean(path)


def test_inconsistent_hdf5_is_rejected(tmp_path):
    def told(fill: Callable[[Any], object]) -> str:
        path = tmp_path / "bad.caffemodel.h5"
        with h5py.File(path, "w") as file:
            fill(file)
        with pytest.raises(InputError) as caught:
            read_weights(path)
        path.unlink()
        return caught.value.summary

    (tmp_path / "other.h5").write_bytes(b"")
    assert "holds no weights" in told(lambda file: file.create_group("other"))
    assert "is not stored as Caffe" in told(lambda file: file.create_dataset("data/a/0", (4,), "f4", chunks=(2,)))
    assert "is not stored as Caffe" in told(lambda file: file.create_dataset("data/a/0", data="text"))
    assert "declares 4000000000 bytes" in told(lambda file: file.create_dataset("data/a/0", (10**9,), "f4"))
    assert "are missing" in told(lambda file: file.create_dataset("data/a/1", data=np.zeros(2, "f4")))

    def link(file):
        file.create_group("data/a")["0"] = h5py.ExternalLink("other.h5", "x")

    assert "is a link, not stored here" in told(link)

    def loop(file):
        group = file.create_group("data/a")
        group["a"] = group

    assert "contains itself" in told(loop)


# Weights for existing nets


NET = """
netspec: 1
inputs: {x: {shape: [3, 2, 2]}}
layers:
  - {name: conv1, type: Conv2D, filters: 3, kernel_size: 1}
  - {name: conv1/bn, type: BatchNormalization, epsilon: 1e-5}
  - {name: slopes, type: PReLU, shared_axes: [2, 3]}
  - {name: flat, type: Flatten}
  - {name: fc, type: Dense, units: 12}
"""


@pytest.mark.parametrize("named", ["conv1/scale", "other"])
def test_weights_onto_a_net(tmp_path, named):
    rng = np.random.default_rng(2)
    weights = {
        "conv1": [image_of(rng, 3, 3, 1, 1), image_of(rng, 1, 1, 1, 3)],
        "conv1/bn": [image_of(rng, 3), rng.random(3).astype("f4"), np.array([2], "f4")],
        named: [image_of(rng, 3), image_of(rng, 3)],
        "slopes": [image_of(rng, 3)],
        "fc": [image_of(rng, 12, 12), image_of(rng, 12)],
        "unused": [image_of(rng, 1)],
    }
    layers = [
        Message("LayerParameter", name=name, type="X", blobs=[array_blob(array) for array in arrays])
        for name, arrays in weights.items()
    ]
    for layer, kind, bottom, top in ((layers[1], "BatchNorm", "a", "b"), (layers[2], "Scale", "b", "b")):
        layer["type"], layer["bottom"], layer["top"] = kind, [bottom], [top]
    path = tmp_path / "w.caffemodel"
    path.write_bytes(encode(Message("NetParameter", layer=layers)))
    (tmp_path / "net.yaml").write_text(NET)
    net = load(tmp_path / "net.yaml", path)
    np.testing.assert_array_equal(net.parameters["conv1/kernel"], weights["conv1"][0])
    np.testing.assert_array_equal(net.parameters["conv1/bias"], weights["conv1"][1].reshape(3))
    np.testing.assert_array_equal(net.parameters["conv1/bn/moving_mean"], weights["conv1/bn"][0] / 2)
    np.testing.assert_array_equal(net.parameters["conv1/bn/gamma"], weights[named][0])
    np.testing.assert_array_equal(net.parameters["slopes/alpha"], weights["slopes"][0].reshape(3, 1, 1))
    np.testing.assert_array_equal(net.parameters["fc/kernel"], weights["fc"][0].T)
    with h5py.File(tmp_path / "w.h5", "w") as file:
        for name, arrays in weights.items():
            for index, array in enumerate(arrays):
                file[f"data/{name}/{index}"] = array
    if named == "other":  # only the net shows that this Scale belongs to the BatchNorm
        with pytest.raises(InputError, match="`conv1/bn/gamma` is missing"):
            load(tmp_path / "net.yaml", tmp_path / "w.h5")
    else:
        reread = load(tmp_path / "net.yaml", tmp_path / "w.h5")
        assert all(np.array_equal(array, net.parameters[name]) for name, array in reread.parameters.items())


def test_weights_of_another_shape_are_reported(tmp_path):
    path = tmp_path / "w.caffemodel"
    blob = array_blob(np.zeros((4, 3, 1, 1), np.float32))
    path.write_bytes(encode(Message("NetParameter", layer=[Message("LayerParameter", name="conv1", blobs=[blob])])))
    (tmp_path / "net.yaml").write_text(NET)
    with pytest.raises(InputError, match="`conv1/kernel` has the wrong shape"):
        load(tmp_path / "net.yaml", path)


def test_a_parameter_becomes_the_weights_of_its_scale():
    rng = np.random.default_rng(3)
    text = with_input(
        'layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 3 } } }\n'
        'layer { name: "y" type: "Scale" bottom: "x" bottom: "p" top: "y" }', 2, 3, 4,
    )  # fmt: skip
    factors, x = image_of(rng, 3), image_of(rng, 2, 3, 4)
    net_draft = drafted(text, {"p": [factors]})
    assert lines(net_draft) == ["{name: y, type: Scale}"]
    np.testing.assert_allclose(answers(net_draft, x)[0], x * factors.reshape(1, 3, 1), rtol=1e-6)
    message = failure(text.replace("Scale", "Eltwise"))
    assert "its bottom is a Parameter layer" in message


def test_a_mean_image_is_refused_with_a_hint(tmp_path):
    path = tmp_path / "mean.binaryproto"
    path.write_bytes(encode(Message("BlobProto", num=1, channels=1, height=1, width=2, data=np.zeros(2, np.float32))))
    with pytest.raises(InputError, match="is a mean image, not a net") as caught:
        import_model(path)
    assert "type: MeanImage" in str(caught.value)


def test_two_layers_of_one_name_are_imported_without_weights():
    """Caffe runs such nets, and gives the first of the layers the weights of both."""
    relus = (
        'layer { name: "a" type: "ReLU" bottom: "x" top: "y" }\nlayer { name: "a" type: "TanH" bottom: "y" top: "z" }\n'
    )
    assert len(drafted(with_input(relus, 2, 4)).draft.layers) == 2
    same = dense("x1", "x") + dense("x1", "x1").replace('top: "x1"', 'top: "x2"')
    assert len(drafted(with_input(same, 2, 3)).draft.layers) == 2
    weights = {"x1": [np.ones((3, 3), np.float32), np.zeros(3, np.float32)]}
    assert "another layer is also called `x1`, but weights are assigned by layer name" in failure(
        with_input(same, 2, 3), weights=weights
    )
