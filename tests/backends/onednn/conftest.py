"""The engine that all tests of the binding share; without the library they are skipped, and say why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from netspec.backends.onednn.library import open_library, why_missing
from netspec.backends.onednn.native import Engine, open_engine


@pytest.fixture(scope="session")
def engine() -> Engine:
    library = open_library()
    if library is None:
        pytest.skip(f"no oneDNN: {why_missing()}")
    return open_engine(library)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads wait for each other by spinning: on a busy machine that makes tiny calls a thousand times slower."""
    library = open_library()
    with library.using_threads(1) if library else nullcontext():
        yield
