"""What several test processes need and one of them computes: jobs of real workers take long to start."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netspec.training.lock import fcntl


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
    """A folder that `make` has filled, and what it told, which JSON holds; all who ask for it by that name share it.

    Where `make` has failed, all who ask fail, and nothing is tried again.
    """
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    base = factory.getbasetemp() if alone else factory.getbasetemp().parent
    folder, told = base / name, base / f"{name}.json"
    with (base / f"{name}.lock").open("w") as lock:
        if fcntl is not None:  # ends with the file, however this process ends
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            folder.mkdir()
            told.write_text(json.dumps({"failed": "the process that made it has ended"}))
            try:
                found = {"made": make(folder)}
            except Exception as error:
                told.write_text(json.dumps({"failed": f"{type(error).__name__}: {error}"}))
                raise
            told.write_text(json.dumps(found))
    found = json.loads(told.read_text())
    if "failed" in found:
        pytest.fail(f"{name} was tried before: {found['failed']}", pytrace=False)
    return folder, found["made"]
