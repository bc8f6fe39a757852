"""Numba at work: a generated module becomes an object file with one function in it."""

from __future__ import annotations

import re
from types import ModuleType

from netspec.backends.numba.linker import pack

FUNCTIONS = ("exp", "expm1", "log", "log1p", "tanh", "pow", "sqrt")
LIBRARY_CALLS = {"memset", "memcpy", "memmove", *FUNCTIONS, *(f"{name}f" for name in FUNCTIONS)}
"""What machine code may call: the C and mathematics libraries, which every process has."""

POINTER_CHECKS = 256
"""LLVM gives a loop up when it must compare more pointers than this (8 by default) before it may vectorize it."""

_settings: list[str] = []


def compile_module(module: ModuleType) -> bytes:
    """The packed object code of a module's `entry`. Raises `RuntimeError` if it needs more than a plain process has."""
    _set_up()
    library = module.entry._library
    strangers = set(re.findall(r"^declare .*?@\"?([\w.$]+)", library.get_llvm_str(), re.MULTILINE))
    strangers = {name for name in strangers if not name.startswith("llvm.")} - LIBRARY_CALLS
    if strangers:
        raise RuntimeError(f"{module.__name__} calls {', '.join(sorted(strangers))}: it cannot run outside of numba")
    return pack(module.entry.native_name, library._get_compiled_object())


def _set_up() -> None:
    """Settings of LLVM, for the process."""
    if not _settings:
        import llvmlite.binding as llvm

        _settings.append(f"-runtime-memory-check-threshold={POINTER_CHECKS}")
        llvm.set_option("netspec", _settings[0])
