"""Formats are recognized by content when read, and by suffix when written."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis.strategies import binary, characters, integers, permutations, sampled_from, text

from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import write_weights
from netspec.exchange.formats.pytorch.optimizers import is_training
from netspec.exchange.formats.pytorch.pickles import LEGACY
from netspec.exchange.formats.registry import FORMATS, format_of, format_to_write, load_function
from netspec.exchange.importing import import_model, import_weights
from netspec.exchange.interface import Target
from netspec.schema.load import load_net
from netspec.tools.exporting.export import write_model
from netspec.training.inference.model import load
from tests.exchange.formats.keras.recorded import FILES


def test_every_function_of_every_format_exists() -> None:
    for format_ in FORMATS:
        names = (format_.read, format_.weights, format_.write, format_.refuse, format_.preflight, format_.parts)
        assert all(callable(load_function(name)) for name in names if name)


def test_content_decides(tmp_path: Path) -> None:
    path = tmp_path / "weights.onnx"
    write_weights(path, {"a/kernel": np.zeros(2, "float32")})
    assert format_of(path).name == "netspec"


def test_a_file_of_unknown_format_is_reported_with_the_known_formats(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(InputError, match="unrecognized file format") as caught:
        format_of(path)
    (problem,) = caught.value.problems
    assert "an ONNX model (.onnx)" in str(problem.expected)
    assert problem.got == "a text file"


def test_a_file_name_without_a_known_format_is_rejected() -> None:
    with pytest.raises(InputError, match="its name says no format"):
        format_to_write("model.xyz")


def test_weights_without_a_net_are_loaded_into_a_net(tmp_path: Path) -> None:
    path = tmp_path / "weights.h5"
    write_weights(path, {"a/kernel": np.ones(2, "float32")})
    layers = [{"name": "a", "type": "Dense", "units": 1}]
    net = load_net({"netspec": 1, "inputs": {"x": {"shape": [2]}}, "layers": layers})
    results = import_weights(path, Target(net, {}))
    np.testing.assert_array_equal(results["a/kernel"], np.ones(2))


def recognized(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return format_of(path).name


def varint(number: int) -> bytes:
    """An integer in the encoding of protocol buffers."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*digits, number))


