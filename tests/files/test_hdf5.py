"""HDF5 files are read as h5py reads them, and a file that the library loops on or crashes on is refused."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.formats.caffe.blobs import read_weights as read_caffe
from netspec.exchange.formats.caffe.solver.states import read_state
from netspec.exchange.formats.native.hdf5 import read_weights, write_weights
from netspec.exchange.formats.native.hdf5_file import BLOCK_BYTES, HeaderBlock
from netspec.exchange.importing import import_model
from netspec.files import hdf5
from netspec.files.hdf5 import Hdf5File, StoredArray, has_signature
from netspec.files.helper_process import HelperProcess
from tests.data.conftest import split_of

VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "contiguous": (np.arange(12.0).reshape(3, 4), {}),
    "big-endian": (np.arange(6, dtype=">i4"), {}),
    "bool": (np.array([True, False, True]), {}),
    "half": (np.arange(5, dtype=np.float16), {}),
    "bytes": (np.array([b"ab", b"c"], "S3"), {}),
    "scalar": (np.float64(3.5), {}),
    "empty": (np.zeros((0, 3), np.float32), {}),
    "chunks": (np.arange(100).reshape(10, 10), {"chunks": (3, 10)}),
    "packed": (np.arange(1000), {"chunks": (7,), "compression": "gzip"}),
    "never written": (np.zeros(4, np.float32), {}),
}


def stored_in(file: Hdf5File, path: str) -> StoredArray:
    entry = file.find(path)
    assert entry is not None
    assert entry.array is not None
    return entry.array


@pytest.mark.parametrize("block", [0, 512])
@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("name", VALUES)
def test_values_equal_h5py(name: str, in_memory: bool, block: int, tmp_path: Path) -> None:
    path, (expected, options) = tmp_path / "a.h5", VALUES[name]
    with h5py.File(path, "w", userblock_size=block) as file:
        if name == "never written":
            file.create_dataset("g/x", expected.shape, expected.dtype)
        else:
            file.create_dataset("g/x", data=expected, **options)
    assert has_signature(path)
    opened = Hdf5File("a.h5", memoryview(path.read_bytes()) if in_memory else path, "numbers")
    stored = stored_in(opened, "g/x")
    actual = opened.values(stored)
    assert actual.dtype == expected.dtype
    assert np.array_equal(actual, expected)
    if expected.shape and len(expected):
        rows = [len(expected) - 1, 0, len(expected) - 1]
        assert np.array_equal(opened.values(stored, rows), expected[rows])


def test_links_and_loops_are_distinguished(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["g/x"] = np.arange(3)
        file["g/up"] = file["/"]
        file["soft"] = h5py.SoftLink("/g/x")
        file["external"] = h5py.ExternalLink("b.h5", "/x")
        file.attrs["names"] = ["a", "b"]
    opened = Hdf5File("a.h5", tmp_path / "a.h5", "numbers")
    kinds = {entry.path: entry.kind for entry in opened.walk(deepest=9)}
    assert kinds == {"external": "link", "g": "group", "g/up": "loop", "g/x": "dataset", "soft": "link"}
    assert [entry.path for entry in opened.walk()] == ["external", "g", "soft"]
    assert stored_in(opened, "soft").shape == (3,)
    assert opened.find("external") is None
    assert opened.find("g/none") is None
    assert opened.attribute("", "names") == ["a", "b"]
    with pytest.raises(InputError, match=r"a\.h5 is damaged"):
        opened.attribute("", "none")


def looping(data: bytes) -> bytes:
    """A file whose first group has a B-tree node that is its own neighbor."""
    at = data.index(b"TREE")
    base = data.index(hdf5.SIGNATURE)
    return data[: at + 16] + (at - base).to_bytes(8, "little") + data[at + 24 :]


def filled(path: Path, names: list[str], attributes: dict[str, Any] | None = None) -> bytes:
    with h5py.File(path, "w") as file:
        for name in names:
            file[name] = np.zeros(2, np.float32)
        file.attrs.update(attributes or {})
    return path.read_bytes()


def of_keras(path: Path) -> Any:
    path.write_bytes(looping(filled(path, ["model_weights/x"], {"model_config": "{}", "keras_version": "2.0.0"})))
    return import_model(path)


def of_keras_archive(path: Path) -> Any:
    data = looping(filled(path, ["layers/dense/vars/0"]))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", SEQUENTIAL)
        archive.writestr("metadata.json", '{"keras_version": "3.15.0"}')
        archive.writestr("model.weights.h5", data)
    return import_model(path)


def of_caffe(path: Path) -> Any:
    path.write_bytes(looping(filled(path, ["data/fc/0"])))
    return read_caffe(path)


def of_a_caffe_solver(path: Path) -> Any:
    path.write_bytes(looping(filled(path, ["iter", "history/0"])))
    return read_state(path)


def of_netspec(path: Path) -> Any:
    """The checksum is right, so only an attacker could write such a file."""
    write_weights(path, {"a/kernel": np.zeros(2, np.float32)})
    data = looping(path.read_bytes())
    block = HeaderBlock("weights", 1, len(data), hashlib.sha256(data[BLOCK_BYTES:]).hexdigest())
    path.write_bytes(block.render() + data[BLOCK_BYTES:])
    return read_weights(path)


def of_data(path: Path) -> Any:
    path.write_bytes(looping(filled(path, ["x", "y"])))
    return split_of(str(path.parent / "train.yaml"), source="hdf5", path=path.name).open()


SEQUENTIAL = """{"module": "keras", "class_name": "Sequential", "config": {"name": "s", "layers": [
 {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 2], "name": "in"}},
 {"module": "keras.layers", "class_name": "Dense", "config": {"name": "dense", "units": 1}}]}}"""

READERS: dict[str, Callable[[Path], Any]] = {
    "a.hdf5": of_keras, "a.keras": of_keras_archive, "a.caffemodel.h5": of_caffe, "a.solverstate.h5": of_a_caffe_solver,
    "weights.h5": of_netspec, "data.h5": of_data,
}  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timer of CPU time")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == "data.h5" else pytest.mark.exhaustive) for name in READERS],
)
def test_a_file_that_the_library_loops_on_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5, "SECONDS", 0.5)
    with pytest.raises(InputError, match=rf"{name}.* is damaged") as caught:
        READERS[name](tmp_path / name)
    assert "did not finish after 1 seconds of CPU time" in str(caught.value.problems[0].got)


def test_a_file_is_waited_for_once(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "SECONDS", 0.2)
    (tmp_path / "a.h5").write_bytes(looping(filled(tmp_path / "a.h5", ["x"])))
    with pytest.raises(InputError, match="is damaged"):
        Hdf5File("a.h5", tmp_path / "a.h5", "numbers").walk()
    monkeypatch.setattr(hdf5, "_running", lambda: pytest.fail("the library is asked again"))
    with pytest.raises(InputError, match="is damaged") as caught:
        Hdf5File("a.h5", tmp_path / "a.h5", "numbers")
    assert "did not finish" in str(caught.value.problems[0].got)


def test_the_next_file_is_not_affected_by_a_crash(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(10), chunks=(5,))
    first, other = (Hdf5File(name, tmp_path / "a.h5", "numbers") for name in ("one", "other"))
    stored = stored_in(first, "x")
    os.kill(hdf5._running().helper.process.pid, signal.SIGKILL)
    with pytest.raises(InputError, match="one is damaged") as caught:
        first.values(stored)
    assert caught.value.problems[0].got == "the HDF5 library crashed on it (SIGKILL)"
    assert other.values(stored).tolist() == list(range(10))
    assert first.values(stored).tolist() == list(range(10))


def test_an_interrupted_request_leaves_no_answer_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(10), chunks=(5,))
    opened = Hdf5File("a.h5", tmp_path / "a.h5", "numbers")
    stored = stored_in(opened, "x")

    def interrupted(*_: object) -> bytearray:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(HelperProcess, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened.attributes("")
    assert opened.values(stored).tolist() == list(range(10))


def test_files_written_by_this_process_are_read_without_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_weights(tmp_path / "w.h5", {"a/kernel": np.arange(3.0)})
    monkeypatch.setattr(hdf5, "_running", lambda: pytest.fail("another process is asked"))
    assert read_weights(tmp_path / "w.h5").arrays["a/kernel"].tolist() == [0, 1, 2]
