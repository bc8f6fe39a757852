"""A stand-in for cuBLASLt, compiled from C++."""

from __future__ import annotations

import atexit
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.backends.cuda.emulator import compiler

SOURCE = Path(__file__).parent / "stand_in.cpp"


@cache
def stand_in(version: int = 131000) -> str:
    """Return the path of a library that reports this version."""
    folder = TemporaryDirectory(prefix="netspec-cublaslt-")
    atexit.register(folder.cleanup)
    result = Path(folder.name) / "libcublasLt.so"
    command = [str(compiler()), f"-DVERSION={version}", "-std=c++17", "-O1", "-shared", "-fPIC", str(SOURCE), "-o"]
    process = subprocess.run([*command, str(result)], capture_output=True, text=True, check=False)
    assert not process.returncode, process.stderr[:4000]
    return str(result)
