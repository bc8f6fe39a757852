"""Results that several test processes share and only one computes, since jobs of real workers start slowly."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netspec.training.lock import fcntl


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
    """Return a folder that `make` has filled, and its JSON result; all calls with the same name share them.

    If `make` fails, all calls fail, without another attempt.
    """
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    base = factory.getbasetemp() if alone else factory.getbasetemp().parent
    folder, message = base / name, base / f"{name}.json"
    with (base / f"{name}.lock").open("w") as lock:
        if fcntl is not None:  # the lock is released with the file, however this process ends
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not message.exists():
            folder.mkdir()
            message.write_text(json.dumps({"failed": "the process that made it has ended"}))
            try:
                data = {"made": make(folder)}
            except Exception as error:
                message.write_text(json.dumps({"failed": f"{type(error).__name__}: {error}"}))
                raise
            message.write_text(json.dumps(data))
    data = json.loads(message.read_text())
    if "failed" in data:
        pytest.fail(f"{name} was tried before: {data['failed']}", pytrace=False)
    return folder, data["made"]
