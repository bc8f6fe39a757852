"""Search for oneDNN's shared library, and its version.

The search order is: the file in the environment variable `NETSPEC_ONEDNN` (`off` masks the library); a system library
no older than the wheel's; the library of the wheel `onednn-cpu-gomp`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from netspec.backends.openmp import openmp

SETTING = "NETSPEC_ONEDNN"
FILE = "libdnnl.so.3"
MAJOR = 3
"""The C interface is stable within a major version."""
OLDEST = (3, 2)
"""Minimum minor version: older ones lack functions and primitives that are called here."""
OPENMP = 2
"""`DNNL_RUNTIME_OMP`: the only runtime whose number of threads netspec can set."""

BFLOAT16 = 0x80
"""The bit of an instruction set with AVX512_BF16."""

INSTRUCTION_SETS = {
    0x1: "sse41",
    0x3: "avx",
    0x7: "avx2",
    0xF: "avx2_vnni",
    0x1F: "avx2_vnni_2",
    0x27: "avx512_core",
    0x67: "avx512_core_vnni",
    0xE7: "avx512_core_bf16",
    0x1EF: "avx512_core_fp16",
    0xFEF: "avx512_core_amx",
    0x1FEF: "avx512_core_amx_fp16",
}


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


@dataclass(frozen=True)
class OneDnnLibrary:
    """The loaded library. Two of them are equal if they are the same file."""

    path: str
    version: tuple[int, int, int]
    functions: ctypes.CDLL = field(compare=False, repr=False)
    """Calls release the interpreter lock. Functions of the libraries it is linked to (OpenMP) are found as well."""

    @property
    def instruction_set(self) -> str:
        """Instructions that it uses on this CPU, by oneDNN's name, e.g. `avx512_core_bf16`."""
        isa = int(self.functions.dnnl_get_effective_cpu_isa())
        return INSTRUCTION_SETS.get(isa, hex(isa))

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether these instructions multiply bfloat16; without them it is emulated, slower than float32."""
        return int(self.functions.dnnl_get_effective_cpu_isa()) & BFLOAT16 == BFLOAT16


def open_library() -> OneDnnLibrary | None:
    """The library, or None if none can be used (`unavailable_reason` says why). Never raises."""
    library = _search(os.environ.get(SETTING, ""))
    return library if isinstance(library, OneDnnLibrary) else None


def unavailable_reason() -> str:
    """Return why `open_library` returns None, for the user; empty if it returns a library."""
    library = _search(os.environ.get(SETTING, ""))
    return library if isinstance(library, str) else ""


@cache
def _search(setting: str) -> OneDnnLibrary | str:
    """The library for a value of `NETSPEC_ONEDNN`, or why there is none."""
    if setting == "off":
        return f"{SETTING}=off"
    if setting:
        return load(setting)
    if sys.platform != "linux":
        return f"oneDNN has no wheel for {sys.platform}; {SETTING}=path names a library"
    system = load(FILE)
    bundled = _first(path for path in wheel_paths() if path.exists())
    if isinstance(system, OneDnnLibrary) and (
        not isinstance(bundled, OneDnnLibrary) or system.version >= bundled.version
    ):
        return system
    if isinstance(bundled, OneDnnLibrary):
        return bundled
    return bundled or "it is not installed: pip install onednn-cpu-gomp==2023.2.0 (Linux on x86-64)"


def _first(paths: Iterator[Path]) -> OneDnnLibrary | str:
    """The first of the files that loads, or else the error of the last one."""
    result: OneDnnLibrary | str = ""
    for path in paths:
        result = load(str(path))
        if isinstance(result, OneDnnLibrary):
            break
    return result


def wheel_paths() -> list[Path]:
    """Yield the paths where pip installs the wheel's library: the data folder of each kind of installation."""
    import sysconfig

    roots = [Path(sys.prefix), Path(sysconfig.get_path("data"))]
    if sys.flags.no_user_site == 0:
        roots.append(Path(sysconfig.get_path("data", sysconfig.get_preferred_scheme("user"))))
    roots.append(Path(sys.base_prefix))
    folders = [root / "lib" for root in roots]
    # with `pip install --prefix`, PREFIX/lib/python3.x/site-packages is on the path, the library two folders above
    folders += [Path(entry).parent.parent for entry in sys.path if Path(entry).name == "site-packages"]
    return [folder / FILE for folder in dict.fromkeys(folders)]


def load(path: str) -> OneDnnLibrary | str:
    """Load a file, or a name that the system's loader finds; returns a text if it cannot be used."""
    pool = openmp()  # must come first: the wait policy must be set before loading
    try:
        functions = ctypes.CDLL(path)
        version_of = functions.dnnl_version
        threads_of = functions.omp_get_max_threads
    except OSError as error:
        return f"{path} cannot be loaded: {error}"
    except AttributeError as error:
        return f"{path} is not oneDNN with OpenMP: {error}"
    version_of.restype = ctypes.POINTER(_Version)
    functions.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
    functions.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
    library_version = version_of().contents
    version = (library_version.major, library_version.minor, library_version.patch)
    version_text = ".".join(map(str, version))
    if library_version.major != MAJOR or version < OLDEST:
        return f"{path} is oneDNN {version_text}; version {OLDEST[0]}.{OLDEST[1]} or a later {MAJOR}.x is needed"
    if library_version.cpu_runtime != OPENMP:
        return f"{path} is oneDNN {version_text} without OpenMP (runtime {library_version.cpu_runtime})"
    if pool is None or _address(threads_of) != _address(pool.omp_get_max_threads):
        return f"{path} is oneDNN {version_text} with {_file_of(threads_of)}: kernels share the threads of libgomp"
    return OneDnnLibrary(_file_of(version_of) or path, version, functions)


class _SymbolInfo(ctypes.Structure):
    """`Dl_info` of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _file_of(function: object) -> str:
    """The file that a loaded function comes from, for a library loaded by name; empty if unknown."""
    info = _SymbolInfo()
    dladdr = getattr(ctypes.CDLL(None), "dladdr", None)
    if dladdr is None or not dladdr(ctypes.c_void_p(_address(function)), ctypes.byref(info)) or not info.file:
        return ""
    return os.path.realpath(os.fsdecode(info.file))


def _address(function: object) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]  # a function is a pointer to ctypes
