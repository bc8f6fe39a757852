"""Versions and number of threads, which results may depend on."""

from __future__ import annotations

import os
import platform

import numpy as np

from netspec import __version__


def versions() -> dict[str, str]:
    """Return the versions that a result may depend on."""
    return {"netspec": __version__, "numpy": np.__version__, "python": platform.python_version()}


def threads() -> int:
    """Return the number of threads of kernels: OMP_NUM_THREADS if it is set, else this process's cores."""
    requested = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if requested.isdigit() and int(requested) > 0:
        return int(requested)
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
