"""netspec's own files: round trips, reproducible bytes, and detection of all damage."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights, write_checkpoint, write_weights
from netspec.exchange.formats.native.hdf5_file import BLOCK_BYTES, DTYPES, HeaderBlock, dataset_path
from netspec.exchange.formats.native.hdf5_nets import import_hdf5
from netspec.exchange.importing import import_model

ARRAYS = {
    "conv1/kernel": np.arange(24, dtype="float32").reshape(2, 3, 2, 2),
    "conv1/bias": np.array([0.5, -1.0], "float32"),
    "bn/moving_mean": np.array([math.nan, math.inf, -0.0], "float64"),
}
ROLES = {"conv1/kernel": "parameter", "conv1/bias": "slot", "bn/moving_mean": "statistic"}
PROGRESS = {"step": 7, "epoch": 0.25, "best": {"loss": math.inf}, "seed": 2**63 - 1}


def same(first: np.ndarray, second: np.ndarray) -> bool:
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


def text(error: pytest.ExceptionInfo[Any]) -> str:
    return str(error.value.render())


names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
layer_names = st.from_regex(r"[a-c_.]{1,2}(/[a-c.]{0,2}){0,3}", fullmatch=True)
numbers = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)


@given(st.dictionaries(names | layer_names, numbers, max_size=5), st.text(max_size=20), st.text(max_size=20))
def test_weights_round_trip(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, np.ndarray], net: str, name: str
) -> None:
    path = tmp_path_factory.mktemp("w") / "w.h5"
    write_weights(path, arrays, net=net, name=name, accuracy=0.5)
    weights = read_weights(path)
    assert (weights.net, weights.name, weights.meta, weights.kind) == (net, name, {"accuracy": 0.5}, "weights")
    assert list(weights.arrays) == list(arrays)
    assert all(same(weights.arrays[key], array) for key, array in arrays.items())


@given(st.lists(names | layer_names, unique=True, max_size=8))
def test_every_name_has_a_separate_path(given_names: list[str]) -> None:
    """No two names share a dataset, and none lies inside another."""
    paths = [dataset_path(name, given_names) for name in given_names]
    assert len(set(paths)) == len(paths)
    assert not any(other.startswith(f"{path}/") for path in paths for other in paths)
    assert all(part not in ("", ".") for path in paths for part in path.split("/"))


def test_arrays_in_another_order_of_memory(tmp_path: Path) -> None:
    arrays = {"turned": np.arange(6.0).reshape(2, 3).T, "big": np.array([1, 2], ">i4"), "part": np.arange(9)[::2]}
    write_weights(tmp_path / "w.h5", arrays)
    arrays_read = read_weights(tmp_path / "w.h5").arrays
    for name, array in arrays.items():
        np.testing.assert_array_equal(arrays_read[name], array)


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.h5", "b.h5"):
        write_checkpoint(tmp_path / name, ARRAYS, ROLES, PROGRESS, "net: net.yaml")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_a_file_describes_itself_to_people_and_to_other_programs(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c.h5", ARRAYS, ROLES, PROGRESS, "")
    lines = (tmp_path / "c.h5").read_bytes()[:BLOCK_BYTES].decode().splitlines()
    assert lines[0] == "netspec checkpoint 1"
    assert lines[1] == f"size {(tmp_path / 'c.h5').stat().st_size}"
    assert lines[3] == "step 7"
    with h5py.File(tmp_path / "c.h5") as file:
        assert file.attrs["netspec"] == "checkpoint"
        np.testing.assert_array_equal(file["arrays/conv1/kernel"][...], ARRAYS["conv1/kernel"])


def test_a_checkpoint_round_trips_and_serves_as_weights(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c.h5", ARRAYS, ROLES, PROGRESS, "net: net.yaml")
    checkpoint = read_checkpoint(tmp_path / "c.h5")
    assert (checkpoint.progress, checkpoint.roles, checkpoint.spec) == (PROGRESS, ROLES, "net: net.yaml")
    assert list(checkpoint.learned()) == ["conv1/kernel", "bn/moving_mean"]
    weights = read_weights(tmp_path / "c.h5")
    assert weights.kind == "checkpoint"
    assert all(same(weights.arrays[name], ARRAYS[name]) for name in ("conv1/kernel", "bn/moving_mean"))
    assert "conv1/bias" not in weights.arrays  # it belongs to the solver


def test_weights_are_not_a_checkpoint(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.h5", ARRAYS)
    with pytest.raises(InputError, match="is a weights file, not a checkpoint") as error:
        read_checkpoint(tmp_path / "w.h5")
    assert "--weights" in text(error)


def test_a_weights_file_with_its_net_is_imported(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.h5", ARRAYS, net="netspec: 1\n")
    assert import_model(tmp_path / "w.h5").net == "netspec: 1\n"
    write_weights(tmp_path / "w.h5", ARRAYS)
    with pytest.raises(InputError, match="without the net"):
        import_hdf5(tmp_path / "w.h5")


def test_values_that_no_file_can_store_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="complex128 are not held"):
        write_weights(tmp_path / "w.h5", {"a": np.zeros(2, complex)})
    with pytest.raises(ValueError, match="roles differ"):
        write_checkpoint(tmp_path / "w.h5", ARRAYS, {}, {}, "")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def good(tmp_path: Path) -> bytes:
    write_checkpoint(
        tmp_path / "good.h5", {"a/kernel": ARRAYS["conv1/bias"]}, {"a/kernel": "parameter"}, {"step": 3}, ""
    )
    return (tmp_path / "good.h5").read_bytes()


def test_any_flipped_byte_is_seen(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "damaged.h5"
    offsets = [*range(BLOCK_BYTES), *range(BLOCK_BYTES, len(good), 97)]
    for offset in offsets:
        path.write_bytes(good[:offset] + bytes([good[offset] ^ (1 << offset % 8)]) + good[offset + 1 :])
        with pytest.raises(InputError) as error:
            read_weights(path)
        assert str(path) in text(error)


def test_any_other_length_is_seen(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "short.h5"
    for length in [0, 1, 7, 8, 100, 511, 512, 513, *range(600, len(good), 450), len(good) - 1]:
        path.write_bytes(good[:length])
        with pytest.raises(InputError) as error:
            read_checkpoint(path)
        assert str(path) in text(error)
    path.write_bytes(good + b"\0")
    with pytest.raises(InputError, match="longer than it was written"):
        read_checkpoint(path)


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.zeros(2))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "git lfs pull"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 900, "an HDF5 file of another program"),
        (npz(), "a zip archive"),
        (b'\x08\x08:\x11\n\x0c\n\x01x\x12\x01y"\x04Relu\x12\x01gB\x04\n\x00\x10\x12', "netspec import"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b"<html><body>404", "a web page"),
        (b"just text", "a text file"),
        (HeaderBlock("weights", 2, 512, "0" * 64).render(), "upgrade netspec"),
        (HeaderBlock("recipe", 1, 512, "0" * 64).render(), "of an unknown kind"),
        (b"netspec weights 1\nsize 5", "damaged in its first lines"),
    ],
)
def test_other_file_formats_are_distinguished(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "w.h5").write_bytes(content)
    with pytest.raises(InputError) as error:
        read_weights(tmp_path / "w.h5")
    assert message in text(error)


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    write_weights(tmp_path / "weights.h5", ARRAYS)
    with pytest.raises(InputError, match="does not exist") as error:
        read_weights(tmp_path / "wieghts.h5")
    assert "weights.h5`?" in text(error)
    with pytest.raises(InputError, match="is a folder"):
        read_weights(tmp_path)


def sealed(path: Path, make: Callable[[h5py.File, dict[str, Any]], None]) -> Path:
    """Write a file with the right checksum, in which `make` has changed the content."""
    array = np.arange(4, dtype="float32")
    entry = {"name": "a", "path": "a", "role": "parameter", "dtype": "float32", "shape": [4]}
    meta = {"name": "", "net": "", "extra": {}}
    manifest: dict[str, Any] = {"kind": "weights", "version": 1, "arrays": [{**entry, "crc32": crc32(array.tobytes())}]}
    manifest["meta"] = meta
    with h5py.File(path, "w", userblock_size=BLOCK_BYTES) as file:
        file.create_group("arrays").create_dataset("a", data=array)
        make(file, manifest)
        if "manifest" not in file:
            data = json.dumps(manifest).encode()
            file.create_dataset("manifest", data=data, dtype=h5py.string_dtype("utf-8", len(data)))
    content = path.read_bytes()[BLOCK_BYTES:]
    block = HeaderBlock("weights", 1, BLOCK_BYTES + len(content), hashlib.sha256(content).hexdigest())
    path.write_bytes(block.render() + content)
    return path


def replace(link: Any) -> Callable[[h5py.File, dict[str, Any]], None]:
    def make(file: h5py.File, manifest: dict[str, Any]) -> None:
        del file["arrays/a"]
        file["arrays"]["a"] = link

    return make


def dataset(**options: Any) -> Callable[[h5py.File, dict[str, Any]], None]:
    def make(file: h5py.File, manifest: dict[str, Any]) -> None:
        del file["arrays/a"]
        manifest["arrays"][0]["shape"] = list(options.get("shape", [4]))
        file["arrays"].create_dataset("a", dtype="float32", **options)

    return make


def virtual(file: h5py.File, manifest: dict[str, Any]) -> None:
    del file["arrays/a"]
    layout = h5py.VirtualLayout((4,), "float32")
    layout[:] = h5py.VirtualSource("/etc/hostname", "a", (4,))
    file["arrays"].create_virtual_dataset("a", layout)


def changed(**entries: Any) -> Callable[[h5py.File, dict[str, Any]], None]:
    return lambda file, manifest: manifest["arrays"][0].update(entries)


HOSTILE: dict[str, Callable[[h5py.File, dict[str, Any]], None]] = {
    "soft link": replace(h5py.SoftLink("/manifest")),
    "external link": replace(h5py.ExternalLink("/etc/passwd", "/")),
    "external storage": dataset(shape=(4,), external=[("/etc/hostname", 0, 16)]),
    "virtual": virtual,
    "bomb": dataset(shape=(2**40,), chunks=(2**20,), compression="gzip"),
    "unwritten bomb": dataset(shape=(2**40,)),
    "packed": dataset(shape=(4,), chunks=(4,)),
    "no dataset": lambda file, manifest: file.__delitem__("arrays/a"),
    "a group": changed(path="."),
    "out of the group": changed(path="../manifest"),
    "wrong checksum": changed(crc32=1),
    "wrong type": changed(dtype="float64"),
    "unknown type": changed(dtype="object"),
    "wrong shape": changed(shape=[2, 2]),
    "wrong role": changed(role="king"),
    "twice": lambda file, manifest: manifest["arrays"].append(manifest["arrays"][0]),
    "no entry": lambda file, manifest: manifest["arrays"].append("a"),
    "no arrays": lambda file, manifest: manifest.pop("arrays") and None,
    "no meta": lambda file, manifest: manifest.update(meta={}),
    "other kind": lambda file, manifest: manifest.update(kind="checkpoint"),
    "deep": lambda file, manifest: file.create_dataset("manifest", data=np.bytes_(b"[" * 100_000)) and None,
    "no text": lambda file, manifest: file.create_dataset("manifest", data=np.arange(5)) and None,
    "not JSON": lambda file, manifest: file.create_dataset("manifest", data=np.bytes_(b"{]")) and None,
    "a list": lambda file, manifest: file.create_dataset("manifest", data=np.bytes_(b"[]")) and None,
    "free text": lambda file, manifest: file.create_dataset("manifest", data="{}") and None,
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_files_made_to_deceive_are_refused(tmp_path: Path, make: Callable[[h5py.File, dict[str, Any]], None]) -> None:
    path = sealed(tmp_path / "hostile.h5", make)
    with pytest.raises(InputError) as error:
        read_weights(path)
    assert str(path) in text(error)


@pytest.mark.parametrize("where", ["arrays/more", "arrays/deep/er", "more", "empty/"])
def test_unlisted_contents_are_rejected(tmp_path: Path, where: str) -> None:
    def add(file: h5py.File, manifest: dict[str, Any]) -> None:
        if where.endswith("/"):
            file.create_group(where)
        else:
            file[where] = np.zeros(3)

    path = sealed(tmp_path / "more.h5", add)
    with pytest.raises(InputError, match=f"it holds '{where.partition('/')[0]}.*', which its manifest does not list"):
        read_weights(path)


def test_the_undamaged_file_is_read(tmp_path: Path) -> None:
    path = sealed(tmp_path / "fine.h5", lambda file, manifest: None)
    np.testing.assert_array_equal(read_weights(path).arrays["a"], np.arange(4))


def test_there_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"folder .* does not exist"):
        write_weights(tmp_path / "none" / "w.h5", ARRAYS)
    with pytest.raises(InputError, match="it is a folder"):
        write_weights(tmp_path, ARRAYS)
