"""The number of threads is set in one place, for the calling thread; all kernels share one OpenMP library."""

from __future__ import annotations

import os
import threading

import pytest

from netspec.backends.openmp import openmp, set_threads, thread_count, using_threads


@pytest.mark.skipif(openmp() is None, reason="no libgomp")
def test_threads_are_set_for_the_calling_thread() -> None:
    before = thread_count()
    counts: list[int] = []
    with using_threads(3):
        assert thread_count() == 3
        other = threading.Thread(target=lambda: counts.append(thread_count()))
        other.start()
        other.join()
    assert thread_count() == before
    assert counts != [3] or os.cpu_count() == 3


def test_there_is_at_least_one_thread() -> None:
    with pytest.raises(ValueError, match="0 threads"):
        set_threads(0)
