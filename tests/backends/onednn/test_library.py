"""The choice of the library, and messages if none can be loaded. Most tests need no library."""

from __future__ import annotations

import _ctypes
import ctypes
import sys
from pathlib import Path

import pytest

from netspec.backends.onednn import library
from netspec.backends.onednn.library import (
    FILE,
    SETTING,
    OneDnnLibrary,
    load,
    open_library,
    unavailable_reason,
    wheel_paths,
)


@pytest.fixture
def afresh():
    """Clear the cache of the search before and after the test."""
    library._search.cache_clear()
    yield
    library._search.cache_clear()


def test_setting_off_disables_the_library(monkeypatch):
    monkeypatch.setenv(SETTING, "off")
    assert open_library() is None
    assert unavailable_reason() == f"{SETTING}=off"


def test_unloadable_path_is_reported_and_no_other_tried(monkeypatch, tmp_path):
    wrong = tmp_path / FILE
    wrong.write_bytes(b"not a library")
    monkeypatch.setenv(SETTING, str(wrong))
    assert open_library() is None
    assert unavailable_reason().startswith(f"{wrong} cannot be loaded: ")


def test_other_library_is_not_taken_for_onednn(monkeypatch):
    monkeypatch.setenv(SETTING, _ctypes.__file__)
    assert open_library() is None
    assert "is not oneDNN with OpenMP" in unavailable_reason()


def test_without_a_wheel_the_error_names_what_to_install(monkeypatch, afresh):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setattr(library, "load", lambda path: f"{path} cannot be loaded: no such file")
    monkeypatch.setattr(library, "wheel_paths", list)
    assert open_library() is None
    assert "pip install onednn-cpu-gomp" in unavailable_reason()


def test_other_platforms_have_no_wheel(monkeypatch, afresh):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delenv(SETTING, raising=False)
    assert open_library() is None
    assert unavailable_reason() == f"oneDNN has no wheel for darwin; {SETTING}=path names a library"


@pytest.mark.parametrize(
    ("system", "wheel", "chosen"),
    [
        ((3, 5, 0), (3, 2, 0), "system"),
        ((3, 2, 0), (3, 2, 0), "system"),
        ((3, 2, 0), (3, 2, 1), "wheel"),
        (None, (3, 2, 0), "wheel"),
        ((3, 4, 0), None, "system"),
    ],
)
def test_a_system_library_is_taken_unless_it_is_older(monkeypatch, tmp_path, afresh, system, wheel, chosen):
    bundled = tmp_path / FILE
    bundled.touch()
    versions = {FILE: system, str(bundled): wheel}

    def fake(path: str) -> OneDnnLibrary | str:
        version = versions[path]
        origin = "system" if path == FILE else "wheel"
        return OneDnnLibrary(origin, version, ctypes.CDLL(None)) if version else f"{path} is damaged"

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setattr(library, "load", fake)
    monkeypatch.setattr(library, "wheel_paths", lambda: [bundled])
    actual = open_library()
    assert actual is not None
    assert actual.path == chosen
    assert unavailable_reason() == ""


def test_damaged_wheel_is_reported(monkeypatch, tmp_path, afresh):
    (tmp_path / FILE).write_bytes(b"")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setattr(library, "wheel_paths", lambda: [tmp_path / FILE])
    monkeypatch.setattr(library, "FILE", "libdnnl-none.so.3")
    assert open_library() is None
    assert unavailable_reason().startswith(f"{tmp_path / FILE} cannot be loaded: ")


def test_the_wheel_is_searched_for_next_to_every_site_packages(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path / "lib" / "python3.11" / "site-packages")])
    assert tmp_path / "lib" / FILE in wheel_paths()
    assert Path(sys.prefix) / "lib" / FILE == wheel_paths()[0]


def test_version_and_runtime_must_fit(engine, monkeypatch):
    path = engine.library.path
    monkeypatch.setattr(library, "OLDEST", (3, 99))
    assert "version 3.99 or a later 3.x is needed" in str(load(path))
    monkeypatch.setattr(library, "OLDEST", (2, 0))
    monkeypatch.setattr(library, "MAJOR", 4)
    assert "or a later 4.x is needed" in str(load(path))
    monkeypatch.setattr(library, "MAJOR", 3)
    monkeypatch.setattr(library, "OPENMP", 8)
    assert "without OpenMP (runtime 2)" in str(load(path))


def test_the_same_file_is_the_same_library(engine, monkeypatch):
    monkeypatch.setenv(SETTING, engine.library.path)
    actual = open_library()
    assert actual == engine.library
    assert hash(actual) == hash(engine.library)
    assert Path(engine.library.path).is_absolute()


def test_description_names_the_instruction_set(engine, monkeypatch):
    assert engine.library.instruction_set in library.INSTRUCTION_SETS.values()
    monkeypatch.setattr(library, "INSTRUCTION_SETS", {})
    assert engine.library.instruction_set.startswith("0x")
