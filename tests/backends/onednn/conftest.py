"""The engine that all tests of the binding share; without the library they are skipped, and say why."""

from __future__ import annotations

import pytest

from netspec.backends.onednn.library import open_library, why_missing
from netspec.backends.onednn.native import Engine, open_engine


@pytest.fixture(scope="session")
def engine() -> Engine:
    library = open_library()
    if library is None:
        pytest.skip(f"no oneDNN: {why_missing()}")
    return open_engine(library)
