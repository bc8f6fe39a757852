"""GNU's OpenMP library, whose thread pool all kernels share: how idle threads wait, how many a kernel may use."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

SPINS = "1000"
"""Iterations for which an idle thread spins before it sleeps: about the gap between two kernels of a step.

libgomp's default is 300,000 or more. On a busy machine, a spinning thread takes the core from the thread that it waits
for: a step of LeNet took 432 ms with the default, and 26 ms with this setting (2 cores, load 8).
"""


def wait_briefly() -> None:
    """Set GOMP_SPINCOUNT, unless the user chose a wait policy. Must be called before libgomp is loaded."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


@cache
def openmp() -> ctypes.CDLL | None:
    """libgomp, or None if it is not installed."""
    wait_briefly()
    try:
        library = ctypes.CDLL("libgomp.so.1")
    except OSError:
        return None
    library.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    library.GOMP_parallel.restype = None
    return library


def thread_count() -> int:
    """Number of threads that a kernel called from this thread may use.

    It is OMP_NUM_THREADS, the number set since, or the number of cores.
    """
    library = openmp()
    return int(library.omp_get_max_threads()) if library is not None else 1


def set_threads(count: int) -> None:
    """Set how many threads a kernel called from this Python thread may use: 0.2 µs. OpenMP stores it per thread."""
    if count < 1:
        raise ValueError(f"{count} threads")
    library = _quick()
    if library is not None:
        library.omp_set_num_threads(count)


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Bind or run kernels with `count` threads inside the block."""
    before = thread_count()
    set_threads(count)
    try:
        yield
    finally:
        set_threads(before)


@cache
def _quick() -> ctypes.PyDLL | None:
    """libgomp, called without releasing the GIL, which takes longer than these calls."""
    return ctypes.PyDLL("libgomp.so.1") if openmp() is not None else None
