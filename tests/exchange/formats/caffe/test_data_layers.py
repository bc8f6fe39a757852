"""Caffe's data layers become splits of training files that netspec can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import netspec.data  # noqa: F401  # sources and transforms are found through it
from netspec.data.base import FieldType, SampleKeys, Transform
from netspec.errors import InputError
from netspec.exchange.formats.caffe.proto.text import parse
from netspec.exchange.formats.caffe.solver.context import Diagnostics, FileFinder
from netspec.exchange.formats.caffe.solver.data import SplitContext, split
from netspec.schema.specs.data import SOURCES, TRANSFORMS

INPUTS = {"data": {"shape": [3, 8, 8]}, "label": {"shape": [], "dtype": "int32"}}


def read(
    text: str, folder: Path, phase: str = "TRAIN", batches: int | None = None, inputs: Any = INPUTS
) -> tuple[dict[str, Any] | None, Diagnostics]:
    """Import the data layers in a text; the result must be a valid split of netspec."""
    net = parse(text, "NetParameter")
    remarks = Diagnostics()
    fields = split(net["layer"], SplitContext(phase, inputs, FileFinder(folder / "net.prototxt"), remarks), batches)
    if fields is not None and not remarks.problems:
        SOURCES.parse(fields)
    return fields, remarks


def data_layer(param: str, transform: str = "", kind: str = "Data", field: str = "data_param") -> str:
    return (
        f'layer {{ name: "d" type: "{kind}" top: "data" top: "label" {field} {{ {param} }} '
        f"transform_param {{ {transform} }} }}"
    )


LMDB = 'source: "examples/train_lmdb" batch_size: 64 backend: LMDB'


def test_a_missing_lmdb_keeps_its_name(tmp_path):
    fields, remarks = read(data_layer(LMDB), tmp_path)
    assert fields == {
        "source": "lmdb", "path": "examples/train_lmdb", "batch_size": 64, "order": "bgr", "inputs": {"data": "image"},
    }  # fmt: skip
    assert remarks.notes == ["examples/train_lmdb does not exist: set its path in train.yaml"]


@pytest.mark.parametrize("location", ["sub/examples/train_lmdb", "examples/train_lmdb", "sub/train_lmdb"])
def test_files_are_searched_next_to_above_and_by_their_end(tmp_path, location):
    (tmp_path / location).mkdir(parents=True)
    (tmp_path / "sub").mkdir(exist_ok=True)
    fields, remarks = read(data_layer(LMDB), tmp_path / "sub")
    assert fields is not None
    assert fields["path"] == str(tmp_path / location)
    assert remarks.notes == []


def test_a_missing_file_is_reported_with_the_paths_searched(tmp_path):
    with pytest.raises(InputError) as error:
        FileFinder(tmp_path / "solver.prototxt").need("examples/net.prototxt", "a net")
    (problem,) = error.value.problems
    assert problem.message == f"{tmp_path}/solver.prototxt names a net that does not exist: examples/net.prototxt"
    assert problem.expected is not None
    assert f"{tmp_path}/examples/net.prototxt" in problem.expected
    assert f"{tmp_path}/net.prototxt" in problem.expected


def test_leveldb_is_noted(tmp_path):
    fields, remarks = read(data_layer('source: "db" batch_size: 2'), tmp_path)  # the default of Caffe
    assert fields is not None
    assert fields["source"] == "lmdb"
    assert remarks.notes[1:] == ["db is a LevelDB, which is not read: convert it: `convert_imageset -backend lmdb …`"]


TRANSFORMED: dict[str, list[dict[str, Any]]] = {
    "scale: 0.00390625": [{"type": "Rescaling", "scale": 0.00390625}],
    "mean_value: 2 scale: 0.5": [{"type": "Rescaling", "scale": 0.5, "offset": -1.0}],
    "mean_value: 104 mean_value: 117 mean_value: 123": [
        {"type": "Normalization", "mean": [104.0, 117.0, 123.0], "variance": 1.0}
    ],
    "crop_size: 4 mirror: true mean_value: 1 mean_value: 2 mean_value: 3 scale: 2": [
        {"type": "RandomCrop", "height": 4, "width": 4},
        {"type": "RandomFlip", "mode": "horizontal"},
        {"type": "Normalization", "mean": [1.0, 2.0, 3.0], "variance": 1.0},
        {"type": "Rescaling", "scale": 2.0},
    ],
    'mean_file: "mean.binaryproto" crop_size: 4': [
        {"type": "MeanImage", "file": "mean.binaryproto"},
        {"type": "RandomCrop", "height": 4, "width": 4},
    ],
}


@pytest.mark.parametrize("text", TRANSFORMED)
def test_transforms(tmp_path, text):
    fields, _ = read(data_layer(LMDB, text), tmp_path)
    assert fields is not None
    assert fields["transforms"] == TRANSFORMED[text]


def test_tests_crop_the_center(tmp_path):
    fields, _ = read(data_layer(LMDB, "crop_size: 4"), tmp_path, "TEST", batches=100)
    assert fields is not None
    assert fields["transforms"] == [{"type": "CenterCrop", "height": 4, "width": 4}]
    assert fields["limit"] == 6400


def test_transforms_equal_caffe(tmp_path):
    """DataTransformer crops the center and computes (x − mean) · scale; the crop starts at (size − crop) / 2."""
    images = np.random.default_rng(3).integers(0, 256, (5, 3, 9, 8)).astype(np.uint8)
    fields, _ = read(
        data_layer(LMDB, "crop_size: 4 mean_value: 10 mean_value: 20 mean_value: 30 scale: 0.5"), tmp_path, "TEST"
    )
    assert fields is not None
    field, batch = FieldType((3, 9, 8), "uint8"), cast("Any", images)
    for transform in fields["transforms"]:
        spec = TRANSFORMS.parse(transform)
        assert isinstance(spec, Transform)
        field, batch = spec.infer(field), spec.apply(batch, SampleKeys(1, 0, np.arange(5), 0))
    expected = (images[:, :, 2:6, 2:6] - np.array([10.0, 20, 30]).reshape(3, 1, 1)) * 0.5
    np.testing.assert_allclose(batch, expected, atol=1e-4)  # 24 bits, values up to 255


def test_a_duplicate_mean_is_rejected(tmp_path):
    _, remarks = read(data_layer(LMDB, 'mean_file: "m.binaryproto" mean_value: 1'), tmp_path)
    assert [problem.message for problem in remarks.problems] == ["a mean is given twice"]


def test_images_by_a_list(tmp_path):
    (tmp_path / "train.txt").write_text("a.png 0\n")
    text = 'source: "data/train.txt" root_folder: "data/images/" batch_size: 5 new_height: 6 new_width: 7 shuffle: true'
    fields, remarks = read(data_layer(text, kind="ImageData", field="image_data_param"), tmp_path)
    assert fields == {
        "source": "image_folder", "path": "data/images/", "list": str(tmp_path / "train.txt"), "batch_size": 5,
        "size": [6, 7], "shuffle": True, "inputs": {"data": "image"}, "transforms": [{"type": "ReverseChannels"}],
    }  # fmt: skip
    assert remarks.notes == ["data/images/ does not exist: set its path in train.yaml"]
    gray, remarks = read(
        data_layer('source: "train.txt" is_color: false', kind="ImageData", field="image_data_param"), tmp_path
    )
    assert gray == {
        "source": "image_folder", "path": str(tmp_path), "list": str(tmp_path / "train.txt"), "batch_size": 1,
        "channels": 1, "inputs": {"data": "image"},
    }  # fmt: skip
    assert len(remarks.notes) == 1


def test_arrays_of_hdf5(tmp_path):
    text = data_layer('source: "train.txt" batch_size: 10 shuffle: true', kind="HDF5Data", field="hdf5_data_param")
    fields, _ = read(text, tmp_path)
    assert fields == {
        "source": "hdf5", "path": "train.txt", "arrays": ["data", "label"], "batch_size": 10, "shuffle": True,
        "dtypes": {"label": "int32"}, "shapes": {"label": []},
    }  # fmt: skip


TWO = """
    layer { name: "a" type: "Data" top: "data" data_param { batch_size: 2 } }
    layer { name: "b" type: "Data" top: "label" data_param { batch_size: 2 } }
