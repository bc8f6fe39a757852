"""Numba at work: a generated module becomes an object file with one function in it."""

from __future__ import annotations

import re
from types import ModuleType

from netspec.backends.numba.linker import pack

FUNCTIONS = (
    "exp", "expm1", "log", "log1p", "pow", "sqrt", "sin", "cos", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "floor", "ceil", "rint", "fmod",
)  # fmt: skip
LIBRARY_CALLS = {"memset", "memcpy", "memmove", *FUNCTIONS, *(f"{name}f" for name in FUNCTIONS)}
"""What machine code may call: the C and mathematics libraries, which every process has."""

OPTIONS = (
    # A loop is given up when more pointers than this (8 by default) must be compared before it may be vectorized.
    "-runtime-memory-check-threshold=256",
    # Pointers are compared row by row: over all rows at once, columns of one matrix seem to overlap each other.
    "-hoist-runtime-checks=false",
)
"""Settings of LLVM. Whoever changes them counts up `native.ABI`."""

_set: list[str] = []


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
    if not _set:
        import llvmlite.binding as llvm

        for option in OPTIONS:
            llvm.set_option("netspec", option)
            _set.append(option)
