"""A process is killed while it writes: existing files stay, no partial file appears, and leftovers are removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from netspec.exchange.files import FORGOTTEN

KILLED = """
import os, pathlib, signal, sys
from netspec.cli import main

def end(*_):
    os.kill(os.getpid(), signal.SIGKILL)

# What is killed: as bytes are on their way to the disk, before a file gets its name, or between two names.
os.fsync = end if "fsync" in sys.argv[1] else os.fsync
if "rename" in sys.argv[1]:
    rename = pathlib.Path.rename
    pathlib.Path.replace = end
    pathlib.Path.rename = lambda path, target: rename(path, target) if path.suffix == ".new" else end()
main(sys.argv[2:])
"""
CASES: dict[str, tuple[str, list[str]]] = {
    "export to ONNX": ("fsync", ["export", "net.yaml", "--weights", "run/best.h5", "--output", "to/m.onnx"]),
    "convert to two files": ("fsync", ["convert", "run", "to/m.caffemodel"]),
    "import": ("rename", ["import", "run/best.h5", "--output", "to/m"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_killed_process_leaves_nothing_half(name, netspec, trained):
    moment, words = CASES[name]
    # Fills the cache of kernels, whose files would be synced, too.
    netspec.ok("export", "run", "--output", "first.onnx")
    target, folder = Path(words[-1]), Path("to")
    folder.mkdir()
    if target.suffix:
        target.write_bytes(b"what was there")
    ended = subprocess.run([sys.executable, "-c", KILLED, moment, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    assert files == ([target] if target.suffix else [])
    assert all(file.read_bytes() == b"what was there" for file in files)
    (left,) = (path for path in folder.iterdir() if path.name.startswith("."))
    is_file = left.is_file()

    netspec.ok(*words)
    assert left.exists() == is_file  # another process may be writing the file; a folder has a lock while it is filled
    if is_file:
        os.utime(left, (0, left.stat().st_mtime - FORGOTTEN - 1))
        netspec.ok(*words)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
