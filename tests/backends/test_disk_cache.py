from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from netspec.backends.backend import unavailable_reasons
from netspec.backends.device_registry import CpuDevice
from netspec.backends.disk_cache import DiskCache
from netspec.backends.numba import native
from netspec.backends.numba.native import Pointer
from netspec.graph.types import DType

SOURCE = "def body(first, last, x, y):\n    for i in range(first, last):\n        y[i] = x[i] + x[i]"
KINDS = (Pointer(DType.FLOAT32), Pointer(DType.FLOAT32))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget()
    yield tmp_path / "netspec" / "numba"
    forget()


def forget() -> None:
    native.folder.cache_clear()
    native.of_source.cache_clear()


def doubled() -> list[float]:
    x, y = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    native.of_source(SOURCE, KINDS).bind(3, 3, x, y)()
    return y.tolist()


def test_compiled_once_then_loaded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doubled() == [0, 2, 4]
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert sorted(path.suffix for path in cache.iterdir()) == [".o", ".py"]
    forget()
    monkeypatch.setitem(sys.modules, "netspec.backends.numba.compile", None)  # importing it would fail
    assert doubled() == [0, 2, 4]


@pytest.mark.parametrize("damage", [b"", b"\0" * 5000, b"cut"])
def test_damaged_file_is_rebuilt(cache: Path, damage: bytes) -> None:
    assert doubled() == [0, 2, 4]
    for path in cache.iterdir():
        path.write_bytes(damage)
    forget()
    assert doubled() == [0, 2, 4]
    text = next(cache.glob("*.py")).read_text()
    assert "y[i] = x[i] + x[i]" in text


def test_a_folder_that_others_can_write_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    store = DiskCache(tmp_path / "open")
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700


def test_temporary_folder_is_used_if_cache_is_unwritable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = DiskCache(tmp_path / "file" / "below")
    store.write("a", b"content")
    assert store.read("a") == b"content"
    assert tmp_path not in store.path.parents


def test_the_environment_leaves_backends_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETSPEC_KERNELS", "reference")
    assert not {"numba", "onednn", "winograd"} & set(CpuDevice().kernels)
    assert unavailable_reasons(["numba"]) == {"numba": "NETSPEC_KERNELS omits it"}
    monkeypatch.setenv("NETSPEC_KERNELS", "numba")
    assert "numba" in CpuDevice().kernels


def test_missing_numba_is_reported_by_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    from netspec.backends import numba

    monkeypatch.setattr(numba, "find_spec", lambda name: None if name == "numba" else object())
    assert unavailable_reasons(["reference", "numba"]) == {"numba": "the package numba is not installed"}
    assert "numba" not in CpuDevice().kernels
