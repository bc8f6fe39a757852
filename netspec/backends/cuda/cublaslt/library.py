"""Search for the cuBLASLt library, and its version.

The search order is: the file in the environment variable `NETSPEC_CUBLASLT` (`off` masks the library); the wheel for
the CUDA version of CuPy (`nvidia-cublas`, `nvidia-cublas-cu12`); the system's library.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from netspec.backends.cuda import cuda_version, wheel_libraries

SETTING = "NETSPEC_CUBLASLT"
OLDEST = (12, 0, 0)
"""Minimum version. The structures and constants of `native` have not changed since."""


@dataclass(frozen=True)
class CublasLtLibrary:
    """The loaded library. Two of them are equal if they are the same file."""

    path: str
    version: tuple[int, int, int]
    functions: ctypes.CDLL = field(compare=False, repr=False)


def open_library() -> CublasLtLibrary:
    """The library. Raises `RuntimeError` if `unavailable_reason` gives a reason."""
    library = _search(os.environ.get(SETTING, ""))
    if isinstance(library, str):
        raise RuntimeError(library)
    return library


def unavailable_reason() -> str | None:
    """Return why no library can be used, for the user; None if one can."""
    library = _search(os.environ.get(SETTING, ""))
    return library if isinstance(library, str) else None


@cache
def _search(setting: str) -> CublasLtLibrary | str:
    """The library for a value of `NETSPEC_CUBLASLT`, or why there is none."""
    if setting == "off":
        return f"{SETTING}=off"
    if setting:
        return load(setting)
    version = cuda_version()
    if version is None:
        return "the package cupy is not installed"
    result: CublasLtLibrary | str = ""
    for path in _candidate_paths(version[0]):
        result = load(path)
        if isinstance(result, CublasLtLibrary):
            break
    return result


def _candidate_paths(major: int) -> Iterator[str]:
    """The wheel's file, if installed, and the file name of the system's library."""
    name = f"libcublasLt.so.{major}"
    yield from (str(path) for path in wheel_libraries(name))
    yield name


def load(path: str) -> CublasLtLibrary | str:
    """Load the library in a file, or return why it cannot be used."""
    try:
        functions = ctypes.CDLL(path)
        functions.cublasLtGetVersion.restype = ctypes.c_size_t
        number = int(functions.cublasLtGetVersion())
    except (OSError, AttributeError) as error:
        where = f"{path}: " if Path(path).is_absolute() and path not in str(error) else ""
        return f"cuBLASLt was not found: {where}{error}"
    version = number // 10000, number // 100 % 100, number % 100
    if version < OLDEST:
        needed = ".".join(map(str, OLDEST[:2]))
        return f"{path} is cuBLASLt {'.'.join(map(str, version))}; {needed} or newer is needed"
    return CublasLtLibrary(path, version, functions)
