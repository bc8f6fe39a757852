"""Compile a generated module with numba to an object file with one function."""

from __future__ import annotations

import re
from types import ModuleType

from netspec.backends.numba.native import pack

FUNCTIONS = (
    "exp", "expm1", "log", "log1p", "pow", "sqrt", "sin", "cos", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "floor", "ceil", "rint", "fmod",
)  # fmt: skip
LIBRARY_CALLS = {"memset", "memcpy", "memmove", *FUNCTIONS, *(f"{name}f" for name in FUNCTIONS)}
"""Functions that machine code may call: the C and math libraries, which every process has."""

OPTIONS = (
    # LLVM does not vectorize a loop if more pointers than this (8 by default) must be compared first.
    "-runtime-memory-check-threshold=256",
    # Compare pointers row by row: over all rows at once, columns of one matrix seem to overlap.
    "-hoist-runtime-checks=false",
)
"""Settings of LLVM. Increment `native.ABI` when they change."""

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
    """Apply LLVM's settings to the process."""
    if not _set:
        import llvmlite.binding as llvm

        for option in OPTIONS:
            llvm.set_option("netspec", option)
            _set.append(option)
