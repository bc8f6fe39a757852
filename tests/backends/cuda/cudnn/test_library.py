"""Libraries that are loaded for cuDNN's frontend from NVIDIA's wheels, which the system's loader does not find."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import pytest

from netspec.backends.cuda.cudnn import library
from tests.backends.cuda.fake import Machine

WHEELS = (
    "nvidia/cuda_runtime/lib/libcudart.so.12", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9", "nvidia/cu13/lib/libcudart.so.13",
    "nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cu13/lib/libnvrtc-builtins.so.13.0", "nvidia/cudnn/lib/libcudnn.so.9",
)  # fmt: skip
"""Libraries of cuDNN and of both versions of CUDA: PyTorch may have installed another version than netspec needs."""


def loaded(monkeypatch: pytest.MonkeyPatch, folder: Path, cupy: Any) -> list[str]:
    """The names of the libraries that are loaded if these wheels are installed, in order."""
    actual = list[str]()

    def load(path: str, mode: int) -> None:
        assert mode == ctypes.RTLD_GLOBAL
        actual.append(Path(path).name)

    for name in WHEELS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(ctypes, "CDLL", load)
    library.preload()
    return [name for name in actual if any(Path(wheel).name == name for wheel in WHEELS)]


def test_the_cuda_runtime_comes_from_cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The frontend's attention fails without a runtime, and if it finds two."""
    actual = loaded(monkeypatch, tmp_path, Machine().cupy())
    assert actual == ["libcudart.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc.so.13", "libcudnn.so.9"]


def test_planning_without_cupy_loads_no_cuda_runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not [name for name in loaded(monkeypatch, tmp_path, None) if "cudart" in name]
