"""The engine that all tests of the binding share; they are skipped if the library is missing or disabled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netspec.backends.backend import unavailable_reasons
from netspec.backends.onednn.library import open_library
from netspec.backends.onednn.native import OneDnnEngine, open_engine
from netspec.backends.openmp import using_threads


@pytest.fixture(scope="session")
def engine() -> OneDnnEngine:
    missing = unavailable_reasons(["onednn"])
    if missing:
        pytest.skip(f"no oneDNN: {missing['onednn']}")
    library = open_library()
    assert library is not None
    return open_engine(library)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads busy-wait for each other, which makes tiny calls a thousand times slower on a busy machine."""
    with using_threads(1):
        yield
