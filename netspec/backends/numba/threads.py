"""The OpenMP threads: the pool of GNU's libgomp, shared with every other library that uses it.

A kernel is started on all threads by a call of `GOMP_parallel`, the function that compilers emit for `#pragma omp
parallel`; each thread queries its number and processes its share of the units. Without libgomp, kernels run on the
calling thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial

from netspec.backends.openmp import openmp, thread_count

SERIAL_WORK = 131072
"""Number of elements that take 5 to 15 µs, less than starting a second thread."""


@cache
def queries() -> tuple[int, int]:
    """Addresses of `omp_get_thread_num` and `omp_get_num_threads`; zeros without OpenMP."""
    library = openmp()
    if library is None:
        return 0, 0
    number, count = library.omp_get_thread_num, library.omp_get_num_threads
    return ctypes.cast(number, ctypes.c_void_p).value or 0, ctypes.cast(count, ctypes.c_void_p).value or 0


_quick: Callable[[int], Callable[[ctypes.c_void_p], None]] = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_long: Callable[[int], Callable[[ctypes.c_void_p], None]] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def starter(address: int, words: int, units: int, work: int) -> partial[None]:
    """A call of the kernel at `address` with the words at the address `words`.

    Small work keeps the GIL, which is cheaper than releasing it; large work runs on several threads without it.
    """
    argument = ctypes.c_void_p(words)
    if work < SERIAL_WORK:
        return partial(_quick(address), argument)
    threads = min(thread_count(), units)
    library = openmp()
    if library is None or threads < 2:
        return partial(_long(address), argument)
    return partial(library.GOMP_parallel, ctypes.c_void_p(address), argument, threads, 0)
