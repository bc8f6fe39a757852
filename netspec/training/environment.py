"""Versions, machine and number of threads, which results may depend on."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType

from netspec import __version__
from netspec.data.thread_pool import processors

LIBRARIES = {
    "numpy": "numpy", "numba": "numba", "llvmlite": "llvmlite", "onednn-cpu-gomp": "oneDNN", "mpi4py": "mpi4py",
    "cupy-cuda12x": "CuPy", "cupy-cuda13x": "CuPy",
}  # fmt: skip
"""Names of the compute libraries, by package."""


@cache
def versions() -> Mapping[str, str]:
    """Return the versions that a result may depend on; libraries that are not installed are left out."""
    versions_by_name = {"netspec": __version__, "python": platform.python_version()}
    for package, name in LIBRARIES.items():
        with suppress(PackageNotFoundError):
            versions_by_name[name] = version(package)
    return MappingProxyType(versions_by_name)


def machine() -> dict[str, str]:
    """Return the processor and the operating system."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()  # Linux has it
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"processor": (models or [platform.processor() or platform.machine()])[0], "system": platform.platform()}


def threads() -> int:
    """Return the number of threads of kernels: OMP_NUM_THREADS if it is set, else this process's cores."""
    requested = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if requested.isdigit() and int(requested) > 0:
        return int(requested)
    return processors()
