"""A machine with a simulated GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netspec.backends.cuda import detect
from tests.backends.cuda.fake import Machine

Install = Callable[..., Machine]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """A machine that shows that it has a GPU, and CuPy for it, or None in its place."""

    def installed(cupy: Any = "as made", count: int | Exception = 1) -> Machine:
        machine = Machine(count, eager=range(9))
        monkeypatch.setitem(sys.modules, "cupy", machine.cupy() if cupy == "as made" else cupy)
        monkeypatch.setattr(detect, "SIGNS", (tmp_path,))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return machine

    return installed
