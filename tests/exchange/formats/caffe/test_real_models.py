"""Real Caffe models, in the folder NETSPEC_MODELS: all are read, and give Caffe's results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.compile.build import build
from netspec.data.readers.idx import read_idx
from netspec.errors import InputError
from netspec.exchange.formats.caffe.blobs import read_mean
from netspec.exchange.formats.caffe.proto.binary import decode, encode
from netspec.exchange.formats.caffe.proto.text import read_text, to_text
from netspec.exchange.formats.caffe.reading import draft_net, read_caffemodel, read_prototxt
from netspec.exchange.formats.caffe.writing.files import write_caffe
from netspec.exchange.formats.registry import format_of
from netspec.exchange.interface import Imported, ImportOptions
from netspec.schema.bundled import zoo_root
from netspec.schema.load import load_net
from netspec.schema.yaml.reader import parse_yaml
from netspec.training.inference.model import Model, load
from tests.exchange.formats.caffe.catalogue import exportable
from tests.exchange.nets import Net
from tests.exchange.samples import inputs_of

PLACE = os.environ.get("NETSPEC_MODELS")
ROOT = Path(PLACE or "") / "caffe"
SETS = os.environ.get("NETSPEC_DATASETS")
FILES = sorted(ROOT.rglob("*.prototxt")) if PLACE else []
NETS = [path for path in FILES if "solver" not in path.name]
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "mnist_siamese_train_test": {"pair_data": (2, 28, 28)},
    "lenet_train_test": {"data": (1, 28, 28)},
    "mnist_autoencoder": {"data": (1, 28, 28)},
}
"""Shapes of the inputs of nets without their data, which are given nowhere else."""
needs_models = pytest.mark.skipif(PLACE is None, reason="NETSPEC_MODELS names no folder of models")


def options(path: Path, **more: Any) -> ImportOptions:
    shapes = SHAPES.get(path.stem, {})
    if "cifar" in path.name or path.parent.name == "hdf5_classification":
        shapes = {"data": (3, 32, 32) if "cifar" in path.name else (4,)}
    return ImportOptions(shapes=shapes, **more)


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


@needs_models
def test_all_models_are_present():
    assert sum("bvlc" in path.parts for path in FILES) == 54
    assert len(NETS) == 35


@pytest.mark.parametrize("path", FILES, ids=short)
def test_every_text_is_read_and_written_back(path):
    kind = "NetParameter" if path in NETS else "SolverParameter"
    message = read_text(path, kind, "a text of Caffe's")
    assert not message.unknown
    assert repr(decode(encode(message), kind)) == repr(decode(encode(decode(encode(message), kind)), kind))
    lines = sorted(to_text(decode(encode(message), kind)).splitlines())
    assert lines == sorted(to_text(message).splitlines())


@pytest.mark.parametrize("path", NETS, ids=short)
def test_every_net_of_standard_layers_compiles(path):
    if path.name == "linreg.prototxt":  # its loss is computed by a Python layer
        with pytest.raises(InputError, match=r"layer `loss` \(Python\): it runs code from another file"):
            read_prototxt(path, options(path))
        return
    assert format_of(path).name == "caffe"
    imported = read_prototxt(path, options(path))
    spec = load_net(parse_yaml(imported.net, "net.yaml"))
    for training in (True, False):
        build(spec, 2, training=training)


def model(imported: Imported, folder: Path) -> Model:
    (folder / "net.yaml").write_text(imported.net)
    loaded = load(folder / "net.yaml")
    assert set(imported.arrays) == {*loaded.parameters}
    for name, array in imported.arrays.items():
        loaded.parameters[name] = array
    return loaded


@needs_models
@pytest.mark.parametrize("single_sample", [False, True])
def test_lenet_reads_mnist(tmp_path, single_sample):
    weights = ROOT / "lenet/lenet_iter_10000.caffemodel"
    if single_sample:  # the net in the weights file, as it was trained
        imported = read_caffemodel(weights, ImportOptions(shapes={"data": (1, 28, 28)}))
        assert "losses:" in imported.net
    else:
        imported = read_prototxt(ROOT / "lenet/lenet.prototxt", ImportOptions(weights=weights))
    images, labels = mnist_test()
    (scores,) = model(imported, tmp_path).predict({"data": images / np.float32(256)}).values()
    assert int((scores.argmax(1) == labels).sum()) == 9906


def mnist_test() -> tuple[Any, Any]:
    files = (next((zoo_root() / "data/mnist").glob(f"t10k-{name}*")) for name in ("images", "labels"))
    images, labels = (read_idx(path)[0] for path in files)
    return images.reshape(-1, 1, 28, 28), labels


@needs_models
@pytest.mark.parametrize("name", ["det1", "det2"])
def test_detectors_answer_like_other_programs(name, tmp_path):
    reference = np.load(ROOT / f"mtcnn/{name}.reference_cv2.npz")
    import_options = ImportOptions(
        shapes={"data": reference["in_0"].shape[1:]}, weights=ROOT / f"mtcnn/{name}.caffemodel"
    )
    answers = model(read_prototxt(ROOT / f"mtcnn/{name}.prototxt", import_options), tmp_path).predict(
        {"data": reference["in_0"]}
    )
    assert list(answers) == reference["out_names"].tolist()
    for index, answer in enumerate(answers.values()):
        np.testing.assert_allclose(answer, reference[f"out_{index}"], rtol=1e-3, atol=1e-4)


@needs_models
@pytest.mark.skipif(SETS is None, reason="NETSPEC_DATASETS names no folder with cifar10")
def test_cifar10_quick_from_hdf5(tmp_path):
    folder = ROOT / "cifar10_quick"
    import_options = ImportOptions(weights=folder / "cifar10_quick_iter_5000.caffemodel.h5")
    assert format_of(folder / "cifar10_quick_iter_5000.caffemodel.h5").name == "caffemodel.h5"
    net = model(read_prototxt(folder / "cifar10_quick.prototxt", import_options), tmp_path)
    rows = np.frombuffer((Path(SETS or "") / "cifar10/test_batch.bin").read_bytes(), np.uint8).reshape(-1, 3073)
    images = rows[:, 1:].reshape(-1, 3, 32, 32) - read_mean(folder / "mean.binaryproto")
    (scores,) = net.predict({"data": images}).values()
    assert int((scores.argmax(1) == rows[:, 0]).sum()) == 7583


@needs_models
def test_a_net_in_its_weights_equals_the_prototxt():
    path = ROOT / "mtcnn/det2.caffemodel"
    assert format_of(path).name == "caffemodel"
    assert format_of(ROOT / "lenet/lenet_iter_10000.caffemodel").name == "caffemodel"
    text = read_text(ROOT / "lenet/lenet_train_test.prototxt", "NetParameter", "a net")
    import_options = ImportOptions(shapes={"data": (1, 28, 28)})
    inside = read_caffemodel(ROOT / "lenet/lenet_iter_10000.caffemodel", import_options)
    train = draft_net(text, ImportOptions(shapes={"data": (1, 28, 28)}, phase="train")).draft.text()
    assert inside.net.splitlines()[1:] == train.splitlines()[1:]


@needs_models
@pytest.mark.parametrize("name", ["mtcnn/det1", "mtcnn/det2", "lenet/lenet", "cifar10_quick/cifar10_quick"])
def test_real_nets_round_trip(tmp_path, name):
    """The results are bit-identical: same layers with the same weights."""
    path = ROOT / f"{name}.prototxt"
    (weights,) = [file for file in path.parent.glob(f"{path.stem}*.caffemodel*") if "reference" not in file.name]
    imported = read_prototxt(path, ImportOptions(weights=weights))
    (tmp_path / "net.yaml").write_text(imported.net)
    before = Net(load_net(tmp_path / "net.yaml"), imported.arrays)
    write_caffe(tmp_path / "m.caffemodel", exportable(before))
    reread = read_prototxt(tmp_path / "m.prototxt", ImportOptions(weights=tmp_path / "m.caffemodel"))
    (tmp_path / "again.yaml").write_text(reread.net)
    after = Net(load_net(tmp_path / "again.yaml"), reread.arrays)
    inputs = inputs_of(before, size=1)
    expected, actual = before.predict(inputs), after.predict(inputs)
    assert expected.keys() == actual.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(actual[key], array)