"""


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (data_layer("batch_size: 3 channels: 3 height: 8 width: 8", kind="MemoryData", field="memory_data_param"), 3),
        (data_layer("shape { dim: 7 dim: 3 dim: 8 dim: 8 }", kind="DummyData", field="dummy_data_param"), 7),
        (data_layer("num: 6", kind="DummyData", field="dummy_data_param"), 6),
        (data_layer("shape { dim: 9 dim: 3 }", kind="Input", field="input_param"), 9),
        (data_layer("batch_size: 4", kind="WindowData", field="window_data_param"), 4),
        (TWO, 2),
    ],
)  # fmt: skip
def test_data_without_a_source_comes_from_a_program(tmp_path, text, size):
    fields, remarks = read(text, tmp_path)
    assert fields == {"source": "python", "fields": ["data", "label"], "batch_size": size}
    (note,) = remarks.notes
    assert "give data, label to the training" in note


def test_a_data_layer_without_readers_is_not_a_split(tmp_path):
    assert read(data_layer(LMDB), tmp_path, inputs={"other": {"shape": []}}) == (None, Diagnostics())


def test_a_source_without_a_name_and_one_that_no_file_can_have(tmp_path):
    _, remarks = read(data_layer("batch_size: 2 backend: LMDB"), tmp_path)
    assert [problem.message for problem in remarks.problems] == ["the path of the data is missing"]
    fields, _ = read(data_layer(f'source: "{"x" * 5000}" batch_size: 2 backend: LMDB'), tmp_path)
    assert fields is not None
    assert fields["path"] == "x" * 5000


def test_a_missing_batch_size_is_reported(tmp_path):
    _, remarks = read(data_layer('source: "db" backend: LMDB'), tmp_path)
    assert [problem.message for problem in remarks.problems] == ["no samples in a batch"]
