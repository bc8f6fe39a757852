"""`CupyEngine`: each kernel is compiled once for a GPU and a compiler, and loaded once for each GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netspec.backends.cuda import launch
from netspec.backends.cuda.launch import OPTIONS, CupyEngine

TEXT = 'extern "C" __global__ void netspec_k() {}'


class Gpus:
    """A stand-in for CuPy, as far as the engine compiles and loads kernels."""

    def __init__(self) -> None:
        self.number, self.capability, self.version = 0, "90", (13, 0)
        self.compiled: list[tuple[str, tuple[str, ...]]] = []
        self.loaded: list[bytes] = []
        self.launched: list[Any] = []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gpus = self

        class Module:
            def load(self, code: bytes) -> None:
                gpus.loaded.append(code)

            def get_function(self, name: str) -> Any:
                return lambda *arguments: gpus.launched.append((gpus.number, name, *arguments))

        def compiled(text: str, options: tuple[str, ...], *, filename: str) -> tuple[bytes, None]:
            gpus.compiled.append((filename, options))
            return f"code of {text} for {gpus.capability}".encode(), None

        cuda: Any = SimpleNamespace(
            Device=lambda: SimpleNamespace(compute_capability=self.capability),
            compiler=SimpleNamespace(compile_using_nvrtc=compiled),
            nvrtc=SimpleNamespace(getVersion=lambda: self.version),
            runtime=SimpleNamespace(getDevice=lambda: self.number),
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
        monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
        monkeypatch.setitem(sys.modules, "cupy.cuda.function", SimpleNamespace(Module=Module))


def test_kernels_are_compiled_once_with_the_tested_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The options are those of the tests, none of which flushes subnormal numbers to 0."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gpus = Gpus()
    gpus.install(monkeypatch)
    first = CupyEngine()
    for engine in (first, first, CupyEngine()):
        engine.starter("netspec_k", TEXT)(3, 32, [1])
    assert gpus.compiled == [("netspec_k.cu", OPTIONS)]
    assert not any("ftz" in option for option in OPTIONS)
    assert len(gpus.loaded) == 2, "once for each engine"
    assert len(set(gpus.loaded)) == 1
    assert gpus.launched == [(0, "netspec_k", (3,), (32,), (1,))] * 3


def test_code_is_cached_per_gpu_and_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gpus = Gpus()
    gpus.install(monkeypatch)
    engine = CupyEngine()
    engine.starter("netspec_k", TEXT)
    gpus.number = 1  # the same model of GPU
    engine.starter("netspec_k", TEXT)
    assert (len(gpus.compiled), len(gpus.loaded)) == (1, 2)
    gpus.number, gpus.capability = 2, "80"
    engine.starter("netspec_k", TEXT)
    assert (len(gpus.compiled), gpus.loaded[-1]) == (2, f"code of {TEXT} for 80".encode())
    gpus.version = (13, 1)
    CupyEngine().starter("netspec_k", TEXT)
    assert len(gpus.compiled) == 3


def test_damaged_file_counts_as_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gpus = Gpus()
    gpus.install(monkeypatch)
    CupyEngine().starter("netspec_k", TEXT)
    (file,) = (tmp_path / "netspec/cuda").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    CupyEngine().starter("netspec_k", TEXT)
    assert len(gpus.compiled) == 2


def test_sources_are_ascii() -> None:
    """CuPy writes sources to a file in the encoding of the locale. `compile.py` checks generated sources."""
    launch.prelude().encode("ascii")
