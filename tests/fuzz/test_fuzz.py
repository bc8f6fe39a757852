"""Damaged files never cause a traceback, a hang, unbounded memory, a crash or a wrong result: a few for each reader.

`python -m benchmarks.fuzz` reads more, and prints a table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netspec.exchange.formats.registry import FORMATS
from netspec.schema.specs.data import SOURCES
from tests.fuzz.readers import READERS
from tests.fuzz.runner import Fuzzer

COUNT = 12
SEED = 1
WITHOUT_FILES = {"synthetic", "python"}
OF_OTHER_FORMATS = {"mnist": "idx", "fashion_mnist": "idx", "cifar10": "cifar_binary", "cifar100": "cifar_binary"}


@pytest.fixture(scope="module")
def fuzzer() -> Iterator[Fuzzer]:
    with Fuzzer(SEED) as started:
        yield started


@pytest.mark.parametrize("reader", READERS)
def test_damaged_files_are_accepted_or_refused(fuzzer: Fuzzer, reader: str) -> None:
    assert fuzzer.run(reader, 0, COUNT).failures == []


@pytest.mark.slow
def test_every_source_and_format_has_a_reader() -> None:
    sources = {OF_OTHER_FORMATS.get(name, name) for name in SOURCES.names()} - WITHOUT_FILES
    assert sources <= {getattr(reader.read, "keywords", {}).get("source") for reader in READERS.values()}
    named = [suffix for format in FORMATS for suffix in format.suffixes[:1]]
    assert [suffix for suffix in named if not any(suffix in name for name in READERS)] == [".solverstate"]
    assert "Caffe solver" in READERS