def field(number: int, value: int | bytes | str) -> bytes:
    """A field of a message: an integer, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


SUFFIXES = sorted({suffix for format in FORMATS for suffix in format.suffixes} | {"", ".bin", ".txt", ".pb", ".yaml"})
suffixes = sampled_from(SUFFIXES)


@given(blocks=integers(0, 400), metadata=text(max_size=20), suffix=suffixes)
@example(blocks=33, metadata="", suffix="")
def test_safetensors_are_recognized_whatever_the_length_of_their_header(blocks, metadata, suffix) -> None:
    """One file in 32 begins with the same byte as ONNX models: header lengths are multiples of 8."""
    header = json.dumps(
        {"__metadata__": {"note": metadata}, "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    )
    padded = header.encode().ljust(8 * blocks)
    padded += b" " * (-len(padded) % 8)
    with TemporaryDirectory() as folder:
        content = len(padded).to_bytes(8, "little") + padded + bytes(4)
        assert recognized(Path(folder) / f"model{suffix}", content) == "safetensors"


PRINTABLE = text(characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=70)


@given(
    version=integers(1, 30),
    producer=PRINTABLE,
    release=PRINTABLE,
    note=PRINTABLE,
    order=permutations(range(5)),
    suffix=suffixes,
)
def test_onnx_models_of_any_producer_are_recognized(version, producer, release, note, order, suffix) -> None:
    node = field(1, "x") + field(2, "y") + field(4, "Relu")
    graph = field(1, node) + field(2, note) + field(11, field(1, "x")) + field(12, field(1, "y"))
    fields = [field(1, version), field(2, producer), field(3, release), field(7, graph), field(8, field(2, 17))]
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"model{suffix}"
        assert recognized(path, b"".join(fields)) == "onnx"
        assert recognized(path, b"".join(fields[index] for index in order)) == "onnx"
        assert recognized(path, b"".join(fields)[: len(b"".join(fields[:3])) + 8]) == "onnx"  # cut short in its graph


@given(data=binary(max_size=600), suffix=suffixes)
def test_no_beginning_of_a_file_is_more_than_a_recognizer_can_take(data, suffix) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"file{suffix}"
        path.write_bytes(data)
        with suppress(InputError):
            format_of(path)


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> list[tuple[str, bytes]]:
    """Write a file of every format, and return each with the name of its format."""
    folder = tmp_path_factory.mktemp("samples")
    layers = [{"name": "a", "type": "Dense", "units": 2}, {"name": "b", "type": "Softmax"}]
    model = load({"netspec": 1, "name": "net", "inputs": {"x": {"shape": [2]}}, "layers": layers}, device="reference")
    results = []
    for format in FORMATS:
        if format.write:
            path = folder / format.name / f"model{max(format.suffixes, key=len)}"
            path.parent.mkdir()
            written = write_model(model, model.spec, path, model.preprocessing).files
            results += [(format_of(file).name, file.read_bytes()) for file in written]
    return results


def test_samples_of_every_format_are_there(samples) -> None:
    written = {format.name for format in FORMATS if format.write} - {"keras_weights"}  # Keras models are read like this
    assert {name for name, _ in samples} == written
    assert [name for name, _ in samples].count("keras") == 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_is_recognized_whatever_its_name(samples, tmp_path: Path, suffix: str) -> None:
    for name, data in samples:
        assert recognized(tmp_path / f"model{suffix}", data) == name


def others() -> dict[str, bytes]:
    """Files of other programs that begin like those of a supported format."""
    meta = field(1, field(1, "op")) + field(2, b"\x0a\x02\x01\x02")
    return {
        "TensorFlow's SavedModel": field(1, 1) + field(2, meta),
        "TensorFlow's GraphDef": field(1, field(1, "x") + field(2, "Add")) * 2 + field(4, field(1, 27)),
        "Core ML": field(1, 4) + field(2, field(1, field(1, "image"))) + field(500, field(1, b"\x0a\x00")),
        "an ONNX tensor of floats": field(1, 2) + field(2, 1) + field(4, bytes(8)),
        "an ONNX tensor of bytes": field(1, 1) + field(1, 2) + field(2, 1) + field(8, "input_0") + field(9, bytes(8)),
        "YAML": b"name: lenet\nlayers: []\n",
        "a training file": b"net: lenet.yaml\ntrain:\n",
        "a text about netspec": b"netspec is a compiler\n",
        "a text": b": a remark\n",
        "a long text": b"\n" + b"remarks " * 100,
    }


@pytest.mark.parametrize("kind", others())
@pytest.mark.parametrize("suffix", ["", ".dat"])
def test_files_of_other_programs_are_of_no_format(tmp_path: Path, kind: str, suffix: str) -> None:
    with pytest.raises(InputError, match="unrecognized file format"):
        recognized(tmp_path / f"file{suffix}", others()[kind])


def test_hdf5_of_other_programs_is_of_no_format(tmp_path: Path) -> None:
    import h5py

    for number, names in enumerate((("data/images", "data/labels"), ("data/conv/kernel",), ("data/a/0", "other"))):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            for name in names:
                file[name] = np.zeros(2)
        with pytest.raises(InputError, match="unrecognized file format") as caught:
            format_of(tmp_path / f"{number}.h5")
        assert caught.value.problems[0].got == "an HDF5 file of another program"


@pytest.mark.parametrize("head", [b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"])
@pytest.mark.parametrize("suffix", [".h5", ".onnx", ".safetensors", ""])
def test_damage_is_reported_for_the_container_and_not_for_the_name(tmp_path: Path, head: bytes, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(head + bytes(100))
    with pytest.raises(InputError) as caught:
        import_model(path)
    (problem,) = caught.value.problems
    assert problem.expected == "a model, or weights"
    assert "damaged" in problem.message or "damaged" in str(problem.got)


def test_a_damaged_beginning_leaves_the_name_to_decide(tmp_path: Path) -> None:
    assert recognized(tmp_path / "model.onnx", b"\xff" * 20) == "onnx"
    assert recognized(tmp_path / "model.safetensors", b"\xff" * 20) == "safetensors"
    assert recognized(tmp_path / "net.prototxt", b"nam: 'x'") == "caffe"
    for name, data in (("model.onnx", b"hello"), ("model.prototxt", b"\xff\xfe\xfd\xfc"), ("a.onnx", b"<html>")):
        with pytest.raises(InputError, match="unrecognized file format"):
            recognized(tmp_path / name, data)


STATE = {
    "a zip archive": {"archive/data.pkl": b"\x80\x02}.", "archive/version": b"3\n"},
    "TorchScript": {"net/data.pkl": b"\x80\x02}.", "net/constants.pkl": b"\x80\x02).", "net/code/net.py": b""},
}


@pytest.mark.parametrize("kind", [*STATE, "a pickle"])
@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".onnx"])
def test_errors_for_pytorch_files_show_how_to_save_weights(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    if kind in STATE:
        with ZipFile(path, "w") as archive:
            for name, data in STATE[kind].items():
                archive.writestr(name, data)
    else:
        path.write_bytes(LEGACY + b"\x80\x02M\xe9\x03.")
    assert format_of(path).name == "pytorch"
    for read in (import_model, partial(import_weights, target=Target(None, {}))):  # type: ignore[arg-type]  # the net is not looked at
        with pytest.raises(InputError) as caught:
            read(path)
        (problem,) = caught.value.problems
        assert problem.message.endswith("a pickle, which runs code when it is read")
        _, *lines, last = str(problem.hint).split("\n")
        assert len(lines) == 3
        for line in lines:
            compile(line, "pasted", "exec")
        assert ("torch.jit.load" in lines[1]) == (kind == "TorchScript")
        assert f"netspec import {tmp_path}/model.safetensors --net net.yaml" in last


def test_the_code_for_pytorch_files_finds_the_state_dict_of_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(LEGACY)
    with pytest.raises(InputError) as caught:
        import_model(path)
    load = str(caught.value.problems[0].hint).split("\n")[2]
    weights = {"fc.bias": 1}
    for saved in (weights, {"epoch": 3, "state_dict": weights}, {"epoch": 3, "model_state_dict": weights}):
        names: dict[str, Any] = {"torch": SimpleNamespace(load=lambda *_, saved=saved, **__: saved)}
        exec(load, names)
        assert names["state"] == weights


def test_a_training_is_not_resumed_from_a_pytorch_pickle(tmp_path: Path) -> None:
    path = tmp_path / "training.pt"
    path.write_bytes(LEGACY + b"\x80\x02M\xe9\x03.")
    with pytest.raises(InputError) as caught:
        is_training(path)
    (problem,) = caught.value.problems
    assert problem.message.endswith("a pickle, which runs code when it is read")
    assert "Resume a PyTorch training" in str(problem.hint)


def expected_of(path: Path) -> str:
    """The format of a real model by its name: files of this collection have the right names."""
    kinds = {".onnx": "onnx", ".keras": "keras", ".hdf5": "keras", ".caffemodel": "caffemodel", ".npz": "npz",
             ".binaryproto": "binaryproto"}  # fmt: skip
    for ending in ("caffemodel.h5", "solverstate.h5"):
        if path.name.endswith(ending):
            return ending.replace("solverstate.h5", "solverstate")
    if path.suffix == ".prototxt":
        return "caffe_solver" if "solver" in path.stem else "caffe"
    return kinds.get(path.suffix, "keras")


REAL = [
    path
    for root in (FILES, Path(os.environ["NETSPEC_MODELS"]) if "NETSPEC_MODELS" in os.environ else None)
    for path in sorted(root.rglob("*") if root is not None else ())
    if path.suffix in (".onnx", ".h5", ".keras", ".hdf5", ".caffemodel", ".npz", ".binaryproto", ".prototxt")
]


def test_real_files_are_recognized_whatever_their_names(tmp_path: Path) -> None:
    assert REAL
    for path in REAL:
        assert format_of(path).name == expected_of(path), path
        for suffix in (".onnx", ".h5", ".safetensors", ".binaryproto"):
            (link := tmp_path / f"model{suffix}").symlink_to(path)
            assert format_of(link).name == expected_of(path), (path, suffix)
            link.unlink()
