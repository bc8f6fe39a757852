"""Every test of the schema sees the stand-in catalogue, in an empty folder of its own."""

from __future__ import annotations

import pytest

from tests.schema.catalogue import stand_ins


@pytest.fixture(autouse=True)
def catalogue():
    with stand_ins():
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path
